// What several analyses ask of a model's layers.
//
// Letters: B rows, T queries, S keys, H heads, w width of a head's result, d d_model, E experts, K chosen.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <string_view>

#include "foundation/draw/heat_map.h"
#include "reader.h"

namespace headroom::inspect {

// Throws InterruptedError once the user has asked the command to stop.
void stop_if_interrupted();

// "layer3.attention" of "layer3.attention.probs".
std::string layer_of(std::string_view value);
// "probs" of the same.
std::string_view value_of(std::string_view name);

// The value's name of the weights that values are summed with, after all compositions.
inline constexpr std::string_view kFinalWeights = "probs_composed";

// Why a model has no matrices of weights of each query and key; empty: it has.
std::string refuse_without_scores(const config::ModelOptions& options);
// The same for a model that does not read text from left to right.
std::string refuse_all_but_language_models(const config::ModelOptions& options);

// Which experts the queries' tokens took in a layer: "select_out" or "select", [B T, H or 1, K]; undefined where there
// are none.
struct Choice {
  at::Tensor index, weight;
};

// What each head adds to the layer's output, [B, H, T, d]: `o` [B, H, T, w] through its output matrices. They add up to
// the output but for biases.
at::Tensor head_outputs(const Reader& reader, const std::string& layer, const at::Tensor& o, const Choice& choice);

// [d, V]: times a vector of the residual stream, what it adds to the scores of the vocabulary by itself: the output
// matrix, with the final norm's mean and scale where `through_norm`, but for the length that the norm divides by.
at::Tensor direct_matrix(const Reader& reader, bool through_norm);

// Whether a token chooses some heads of many, so that a layer's H counts its choices.
bool chooses_heads(const config::AttentionOptions& options);
// The weight of each head or expert that may be chosen, [n, H, E], of choices [n, H, K].
at::Tensor spread_choice(const Choice& choice, std::int64_t n_experts);

// Keeps what its patterns name, and uses other values in the place of some.
class Replacer : public nn::Recorder {
 public:
  explicit Replacer(std::vector<std::string> patterns) : nn::Recorder(std::move(patterns)) {}
  std::map<std::string, at::Tensor, std::less<>> instead;  // broadcast to the value's shape
  bool wants(std::string_view name) const override;
  at::Tensor observe(std::string_view name, at::Tensor value) override;
};

// A matrix as a picture takes it.
draw::Cells cells_of(const at::Tensor& matrix);
std::vector<double> numbers_of(const at::Tensor& vector);
// The spelling of each of a sequence's tokens [T].
std::vector<std::string> texts_of(const Reader& reader, const at::Tensor& tokens, Side side = Side::target);
// Blanks made visible, for names in charts.
std::string shown(std::string_view token);

// A table: cells are markup, the first column names the row; text begins at the left of its column, numbers end at the
// right.
std::string html_table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows);

}  // namespace headroom::inspect
