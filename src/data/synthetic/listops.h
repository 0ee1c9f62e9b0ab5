// ListOps (Nangia and Bowman): nested lists of digits under MIN, MAX, MED and SM, whose value is the class.
//
// An expression in text is "[MAX 4 [SM 7 5 ] 1 ]"; the published files also have parentheses, which say nothing new and
// are no symbols.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/sequences.h"
#include "headroom/config/run_options.h"

namespace headroom::data::listops {

// Padding is 0, the digits 0..9 are 1..10, the operators with their opening bracket 11..14, the closing bracket is 15.
inline constexpr std::uint16_t kPadding = 0, kDigit = 1, kMin = 11, kMax = 12, kMed = 13, kSm = 14, kEnd = 15;
inline constexpr std::int64_t kVocabulary = 16, kClasses = 10;

// Throws UserError saying what is wrong at which column: an unknown word, brackets or parentheses that do not match,
// an operator without arguments, more than one expression. Nesting costs memory, not stack.
std::vector<std::uint16_t> parse(std::string_view text);

// MIN, MAX; MED: the median, of an even number of values the mean of the middle two rounded down; SM: the sum modulo
// 10. `symbols` as parse() returns them: throws Error for anything else.
int evaluate(std::span<const std::uint16_t> symbols);

std::string to_text(std::span<const std::uint16_t> symbols);

struct Generated {
  LabelledSequences train, validation;
};

// What the options' generator and generator_seed give; no example comes twice, in either split. Depth counts the levels
// of a tree, digits included.
//   listops       as in SwitchHead's analysis: at most 50 symbols, depth 2 to 6, 2 to 5 arguments, each an operator
//                 with probability 0.3
//   listops_long  as in the Long Range Arena: 500 to 2000 symbols, depth up to 10, 2 to 10 arguments, 0.25
// The validation split does not depend on generated_train, and `with_train` false leaves the other empty. Shows
// progress; throws Error on Ctrl-C, UserError when no more examples can be found.
Generated generate(const config::DataOptions& options, bool with_train = true);

struct Reading {
  std::int64_t most_symbols = 0;  // of an expression
  bool skip_bad_rows = false;     // they are counted, and a warning says so
};

// Files of lines "label<TAB>expression", also gzip; a first line "Source<TAB>Target" swaps the columns, as in the
// Long Range Arena's files. Empty lines are skipped. Throws UserError naming file and line.
LabelledSequences read(const std::vector<std::string>& patterns, const Reading& reading);

}  // namespace headroom::data::listops
