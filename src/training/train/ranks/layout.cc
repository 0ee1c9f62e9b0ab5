#include "layout.h"

#include <algorithm>
#include <utility>

namespace headroom::train {

// First whole parameters, owner after owner, each one's from the last to the first, as backward passes come by; then
// those in pieces.
Layout::Layout(std::vector<Piece> all_pieces, int with_processes) : pieces(std::move(all_pieces)) {
  std::vector<std::size_t> first;  // piece of each parameter, and one more
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    if (first.size() == pieces[k].tensor) {
      first.push_back(k);
    }
  }
  first.push_back(pieces.size());
  places.resize(first.size() - 1);
  const std::int64_t most = cost::bucket_numbers(with_processes);
  const auto add_where = [&](auto&& asked) {
    for (std::size_t i = places.size(); i-- > 0;) {
      const Piece* const begin = pieces.data() + first[i];
      const Piece* const end = pieces.data() + first[i + 1];
      if (asked(*begin, end - begin == 1)) {
        add(begin, end, most);
      }
    }
  };
  for (int owner = 0; owner < with_processes; ++owner) {
    add_where([owner](const Piece& piece, bool whole) { return whole && piece.owner == owner; });
  }
  add_where([](const Piece&, bool whole) { return !whole; });
  for (const Bucket& bucket : buckets) {
    if (runs.empty() || runs.back().owner != bucket.owner) {
      runs.push_back({.owner = bucket.owner, .begin = bucket.begin, .end = bucket.end});
    }
    runs.back().end = bucket.end;
  }
}

void Layout::add(const Piece* first, const Piece* end, std::int64_t most) {
  Place& place = places[first->tensor];
  place.begin = numbers;
  place.count = (end - 1)->end;
  for (const Piece* piece = first; piece != end && place.count > 0; ++piece) {
    add_to_buckets(*piece, place.begin, most);
  }
  if (place.count > 0) {
    place.end_bucket = buckets.size();
    place.first_bucket = bucket_at(first->tensor, place.begin);
  }
  for (std::size_t b = place.first_bucket; b < place.end_bucket; ++b) {
    ++buckets[b].parameters;
  }
  numbers += cost::aligned(place.count);
}

// In the last bucket where there is room, or in as many as need be.
void Layout::add_to_buckets(const Piece& piece, std::int64_t begin, std::int64_t most) {
  const std::int64_t end = begin + cost::aligned(piece.end);
  for (std::int64_t at = begin + piece.begin; at < end; at = buckets.back().end) {
    const bool fits = !buckets.empty() && buckets.back().owner == piece.owner && end - buckets.back().begin <= most;
    if (!fits) {
      buckets.push_back({.owner = piece.owner, .begin = at, .end = at, .last = piece.tensor});
    }
    Bucket& bucket = buckets.back();
    bucket.end = std::min(end, bucket.begin + most);
    bucket.last = std::min(bucket.last, piece.tensor);
  }
}

std::size_t Layout::bucket_at(std::size_t parameter, std::int64_t number) const {
  const auto before = [](std::int64_t value, const Bucket& bucket) { return value < bucket.end; };
  const auto end = buckets.begin() + static_cast<std::ptrdiff_t>(places[parameter].end_bucket);
  return static_cast<std::size_t>(std::upper_bound(buckets.begin(), end, number, before) - buckets.begin());
}

}  // namespace headroom::train
