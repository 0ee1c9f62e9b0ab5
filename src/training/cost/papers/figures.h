// Compares each cost figure printed in the papers with the value that this library computes for the same model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "headroom/config/model_options.h"
#include "headroom/core/exact.h"

namespace headroom::cost {

// One printed figure.
struct PaperFigure {
  std::string row;       // the model as the paper calls it
  std::string quantity;  // "attention_macs" or "attention_memory" (paper_cost(), per layer and sequence), "parameters",
                         // "macs", "extra_parameters", "operations", ...
  std::string printed;   // "453.4M", "2.6%"
  std::variant<std::int64_t, double> computed;  // a count, or a ratio: 0.026
  bool agrees = false;                          // `computed`, rounded to the printed digits, equals `printed`
  bool derivable = true;  // false: the paper does not say enough; `computed` is then our own accounting, or 0
  std::string reason;     // why it is not derivable or does not agree; may also be a remark
};

// Returns the figures in the tables of `paper`, computed for the shipped recipes.
//   switchhead  SwitchHead draft, Tables 2, 3, 5 (the published paper has the same figures)
//   moa         Tables 1 to 3, Eq. 18-20
//   dcmha       Tables 2, 3, 6 to 8, 10
//   mgk         App. B, the size of a language model, Table 6
// Throws UserError for any other name, or if a recipe is missing.
std::vector<PaperFigure> paper_figures(std::string_view paper);

// How the digits of a printed figure were obtained: rounded to nearest, or truncated.
enum class Digits { nearest, cut };

// Returns whether `computed` rounds to `printed`, a decimal number with an optional suffix K, M, G or T. Throws
// UserError if `printed` has another form.
bool rounds_to(std::int64_t computed, std::string_view printed, Digits digits = Digits::nearest);

// Returns whether `ratio` rounds to `printed`: "2.6%", or a plain number such as "1.03".
bool ratio_rounds_to(double ratio, std::string_view printed);

// Formats a count as "512", "47.3K", "170.4M" or "5.4G": one decimal from 1,000 up; halves round up.
std::string short_count(std::int64_t count);

namespace detail {

using Figures = std::vector<PaperFigure>;

Figures switchhead_figures();
Figures moa_figures();
Figures dcmha_figures();
Figures mgk_figures();

// Returns the model of a shipped recipe with `changes` applied.
config::ModelOptions model_of(const std::string& recipe, const std::vector<std::string>& changes = {});

// Returns the number of parameters in the first attention layer.
Exact attention_parameters(const config::ModelOptions& model);

PaperFigure count(std::string row, std::string quantity, std::string printed, Exact computed,
                  Digits digits = Digits::nearest);
PaperFigure ratio(std::string row, std::string quantity, std::string printed, double computed);
// `ours`: the closest count of this library; 0 if there is none.
PaperFigure underivable(std::string row, std::string quantity, std::string printed, std::string reason, Exact ours = 0);
// Returns the figure with `reason` as its remark.
PaperFigure because(PaperFigure figure, std::string reason);

}  // namespace detail
}  // namespace headroom::cost
