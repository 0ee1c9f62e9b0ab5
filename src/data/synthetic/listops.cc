#include "listops.h"

#include <array>
#include <utility>

#include "data/text/table.h"
#include "headroom/core/error.h"

namespace headroom::data::listops {

namespace {

constexpr std::pair<std::string_view, std::uint16_t> kOperators[] = {
    {"[MIN", kMin}, {"[MAX", kMax}, {"[MED", kMed}, {"[SM", kSm}};
constexpr std::size_t kDigits = 10;

// An operator whose arguments are being read. Digit counts suffice to evaluate every operator.
struct OpenOperator {
  std::uint16_t symbol = 0;
  std::array<std::uint32_t, kDigits> counts{};
  std::uint64_t n = 0;

  void take(int value) {
    ++counts[static_cast<std::size_t>(value)];
    ++n;
  }
  // Returns the argument at a position in sorted order.
  int at(std::uint64_t place) const {
    int digit = 0;
    for (std::uint64_t before = counts[0]; before <= place; before += counts[static_cast<std::size_t>(digit)]) {
      ++digit;
    }
    return digit;
  }
  int value() const {
    std::uint64_t sum = 0;
    for (std::size_t digit = 0; digit < kDigits; ++digit) {
      sum += digit * counts[digit];
    }
    switch (symbol) {
      case kMin:
        return at(0);
      case kMax:
        return at(n - 1);
      case kMed:
        return (at((n - 1) / 2) + at(n / 2)) / 2;
      default:
        return static_cast<int>(sum % kDigits);
    }
  }
};

// Words are separated by spaces; brackets and parentheses need no space around them.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<std::uint16_t> parse() {
    while ((at_ = text_.find_first_not_of(" \t\r", at_)) != std::string_view::npos) {
      step();
    }
    if (parentheses_ > 0 || !arguments_.empty()) {
      user_error("unbalanced: {} of the brackets are never closed", parentheses_ + std::ssize(arguments_));
    }
    if (symbols_.empty()) {
      user_error("holds no expression");
    }
    return std::move(symbols_);
  }

 private:
  void step() {
    const char c = text_[at_];
    if (c == '(') {
      ++parentheses_;
      ++at_;
    } else if (c == ')') {
      if (--parentheses_ < 0) {
        user_error("unbalanced: the \")\" in column {} closes nothing", at_ + 1);
      }
      ++at_;
    } else if (c == ']') {
      close();
      ++at_;
    } else {
      word(text_.substr(at_, text_.find_first_of(" \t\r()[]", at_ + 1) - at_));
    }
  }

  void close() {
    if (arguments_.empty()) {
      user_error("unbalanced: the \"]\" in column {} closes nothing", at_ + 1);
    }
    if (arguments_.back() == 0) {
      user_error("the operator that ends in column {} has no arguments", at_ + 1);
    }
    arguments_.pop_back();
    symbols_.push_back(kEnd);
  }

  void word(std::string_view word) {
    if (arguments_.empty() && !symbols_.empty()) {
      user_error("the expression ends before column {}, and another begins there", at_ + 1);
    }
    if (!arguments_.empty()) {
      ++arguments_.back();
    }
    if (word.size() == 1 && word[0] >= '0' && word[0] <= '9') {
      symbols_.push_back(static_cast<std::uint16_t>(kDigit + (word[0] - '0')));
    } else {
      symbols_.push_back(operator_of(word));
      arguments_.push_back(0);
    }
    at_ += word.size();
  }

  std::uint16_t operator_of(std::string_view word) const {
    for (const auto& [name, symbol] : kOperators) {
      if (word == name) {
        return symbol;
      }
    }
    constexpr std::size_t kShown = 20;
    user_error("column {} must hold a digit, \"[MIN\", \"[MAX\", \"[MED\", \"[SM\" or \"]\", got \"{}\"", at_ + 1,
               word.substr(0, kShown));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::int64_t parentheses_ = 0;          // number of open parentheses
  std::vector<std::uint32_t> arguments_;  // argument count of each open operator (a stack)
  std::vector<std::uint16_t> symbols_;
};

}  // namespace

std::vector<std::uint16_t> parse(std::string_view text) {
  return Parser(text).parse();
}

int evaluate(std::span<const std::uint16_t> symbols) {
  std::vector<OpenOperator> open;
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    const std::uint16_t symbol = symbols[i];
    int value = symbol - kDigit;
    if (symbol >= kMin && symbol <= kSm) {
      open.push_back({.symbol = symbol});
      continue;
    }
    if (symbol == kEnd && !open.empty() && open.back().n > 0) {
      value = open.back().value();
      open.pop_back();
    } else if (symbol < kDigit || symbol >= kMin) {
      break;
    }
    if (!open.empty()) {
      open.back().take(value);
    } else if (i + 1 == symbols.size()) {
      return value;
    } else {
      break;
    }
  }
  fail("ListOps: the symbols are not an expression");
}

std::string to_text(std::span<const std::uint16_t> symbols) {
  std::string text;
  for (const std::uint16_t symbol : symbols) {
    text += text.empty() ? "" : " ";
    if (symbol >= kMin && symbol <= kSm) {
      text += kOperators[symbol - kMin].first;
    } else {
      text += symbol == kEnd ? ']' : static_cast<char>('0' + (symbol - kDigit));
    }
  }
  return text;
}

LabelledSequences read(const std::vector<std::string>& patterns, const Reading& reading) {
  LabelledSequences read;
  std::size_t label = 0;
  RowUse use{.header = {}, .row = {}, .skip_bad_rows = reading.skip_bad_rows};
  use.header = [&](const std::vector<std::string>& row) {
    const bool turned = row.size() == 2 && row[0] == "Source" && row[1] == "Target";
    label = turned ? 1 : 0;
    return turned;
  };
  use.row = [&](const std::vector<std::string>& row) {
    if (row.size() != 2) {
      user_error("must be a label, a tab and an expression, got {} columns", row.size());
    }
    const std::int64_t value = parse_index(row[label], kClasses, "the label");
    const std::vector<std::uint16_t> symbols = parse(row[1 - label]);
    if (std::ssize(symbols) > reading.most_symbols) {
      user_error("the expression has {} symbols, more than model.context_length = {}", symbols.size(),
                 reading.most_symbols);
    }
    read.first.add(symbols);
    read.labels.push_back(static_cast<std::int32_t>(value));
  };
  for_each_row(patterns, use);
  return read;
}

}  // namespace headroom::data::listops
