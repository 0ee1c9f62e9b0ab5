// ListOps (Nangia and Bowman): nested lists of digits under MIN, MAX, MED and SM; the class is the expression's value.
//
// Text format: "[MAX 4 [SM 7 5 ] 1 ]". The published files also have parentheses, which are redundant and ignored.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/labelled_text.h"
#include "headroom/config/run_options.h"

namespace headroom::data::listops {

// Padding is 0, the digits 0..9 are 1..10, the operators with their opening bracket 11..14, the closing bracket is 15.
inline constexpr std::uint16_t kPadding = 0, kDigit = 1, kMin = 11, kMax = 12, kMed = 13, kSm = 14, kEnd = 15;
inline constexpr std::int64_t kVocabulary = 16, kClasses = 10;

// Parses an expression into symbols. Throws UserError naming the column of an unknown word, of unbalanced brackets or
// parentheses, of an operator without arguments, or of a second expression. Not recursive: only memory limits the
// nesting depth.
std::vector<std::uint16_t> parse(std::string_view text);

// Returns the value of an expression, 0 to 9. MED is the median; for an even number of values it is the mean of the
// middle two, rounded down. SM is the sum modulo 10. Throws Error unless `symbols` is a result of parse().
int evaluate(std::span<const std::uint16_t> symbols);

std::string to_text(std::span<const std::uint16_t> symbols);

struct Generated {
  LabelledSequences train, validation;
};

// Generates the examples of options.generator and generator_seed. No example occurs twice, not even across the splits.
// Depth is the number of tree levels, including the digits.
//   listops       as in SwitchHead's analysis: at most 50 symbols, depth 2 to 6, 2 to 5 arguments; each argument is an
//                 operator with probability 0.3
//   listops_long  as in the Long Range Arena: 500 to 2000 symbols, depth up to 10, 2 to 10 arguments, probability 0.25
// The validation split does not depend on generated_train. Without `with_train` the training split is left empty. Shows
// progress. Throws InterruptedError on Ctrl-C, and UserError if the distribution has too few distinct examples.
Generated generate(const config::DataOptions& options, bool with_train = true);

struct Reading {
  std::int64_t most_symbols = 0;  // maximum number of symbols per expression
  bool skip_bad_rows = false;     // skip bad rows and log a warning with their number
};

// Reads lines "label<TAB>expression" from files, which may be gzip or zstd. A first line "Source<TAB>Target" swaps the
// columns, as in the files of the Long Range Arena. Empty lines are skipped. Throws UserError naming file and line.
LabelledSequences read(const std::vector<std::string>& patterns, const Reading& reading);

}  // namespace headroom::data::listops
