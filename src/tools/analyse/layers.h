// What several analyses need to know of a model's layers.
//
// Shapes: B sequences, T queries, S keys, H heads, w width of a head's output, d d_model, E experts, K selected
// experts.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <string_view>

#include "foundation/draw/heat_map.h"
#include "model_runner.h"

namespace headroom::analyse {

// Throws InterruptedError after Ctrl-C.
void stop_if_interrupted();

// The parts of a value's name, "layer3.attention.probs": "layer3.attention" and "probs".
std::string layer_of(std::string_view value);
std::string_view value_of(std::string_view name);

// The attention weights that multiply the values, after all compositions.
inline constexpr std::string_view kFinalWeights = "probs_composed";

// Why a model has no attention matrices, or does not read text from left to right; empty if it does.
std::string refuse_without_scores(const config::ModelOptions& options);
std::string refuse_all_but_language_models(const config::ModelOptions& options);

// The routed experts of each query: values "select_out" or "select", [B T, H or 1, K]. Undefined in layers without
// experts.
struct RoutedExperts {
  at::Tensor index, weight;
};

// From recorded values of a layer; undefined if there are none.
RoutedExperts routing_of(const nn::Recorder& recorder, const std::string& layer);

// What each head adds to the layer's output, [B, H, T, d]: `o` [B, H, T, w] times the head's output matrices. The sum
// over heads is the output without biases.
at::Tensor head_outputs(const ModelRunner& runner, const std::string& layer, const at::Tensor& o,
                        const RoutedExperts& routing);

// The matrix [d, V] from the residual stream to the logits. `through_norm` includes the scale and the centring of the
// final norm, but not its division.
at::Tensor direct_logit_matrix(const ModelRunner& runner, bool through_norm);

// Whether each token is routed to some of many heads. Then H counts the slots of a token.
bool routes_heads(const config::AttentionOptions& options);
// The weight of each head or expert, 0 if not selected, [n, H, E]. `routing` is [n, H, K].
at::Tensor dense_gates(const RoutedExperts& routing, std::int64_t n_experts);

// Records the values that match its patterns, and replaces those in `instead`.
class Replacer : public nn::Recorder {
 public:
  explicit Replacer(std::vector<std::string> patterns) : nn::Recorder(std::move(patterns)) {}
  std::map<std::string, at::Tensor, std::less<>> instead;  // broadcast to the value's shape
  bool wants(std::string_view name) const override;
  at::Tensor observe(std::string_view name, at::Tensor value) override;
};

draw::Cells cells_of(const at::Tensor& matrix);
std::vector<double> to_vector(const at::Tensor& vector);
// The text of each token of a sequence [T].
std::vector<std::string> token_texts(const ModelRunner& runner, const at::Tensor& tokens,
                                     TextSide side = TextSide::target);
// A token for labels: line ends and tabs as symbols, without its leading blank.
std::string display_text(std::string_view token);

// A titled map in a grid of maps. Its shades range to the largest absolute value.
std::string small_map(draw::HeatMap map, const at::Tensor& values);
// An HTML table. Cells are markup; columns of numbers are right-aligned.
std::string html_table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows);

}  // namespace headroom::analyse
