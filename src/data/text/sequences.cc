#include "sequences.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/tokens/dataset_id.h"
#include "headroom/core/files.h"

namespace headroom::data {
namespace {

void add_to(Sha256& hash, const Sequences& sequences) {
  for (std::int64_t i = 0; i < sequences.size(); ++i) {
    const std::int64_t length = sequences.length(i);
    hash.update(std::as_bytes(std::span(&length, 1)));
    hash.update(std::as_bytes(sequences.at(i)));
  }
}

}  // namespace

void Sequences::add(std::span<const std::uint16_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  ends_.push_back(tokens_.size());
}

std::span<const std::uint16_t> Sequences::at(std::int64_t i) const {
  const auto place = static_cast<std::size_t>(i);
  const std::size_t begin = place == 0 ? 0 : ends_.at(place - 1);
  return std::span(tokens_).subspan(begin, ends_.at(place) - begin);
}

std::int64_t LabelledSequences::length(std::int64_t i) const {
  return std::max(first.length(i), second.size() > 0 ? second.length(i) : 0);
}

std::string LabelledSequences::identity() const {
  Sha256 hash;
  add_to(hash, first);
  add_to(hash, second);
  hash.update(std::as_bytes(std::span(labels)));
  return fmt::format("{} examples, {}", size(), dataset_id(hash));
}

}  // namespace headroom::data
