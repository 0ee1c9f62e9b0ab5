// The papers' own cost tables, row by row, next to what this library computes for the same model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace headroom::cost {

// One printed figure.
struct PaperFigure {
  std::string row;       // the model as the paper calls it
  std::string quantity;  // "attention_macs" or "attention_memory" (paper_cost(), per layer and sequence), "parameters",
                         // "macs", "extra_parameters", "operations", ...
  std::string printed;   // "453.4M", "2.6%"
  std::variant<std::int64_t, double> computed;  // a count, or a ratio: 0.026
  bool agrees = false;                          // `computed`, brought to the printed digits, is `printed`
  bool derivable = true;  // false: the paper does not say enough; `computed` is then our own accounting, or 0
  std::string reason;     // why it is not derivable or does not agree; also what is to be known of it
};

// The tables of `paper`. The models are the shipped recipes.
//   switchhead  SwitchHead draft, Tables 2, 3, 5 (the same figures in SwitchHead)
//   moa         Tables 1 to 3, Eq. 18-20
//   dcmha       Tables 2, 3, 6 to 8, 10
//   mgk         App. B, the sizes of its language models, Table 6
// Throws UserError for other names, and when a recipe is missing.
std::vector<PaperFigure> paper_figures(std::string_view paper);

// How printed digits came about: rounded to the nearest, or cut off.
enum class Digits { nearest, cut };

// Whether `computed` gives `printed`: digits with or without a decimal point, then nothing, K, M, G or T.
// Throws UserError when `printed` is no such figure.
bool rounds_to(std::int64_t computed, std::string_view printed, Digits digits = Digits::nearest);

// Whether `ratio` rounds to `printed`: "2.6%", or a plain number such as "1.03".
bool ratio_rounds_to(double ratio, std::string_view printed);

// "512", "47.3K", "170.4M", "5.4G": one decimal from a thousand on, halves rounded up.
std::string short_count(std::int64_t count);

}  // namespace headroom::cost
