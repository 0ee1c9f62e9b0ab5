// Finds added tokens, such as "<|endoftext|>" or runs of spaces, in a text before it is split into words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace headroom::tokenizers {

// A trie of the tokens' contents.
class AddedTokens {
 public:
  // `content` must not be empty. If the same content is added twice, the last id is used.
  void add(std::string_view content, std::int32_t id) {
    begins_[static_cast<unsigned char>(content.front())] = true;
    std::size_t node = 0;
    for (const char byte : content) {
      const auto [child, is_new] = children_.try_emplace(key(node, byte), nodes_.size());
      if (is_new) {
        nodes_.push_back(-1);
      }
      node = child->second;
    }
    nodes_[node] = id;
  }

  bool empty() const { return nodes_.size() == 1; }

  struct Found {
    std::size_t begin = 0, end = 0;
    std::int32_t id = -1;  // -1: none found
  };
  // Returns the leftmost token from `at` on; of the tokens that begin there, the longest.
  Found find(std::string_view text, std::size_t at) const {
    for (; at < text.size(); ++at) {
      if (!begins_[static_cast<unsigned char>(text[at])]) {
        continue;
      }
      Found found;
      std::size_t node = 0;
      for (std::size_t i = at; i < text.size(); ++i) {
        const auto child = children_.find(key(node, text[i]));
        if (child == children_.end()) {
          break;
        }
        node = child->second;
        if (nodes_[node] >= 0) {
          found = {at, i + 1, nodes_[node]};
        }
      }
      if (found.id >= 0) {
        return found;
      }
    }
    return {text.size(), text.size(), -1};
  }

 private:
  static std::uint64_t key(std::size_t node, char byte) {
    return static_cast<std::uint64_t>(node) << 8 | static_cast<unsigned char>(byte);
  }
  std::vector<std::int32_t> nodes_ = {-1};                   // id of the token that ends at each node
  std::unordered_map<std::uint64_t, std::size_t> children_;  // (node, next byte) to child node
  bool begins_[256] = {};                                    // first bytes of all tokens
};

}  // namespace headroom::tokenizers
