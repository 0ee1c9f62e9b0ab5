// Rows of a masked language model: which tokens they hold, and which of those are hidden.
#include <algorithm>
#include <cmath>

#include "foundation/core/random.h"
#include "headroom/config/model_options.h"
#include "masked_language_modelling.h"

namespace headroom::tasks {
namespace {

constexpr double kMasked = 0.8, kReplaced = 0.1;  // of the hidden tokens

double uniform(std::uint64_t seed) {
  return Random(seed).uniform();
}

// Stretches as sentences come in.
class Packer {
 public:
  explicit Packer(std::int64_t longest) : longest_(longest) {}

  void add_sentence(std::int64_t length) {
    if (now_.length + length > longest_) {
      close();
    }
    for (; length > longest_; length -= longest_) {
      now_.length = longest_;
      close();
    }
    now_.length += length;
  }
  std::vector<Stretch> finish() {
    close();
    return std::move(stretches_);
  }

 private:
  void close() {
    if (now_.length > 0) {
      stretches_.push_back(now_);
      now_ = {.begin = now_.begin + now_.length, .length = 0};
    }
  }
  std::int64_t longest_;
  Stretch now_;
  std::vector<Stretch> stretches_;
};

// The `count` places of 0..length-1 whose hashes are smallest.
std::vector<std::int64_t> chosen_places(std::int64_t length, std::int64_t count, std::uint64_t row_seed) {
  const std::uint64_t seed = mix(row_seed, "place");
  std::vector<std::pair<std::uint64_t, std::int64_t>> order;
  for (std::int64_t place = 0; place < length; ++place) {
    order.emplace_back(mix(seed, static_cast<std::uint64_t>(place)), place);
  }
  std::nth_element(order.begin(), order.begin() + (count - 1), order.end());
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < count; ++i) {
    places.push_back(order[static_cast<std::size_t>(i)].second);
  }
  return places;
}

}  // namespace

std::vector<bool> line_ends(const tokenizers::Tokenizer& tokenizer) {
  std::vector<bool> ends(static_cast<std::size_t>(tokenizer.vocabulary_size()), false);
  if (const std::int32_t line_end = tokenizer.line_end_id(); line_end >= 0) {
    ends[static_cast<std::size_t>(line_end)] = true;
  }
  if (tokenizer.kind() == config::TokenizerKind::bpe) {
    for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
      ends[static_cast<std::size_t>(id)] = tokenizer.decode(std::span(&id, 1)).ends_with('\n');
    }
  }
  return std::find(ends.begin(), ends.end(), true) == ends.end() ? std::vector<bool>() : ends;
}

std::vector<Stretch> pack_sentences(const data::TokenFile& file, const std::vector<bool>& ends, std::int64_t longest) {
  constexpr std::int64_t kAtOnce = std::int64_t{1} << 16;
  Packer packer(longest);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(kAtOnce, file.size())));
  std::int64_t length = 0;  // of the sentence under way
  for (std::int64_t begin = 0; begin < file.size(); begin += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, file.size() - begin);
    file.copy(begin, count, ids.data());
    for (std::int64_t i = 0; i < count; ++i) {
      ++length;
      const auto id = static_cast<std::size_t>(ids[static_cast<std::size_t>(i)]);
      if (ends.empty() ? length == longest : ends.at(id)) {
        packer.add_sentence(length);
        length = 0;
      }
    }
  }
  if (length > 0) {
    packer.add_sentence(length);
  }
  return packer.finish();
}

std::int64_t hidden_count(std::int64_t length, std::uint64_t row_seed) {
  const double expected = static_cast<double>(config::kMaskedPercent * length) / 100.0;
  const double wanted = std::floor(expected + uniform(mix(row_seed, "count")));
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(wanted), 1, length);
}

MaskedRow mask_row(const std::vector<std::int32_t>& tokens, const MaskingTokens& ids, std::uint64_t row_seed) {
  MaskedRow row;
  row.tokens.push_back(ids.separator);
  row.tokens.insert(row.tokens.end(), tokens.begin(), tokens.end());
  row.tokens.push_back(ids.separator);
  row.hidden.assign(row.tokens.size(), -1);
  const auto length = static_cast<std::int64_t>(tokens.size());
  const std::uint64_t kind_seed = mix(row_seed, "kind"), word_seed = mix(row_seed, "word");
  for (const std::int64_t place : chosen_places(length, hidden_count(length, row_seed), row_seed)) {
    std::int64_t& token = row.tokens[static_cast<std::size_t>(place + 1)];
    row.hidden[static_cast<std::size_t>(place + 1)] = token;
    const double kind = uniform(mix(kind_seed, static_cast<std::uint64_t>(place)));
    if (kind < kMasked) {
      token = ids.mask;
    } else if (kind < kMasked + kReplaced) {
      Random draw(mix(word_seed, static_cast<std::uint64_t>(place)));
      token = static_cast<std::int64_t>(draw.below(static_cast<std::uint64_t>(ids.words)));
    }
  }
  return row;
}

}  // namespace headroom::tasks
