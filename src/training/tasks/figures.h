// Results of an evaluation by name, and what each name means: all that reports and comparisons know of a task.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/json.h"
#include "sums.h"

namespace headroom::tasks {

enum class Better { neither, lower, higher };
enum class Shown {
  files,     // where numbers are kept
  table,     // in a comparison's table as well
  headline,  // the one that models are compared by
};

struct FigureKind {
  std::string name;    // "bits_per_byte"
  std::string metric;  // its key in metrics.jsonl and in a run's result: "validation_loss"
  std::string words;   // "bits per byte"
  std::string unit;    // "nats a token"; empty: a pure number
  Better better = Better::lower;
  Shown shown = Shown::files;
  int decimals = 3;
  bool always = true;  // null where there is none, rather than left out
};

// What tasks that predict tokens have in common: the cross-entropy a `token` ("token", "hidden token"), and its
// exponential, "perplexity".
FigureKind loss_kind(const std::string& token);
FigureKind perplexity_kind(Shown shown, const std::string& words = "perplexity");

// "loss_error", in every task: the standard error of the loss, as far as it comes from how much the predictions differ.
// Neighbours of a text are not independent of each other, so it is a lower bound. describe() shows it after the loss.
inline constexpr std::string_view kLossError = "loss_error";
FigureKind loss_error_kind();

// By FigureKind::name.
using Figures = std::map<std::string, double, std::less<>>;

// NaN where there is none.
double figure(const Figures& figures, const std::string& name);
const FigureKind& headline(const std::vector<FigureKind>& kinds);
std::vector<FigureKind> shown_in_tables(const std::vector<FigureKind>& kinds);  // the headline among them

// Of the tasks that predict tokens: "loss", the mean cross-entropy, with its error, and "perplexity".
Figures loss_and_perplexity(const Sums& sums);
// Where the sums tell it.
void add_loss_error(const Sums& sums, Figures& figures);

// How uncertain the loss of a small data set is: "the loss 4.9312 has a standard error of 0.031 from so few
// predictions,
// ..."; empty below kNotableError nats, and where nothing is known.
inline constexpr double kNotableError = 0.01;
std::string uncertainty(const Figures& figures);

// Fills in what follows from other figures, and files do not always hold: "perplexity", of the kinds that have one,
// from "loss".
void complete(Figures& figures, const std::vector<FigureKind>& kinds);

// "loss 5.0519 ± 0.031, perplexity 156.322": in the order of `kinds`.
std::string describe(const Figures& figures, const std::vector<FigureKind>& kinds);

// The figures under their kinds' metric keys, and back; a missing figure becomes null, or is left out
// where it is not always there; null or missing stays missing.
void add_metrics(const Figures& figures, const std::vector<FigureKind>& kinds, Json& object);
Figures read_metrics(const Json& object, const std::vector<FigureKind>& kinds);

}  // namespace headroom::tasks
