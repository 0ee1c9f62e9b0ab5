// Labelled sequences of tokens in memory: what classifiers are trained and measured on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace headroom::data {

// Sequences one after the other.
class Sequences {
 public:
  void add(std::span<const std::uint16_t> tokens);
  std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()); }
  std::span<const std::uint16_t> at(std::int64_t i) const;
  std::int64_t length(std::int64_t i) const { return static_cast<std::int64_t>(at(i).size()); }

 private:
  std::vector<std::uint16_t> tokens_;
  std::vector<std::size_t> ends_;
};

// Examples with the number of their class; of pairs, the second sequences are in `second`.
struct LabelledSequences {
  Sequences first, second;
  std::vector<std::int32_t> labels;

  std::int64_t size() const { return first.size(); }
  // Of the longer one of a pair.
  std::int64_t length(std::int64_t i) const;
  // "20000 examples, 9c41...": how many, and a hash of all of them.
  std::string identity() const;
};

}  // namespace headroom::data
