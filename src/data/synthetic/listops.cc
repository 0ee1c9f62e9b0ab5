#include "listops.h"

#include <array>
#include <optional>
#include <unordered_set>
#include <utility>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/random.h"
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

namespace {

// The distribution of expressions, and the default split sizes.
struct TreeShapes {
  std::size_t fewest_symbols = 0, most_symbols = 0;
  int fewest_levels = 1, most_levels = 1;
  std::uint64_t fewest_arguments = 2, most_arguments = 2;
  double operators = 0.0;  // probability that an argument is an operator
  std::int64_t train = 0, validation = 0;
};

constexpr TreeShapes kShort = {.fewest_symbols = 1,
                               .most_symbols = 50,
                               .fewest_levels = 2,
                               .most_levels = 6,
                               .fewest_arguments = 2,
                               .most_arguments = 5,
                               .operators = 0.3,
                               .train = 1'000'000,
                               .validation = 1000};
constexpr TreeShapes kLong = {.fewest_symbols = 500,
                              .most_symbols = 2000,
                              .fewest_levels = 1,
                              .most_levels = 10,
                              .fewest_arguments = 2,
                              .most_arguments = 10,
                              .operators = 0.25,
                              .train = 96'000,
                              .validation = 2000};

class TreeGenerator {
 public:
  TreeGenerator(const TreeShapes& distribution, std::uint64_t seed) : distribution_(distribution), random_(seed) {}

  // Draws a tree; returns false if it is too small or too large.
  bool draw(std::vector<std::uint16_t>& symbols) {
    symbols.clear();
    deepest_ = 0;
    return grow(symbols, 1) && symbols.size() >= distribution_.fewest_symbols &&
           deepest_ >= distribution_.fewest_levels;
  }

 private:
  // Appends a random subtree; returns false once the tree is too long.
  bool grow(std::vector<std::uint16_t>& symbols, int level) {
    deepest_ = std::max(deepest_, level);
    if (level == distribution_.most_levels || random_.uniform() >= distribution_.operators) {
      symbols.push_back(static_cast<std::uint16_t>(kDigit + random_.below(kClasses)));
      return symbols.size() <= distribution_.most_symbols;
    }
    symbols.push_back(static_cast<std::uint16_t>(kMin + random_.below(kSm - kMin + 1)));
    const std::uint64_t arguments = distribution_.fewest_arguments +
                                    random_.below(distribution_.most_arguments - distribution_.fewest_arguments + 1);
    for (std::uint64_t i = 0; i < arguments; ++i) {
      if (!grow(symbols, level + 1)) {
        return false;
      }
    }
    symbols.push_back(kEnd);
    return symbols.size() <= distribution_.most_symbols;
  }

  const TreeShapes& distribution_;
  Random random_;
  int deepest_ = 0;
};

// Hash for detecting duplicates. The probability of any collision among a million expressions is below 1e-7.
std::uint64_t hash_of(const std::vector<std::uint16_t>& symbols) {
  std::uint64_t hash = symbols.size();
  for (const std::uint16_t symbol : symbols) {
    hash = mix(hash, symbol);
  }
  return hash;
}

LabelledSequences make(const TreeShapes& distribution, std::uint64_t seed, std::int64_t count,
                       std::unordered_set<std::uint64_t>& seen) {
  constexpr std::int64_t kMostTries = 1'000'000, kOften = 1024, kQuick = 20'000'000;  // about a second's symbols
  TreeGenerator generator(distribution, seed);
  std::optional<Progress> progress;
  if (count > kQuick / static_cast<std::int64_t>(distribution.most_symbols)) {
    progress.emplace("listops", count, "example");
  }
  LabelledSequences made;
  std::vector<std::uint16_t> symbols;
  std::int64_t tries = 0;
  while (made.size() < count) {
    if (generator.draw(symbols) && seen.insert(hash_of(symbols)).second) {
      made.first.add(symbols);
      made.labels.push_back(evaluate(symbols));
      tries = 0;
    } else if (++tries == kMostTries) {
      user_error("data.generator: found only {} different expressions, need {}", seen.size(), count);
    }
    if ((made.size() + tries) % kOften == 0) {
      if (progress) {
        progress->update(made.size());
      }
      if (interrupted()) {
        throw InterruptedError(fmt::format("listops: interrupted after {} of {} examples", made.size(), count));
      }
    }
  }
  return made;
}

}  // namespace

Generated generate(const config::DataOptions& options, bool with_train) {
  if (options.generator != config::Generator::listops && options.generator != config::Generator::listops_long) {
    user_error("data.generator: {} does not generate ListOps", config::name_of(options.generator));
  }
  const TreeShapes& distribution = options.generator == config::Generator::listops ? kShort : kLong;
  const auto count = [](std::int64_t given, std::int64_t published) { return given > 0 ? given : published; };
  const std::uint64_t seed = mix(static_cast<std::uint64_t>(options.generator_seed), "listops");
  std::unordered_set<std::uint64_t> seen;
  Generated made;
  made.validation =
      make(distribution, mix(seed, "validation"), count(options.generated_validation, distribution.validation), seen);
  if (with_train) {
    made.train = make(distribution, mix(seed, "train"), count(options.generated_train, distribution.train), seen);
  }
  return made;
}

}  // namespace headroom::data::listops
