#include "added_tokens.h"

namespace headroom::tokenizers {

void AddedTokens::add(std::string_view content, std::int32_t id) {
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

AddedTokens::Found AddedTokens::find(std::string_view text, std::size_t at) const {
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

}  // namespace headroom::tokenizers
