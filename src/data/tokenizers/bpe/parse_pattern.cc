// Parses the regular expressions of WordPattern.
#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "word_pattern.h"

namespace headroom::tokenizers {
namespace {

constexpr std::size_t kMostNodes = 1000;  // matching recurses once per node

}  // namespace

// Recursive descent. The last nodes of what has been read are linked to the next one when it is read.
class WordPattern::Parser {
 public:
  Parser(WordPattern& pattern, std::string_view text, std::string_view place)
      : nodes_(pattern.nodes_), text_(text), place_(place) {}

  void parse() {
    nodes_.emplace_back();
    std::vector<int> ends;
    read_choices(0, ends);
    if (at_ < text_.size()) {
      refuse("a ) without a (");
    }
    link(ends, -1);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    user_error("{} has {} at byte {} of the pattern {}, which is not supported", place_, what, at_,
               printable(text_.substr(0, character_boundary(text_, std::min<std::size_t>(text_.size(), 80)))));
  }
  bool take(std::string_view expected) {
    const bool found = text_.substr(at_).starts_with(expected);
    at_ += found ? expected.size() : 0;
    return found;
  }
  char32_t next_character() {
    if (at_ == text_.size()) {
      refuse("an end");
    }
    const CodePoint character = first_code_point(text_.substr(at_));
    at_ += std::max<std::size_t>(character.size, 1);
    return character.code;
  }
  int add(Node node) {
    if (nodes_.size() == kMostNodes) {
      refuse(fmt::format("more than {} parts", kMostNodes));
    }
    nodes_.push_back(std::move(node));
    return static_cast<int>(nodes_.size()) - 1;
  }

  // Reads alternatives up to a ) or the end, as the choices of `group`. Appends their last nodes to `ends`, whose
  // `next` is what follows the group.
  void read_choices(std::size_t group, std::vector<int>& ends) {
    nodes_[group].kind = Kind::any_of;
    do {
      std::vector<int> open = {static_cast<int>(group)};  // nodes whose `next` is the next one of the sequence
      bool first = true;
      if (group == 0) {
        loops_ = groups_ = 0;
      }
      while (at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')') {
        std::vector<int> last;
        const int node = read_item(last);
        if (first) {
          nodes_[group].choices.push_back(node);
        } else {
          link(open, node);
        }
        first = false;
        open = std::move(last);
      }
      if (first) {
        refuse("an empty alternative");
      }
      ends.insert(ends.end(), open.begin(), open.end());
    } while (take("|"));
  }

  void link(const std::vector<int>& open, int node) {
    for (const int one : open) {
      Node& from = nodes_[static_cast<std::size_t>(one)];
      from.next = node;
      if (from.kind == Kind::any_of) {  // an optional group: the last choice is to skip it
        from.choices.push_back(node);
      }
    }
  }

  // Returns the first node of an item. Appends the nodes whose `next` follows it to `last`.
  int read_item(std::vector<int>& last) {
    if (take("(?!") || take("(?=")) {
      const bool negative = text_[at_ - 1] == '!';
      const int node = add({.kind = negative ? Kind::not_followed : Kind::followed, .set = read_set()});
      if (!take(")")) {
        refuse("an assertion about more than one character");
      }
      last.push_back(node);
      return node;
    }
    if (take("$")) {
      last.push_back(add({.kind = Kind::end}));
      return last.back();
    }
    if (take("(")) {
      if (++groups_ > 1) {
        refuse("a second group");
      }
      const bool before = folds_;
      folds_ = take("?i:") || folds_;
      take("?:");
      const int group = add({.kind = Kind::any_of});
      read_choices(static_cast<std::size_t>(group), last);
      if (!take(")")) {
        refuse("a ( without a )");
      }
      folds_ = before;
      if (take("?")) {
        last.push_back(group);
      }
      if (at_ < text_.size() && std::string_view("?*+{").find(text_[at_]) != std::string_view::npos) {
        refuse("a repeated group");
      }
      return group;
    }
    Node node{.set = read_set()};
    read_repetition(node);
    loops_ += node.max == kUnlimited ? 1 : 0;
    if (loops_ > 2) {
      refuse("more than two repetitions without a limit");
    }
    last.push_back(add(std::move(node)));
    return last.back();
  }

  void read_repetition(Node& node) {
    const bool counted = take("{");
    if (counted) {
      node.min = read_number();
      node.max = take(",") ? (text_.substr(at_).starts_with("}") ? kUnlimited : read_number()) : node.min;
      if (!take("}") || node.max < node.min || node.max == 0) {
        refuse("a { without limits");
      }
    } else if (take("?")) {
      node.min = 0;
    } else if (take("*")) {
      node.min = 0;
      node.max = kUnlimited;
    } else if (take("+")) {
      node.max = kUnlimited;
    } else {
      return;
    }
    node.possessive = !counted && take("+");
    if (at_ < text_.size() && std::string_view("?*+{").find(text_[at_]) != std::string_view::npos) {
      refuse("a repetition of a repetition");
    }
  }

  std::size_t read_number() {
    constexpr std::size_t kMost = 1000;
    std::size_t number = 0;
    const std::size_t begin = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && number <= kMost; ++at_) {
      number = number * 10 + static_cast<std::size_t>(text_[at_] - '0');
    }
    if (at_ == begin || number > kMost) {
      refuse("a limit");
    }
    return number;
  }

  Set read_set() {
    Set set;
    if (take("[")) {
      set.negated = take("^");
      do {
        read_member(set, /*in_brackets=*/true);
      } while (!take("]"));
    } else {
      read_member(set, /*in_brackets=*/false);
    }
    for (char32_t code = 0; code < kAsciiEnd; ++code) {
      set.ascii[code] = set.lists(code) != set.negated;
    }
    return set;
  }

  void read_member(Set& set, bool in_brackets) {
    if (take("\\s")) {
      set.spaces = true;
      return;
    }
    if (take("\\p{")) {
      set.categories |= read_category();
      return;
    }
    if (!in_brackets && (take("\\S") || take("\\P{"))) {
      set.negated = true;
      set.spaces = text_[at_ - 1] == 'S';
      set.categories |= set.spaces ? 0 : read_category();
      return;
    }
    const char32_t from = read_literal(in_brackets);
    char32_t to = from;
    if (in_brackets && at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
      ++at_;
      to = read_literal(in_brackets);
      if (to < from) {
        refuse("an empty range");
      }
    }
    set.ranges.emplace_back(from, to);
    if (folds_) {
      add_other_case(set, from, to);
    }
  }

  // Adds the letters that differ from ASCII letters only in case; s and k have one beyond ASCII.
  void add_other_case(Set& set, char32_t from, char32_t to) {
    const auto letter = [](char32_t code) { return (code | 0x20U) >= 'a' && (code | 0x20U) <= 'z'; };
    if (to != from || from >= kAsciiEnd) {
      refuse("case folding beyond single letters of ASCII");
    }
    if (letter(from)) {
      const char32_t other = from ^ 0x20U, lower = from | 0x20U;
      set.ranges.emplace_back(other, other);
      if (lower == 's' || lower == 'k') {
        const char32_t third = lower == 's' ? 0x17f : 0x212a;
        set.ranges.emplace_back(third, third);
      }
    }
  }

  char32_t read_literal(bool in_brackets) {
    const std::size_t begin = at_;
    const char32_t code = next_character();
    if (code == '\\') {
      const char32_t escaped = next_character();
      constexpr std::pair<char32_t, char32_t> kControls[] = {{'r', '\r'}, {'n', '\n'}, {'t', '\t'}, {'f', '\f'}};
      for (const auto& [name, control] : kControls) {
        if (escaped == name) {
          return control;
        }
      }
      const char32_t lower = escaped | 0x20U;
      if ((lower >= 'a' && lower <= 'z') || (escaped >= '0' && escaped <= '9')) {
        at_ = begin;
        refuse("an escape");
      }
      return escaped;
    }
    const bool intersects = code == '&' && text_.substr(at_).starts_with("&");
    if (in_brackets ? code == '[' || code == ']' || intersects
                    : code < kAsciiEnd &&
                          std::string_view(".^$*+?{}[]()|").find(static_cast<char>(code)) != std::string_view::npos) {
      at_ = begin;
      refuse(fmt::format("the symbol {}", static_cast<char>(code)));
    }
    return code;
  }

  // Reads "L}" or "Lu}".
  std::uint32_t read_category() {
    constexpr std::string_view kNames =
        "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZp";  // as utf8proc orders them
    const std::size_t close = text_.find('}', at_);
    const std::string_view name = close == std::string_view::npos ? std::string_view() : text_.substr(at_, close - at_);
    std::uint32_t categories = 0;
    for (std::size_t i = 0; i < kNames.size(); i += 2) {
      if (!name.empty() && kNames.substr(i, 2).starts_with(name)) {
        categories |= 1U << (UTF8PROC_CATEGORY_LU + i / 2);
      }
    }
    if (categories == 0) {
      refuse("a property of characters");
    }
    at_ = close + 1;
    return categories;
  }

  std::vector<Node>& nodes_;
  std::string_view text_, place_;
  std::size_t at_ = 0;
  bool folds_ = false;                  // inside (?i:
  std::size_t loops_ = 0, groups_ = 0;  // of an alternative of the pattern; limited, because matching tries all ways
};

void WordPattern::parse(std::string_view pattern, std::string_view place) {
  Parser(*this, pattern, place).parse();
}

}  // namespace headroom::tokenizers
