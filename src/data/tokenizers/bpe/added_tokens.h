// Tokens that are looked for in the text itself, before it is cut into words: "<|endoftext|>", runs of blanks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace headroom::tokenizers {

class AddedTokens {
 public:
  // `content` is not empty; the last one of equal contents counts.
  void add(std::string_view content, std::int32_t id);
  bool empty() const { return nodes_.size() == 1; }

  // The token that begins first at or after `at`, of those the longest; id -1: none.
  struct Found {
    std::size_t begin = 0, end = 0;
    std::int32_t id = -1;
  };
  Found find(std::string_view text, std::size_t at) const;

 private:
  static std::uint64_t key(std::size_t node, char byte) {
    return static_cast<std::uint64_t>(node) << 8 | static_cast<unsigned char>(byte);
  }
  std::vector<std::int32_t> nodes_ = {-1};                   // the id of the token that ends at a node of the tree
  std::unordered_map<std::uint64_t, std::size_t> children_;  // of a node by the next byte
  bool begins_[256] = {};                                    // whether a token begins with a byte
};

}  // namespace headroom::tokenizers
