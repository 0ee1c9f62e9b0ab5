// Results of an evaluation: sums over the data, and the named figures that a task derives from them. Reports and
// comparisons depend on a task only through its figures.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/json.h"

namespace headroom::tasks {

struct Sum {
  double sum = 0.0;
  std::int64_t count = 0;

  void add(double value, std::int64_t counted = 1);
  bool operator==(const Sum&) const = default;
};

// Sums by name. They are additive over batches, ranks and parts of the data.
using Sums = std::map<std::string, Sum, std::less<>>;

// Sum of the cross-entropies of all predictions, in nats. Present for every task.
inline constexpr std::string_view kCrossEntropy = "cross_entropy";
// Sum of the squared cross-entropies. Missing if the model does not return a loss per prediction.
inline constexpr std::string_view kSquaredCrossEntropy = "squared_cross_entropy";

// Adds `more` to `sums`, name by name. Rounding depends on the order, so bit-identical sums need the same order.
void add(Sums& sums, const Sums& more);

// Returns the sum of that name, or a zero Sum if there is none.
Sum sum_of(const Sums& sums, std::string_view name);
// Returns sum / count; NaN if count is 0.
double mean(const Sums& sums, std::string_view name);
// Returns the standard error of mean(), from the sum of squares: sqrt((mean square - mean^2) / (n - 1)), as if the n
// values were independent. NaN for n < 2, or if the counts differ.
double standard_error(const Sums& sums, std::string_view name, std::string_view squares);

enum class Better { neither, lower, higher };
enum class Shown {
  files,     // in files only
  table,     // also in the table of a comparison
  headline,  // the figure by which models are compared
};

struct FigureKind {
  std::string name;    // "bits_per_byte"
  std::string metric;  // key in metrics.jsonl and in a run's result: "validation_loss"
  std::string words;   // "bits per byte"
  std::string unit;    // "nats per token"; empty if dimensionless
  Better better = Better::lower;
  Shown shown = Shown::files;
  int decimals = 3;
  double range = std::numeric_limits<double>::infinity();  // largest possible value minus the smallest possible one
  bool is_bounded() const { return range < std::numeric_limits<double>::infinity(); }  // values lie in [0, range]
  bool always = true;  // a missing value is written as null; false: omitted
};

// For tasks that predict tokens: the cross-entropy per `token` ("token", "hidden token"), and its exponential.
FigureKind loss_kind(const std::string& token);
FigureKind perplexity_kind(Shown shown, const std::string& words = "perplexity");
// The fraction of correct predictions.
FigureKind accuracy_kind(Shown shown, const std::string& words = "accuracy");

// "loss_error", in every task: the standard error of the loss over its predictions. It is a lower bound, because
// neighbouring tokens are not independent. describe() prints it next to the loss.
inline constexpr std::string_view kLossError = "loss_error";
FigureKind loss_error_kind();

// Values by FigureKind::name.
using Figures = std::map<std::string, double, std::less<>>;

// Returns NaN if the figure is missing.
double figure(const Figures& figures, const std::string& name);
const FigureKind& headline(const std::vector<FigureKind>& kinds);
std::vector<FigureKind> shown_in_tables(const std::vector<FigureKind>& kinds);  // including the headline

// For tasks that predict tokens: "loss", the mean cross-entropy, with its error, and "perplexity".
Figures loss_and_perplexity(const Sums& sums);
// Adds "loss_error" if the sums contain the squares.
void add_loss_error(const Sums& sums, Figures& figures);

// Returns a note on the uncertainty of a loss measured on little data, such as "the loss 4.9312 has a standard error of
// 0.031, ..."; empty if the error is below kNotableError nats or unknown.
inline constexpr double kNotableError = 0.01;
std::string uncertainty(const Figures& figures);

// Adds figures that are derived from others and may be missing from files: "perplexity", from "loss".
void complete(Figures& figures, const std::vector<FigureKind>& kinds);

// Formats the figures in the order of `kinds`: "loss 5.0519 ± 0.031, perplexity 156.322".
std::string describe(const Figures& figures, const std::vector<FigureKind>& kinds);

// Write figures under their metric keys (see FigureKind::always), and read them. null stands for a missing figure.
void add_metrics(const Figures& figures, const std::vector<FigureKind>& kinds, Json& object);
Figures read_metrics(const Json& object, const std::vector<FigureKind>& kinds);

}  // namespace headroom::tasks
