#include "word_pattern.h"

#include <utf8proc.h>

#include <algorithm>

#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"

namespace headroom::tokenizers {
namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  CodePoint character = first < kAsciiEnd ? CodePoint{first, 1} : first_code_point(text.substr(at));
  character.size = std::max<std::size_t>(character.size, 1);
  return character;
}

std::size_t begin_of_last(std::string_view text, std::size_t end) {
  do {
    --end;
  } while (end > 0 && continues_character(text[end]));
  return end;
}

}  // namespace

bool WordPattern::Set::lists(char32_t code) const {
  const auto bit = static_cast<unsigned>(utf8proc_category(static_cast<utf8proc_int32_t>(code)));
  return (categories >> bit & 1U) != 0 || (spaces && is_white_space(code)) ||
         std::ranges::any_of(ranges, [&](const auto& range) { return range.first <= code && code <= range.second; });
}

bool WordPattern::Set::contains(char32_t code) const {
  return code < kAsciiEnd ? ascii[code] : lists(code) != negated;
}

WordPattern::WordPattern(std::string_view pattern, std::string_view place) {
  parse(pattern, place);
  if (matches_nothing(0, /*if_asserted=*/true)) {
    user_error("{} has a pattern that can match nothing, which is not supported: {}", place, printable(pattern));
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    std::vector<int> after;
    if (nodes_[i].kind == Kind::set) {
      add_first(nodes_[i].next, after);
      if (nodes_[i].max > 1) {
        after.push_back(static_cast<int>(i));
      }
    }
    for (const int node : after) {
      follows_.emplace_back(static_cast<int>(i), node);
    }
  }
  for (const int choice : nodes_[0].choices) {
    std::vector<int> first;
    add_first(choice, first);
    for (std::size_t code = 0; code < kAsciiEnd; ++code) {
      if (std::ranges::any_of(first, [&](int one) {
            const Node& node = nodes_[static_cast<std::size_t>(one)];
            return node.kind != Kind::set || node.set.ascii[code];
          })) {
        choices_[code].push_back(choice);
      }
    }
  }
}

// Appends the nodes that can be the first to look at a character from node `index` on.
void WordPattern::add_first(int index, std::vector<int>& nodes) const {
  if (index < 0) {
    return;
  }
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  if (node.kind == Kind::any_of) {
    for (const int choice : node.choices) {
      add_first(choice, nodes);
    }
    return;
  }
  nodes.push_back(index);
  if (node.kind == Kind::set && node.min == 0) {
    add_first(node.next, nodes);
  }
}

bool WordPattern::matches_nothing(int index, bool if_asserted) const {
  if (index < 0) {
    return true;
  }
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  if (node.kind == Kind::any_of) {
    return std::ranges::any_of(node.choices, [&](int one) { return matches_nothing(one, if_asserted); });
  }
  return (node.kind == Kind::set ? node.min == 0 : if_asserted) && matches_nothing(node.next, if_asserted);
}

bool WordPattern::matches_alone(int index, char32_t code) const {
  if (index < 0) {
    return false;
  }
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  if (node.kind == Kind::any_of) {
    return std::ranges::any_of(node.choices, [&](int one) { return matches_alone(one, code); });
  }
  if (node.kind != Kind::set) {
    return false;
  }
  const bool contains = node.set.contains(code);
  return (contains && node.min <= 1 && matches_nothing(node.next, /*if_asserted=*/false)) ||
         (node.min == 0 && !(node.possessive && contains) && matches_alone(node.next, code));
}

bool WordPattern::can_join(char32_t first, char32_t second) const {
  return std::ranges::any_of(follows_, [&](const std::pair<int, int>& pair) {
    const Node& before = nodes_[static_cast<std::size_t>(pair.first)];
    const Node& after = nodes_[static_cast<std::size_t>(pair.second)];
    return before.set.contains(first) && (after.kind != Kind::set || after.set.contains(second));
  });
}

std::size_t WordPattern::match(int index, std::string_view text, std::size_t at) const {
  while (index >= 0) {
    const Node& node = nodes_[static_cast<std::size_t>(index)];
    switch (node.kind) {
      case Kind::any_of:
        for (const int choice : node.choices) {
          if (const std::size_t end = match(choice, text, at); end != kNowhere) {
            return end;
          }
        }
        return kNowhere;
      case Kind::followed:
      case Kind::not_followed:
        if ((at < text.size() && node.set.contains(code_point_at(text, at).code)) != (node.kind == Kind::followed)) {
          return kNowhere;
        }
        break;
      case Kind::end:  // also in front of a line end
        if (at < text.size() && text[at] != '\n') {
          return kNowhere;
        }
        break;
      case Kind::set: {
        std::size_t count = 0, end = at;
        for (; end < text.size() && count < node.max; ++count) {
          const CodePoint character = code_point_at(text, end);
          if (!node.set.contains(character.code)) {
            break;
          }
          end += character.size;
        }
        if (count < node.min) {
          return kNowhere;
        }
        for (; !node.possessive && count > node.min && node.next >= 0; --count) {
          if (const std::size_t found = match(node.next, text, end); found != kNowhere) {
            return found;
          }
          end = begin_of_last(text, end);
        }
        at = end;
        break;
      }
    }
    index = node.next;
  }
  return at;
}

std::size_t WordPattern::find(std::string_view text, std::size_t at, std::size_t& start) const {
  const Node& first = nodes_[static_cast<std::size_t>(nodes_[0].choices.front())];
  const bool loops = nodes_[0].choices.size() == 1 && first.kind == Kind::set && first.max == kUnlimited;
  while (at < text.size()) {
    const auto byte = static_cast<unsigned char>(text[at]);
    for (const int choice : byte < kAsciiEnd ? choices_[byte] : nodes_[0].choices) {
      if (const std::size_t end = match(choice, text, at); end != kNowhere) {
        start = at;
        return end;
      }
    }
    // A repetition that fails from its first character on also fails from any later one.
    do {
      const CodePoint character = code_point_at(text, at);
      at += character.size;
      if (!loops || !first.set.contains(character.code)) {
        break;
      }
    } while (at < text.size() && first.set.contains(code_point_at(text, at).code));
  }
  return kNowhere;
}

WordSplitter::WordSplitter(const std::vector<std::string>& patterns, std::string_view place) {
  for (const std::string& pattern : patterns) {
    patterns_.emplace_back(pattern, place);
  }
}

bool WordSplitter::ends_word(std::string_view text, std::size_t at) const {
  if (std::string_view(" \t\r\n").find(text[at]) == kNowhere) {
    return false;
  }
  const char32_t before = code_point_at(text, begin_of_last(text, at)).code;
  const auto after = static_cast<unsigned char>(text[at]);
  return std::ranges::none_of(patterns_, [&](const WordPattern& one) { return one.can_join(before, after); }) &&
         std::ranges::any_of(patterns_, [&](const WordPattern& one) {
           return one.always_matches(before) || one.always_matches(after);
         });
}

}  // namespace headroom::tokenizers
