// Forward passes of a trained model of any kind that reads tokens, and the input texts of analyses.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "foundation/draw/charts.h"
#include "headroom/models/model.h"
#include "headroom/nn/observer.h"
#include "headroom/store/open_model.h"

namespace headroom::analyse {

// The input of one forward pass: B sequences of T tokens, without padding.
struct InputBatch {
  at::Tensor tokens;    // [B, T] int64; encoder-decoder: the source; classifier of pairs: the first text
  at::Tensor target;    // [B, U] int64; encoder-decoder: the decoder's input; classifier of pairs: the second text
  bool sample = false;  // a single sequence, whose pair values are computed
  std::int64_t sample_index = 0;
  std::int64_t n_tokens() const { return tokens.numel() + (target.defined() ? target.numel() : 0); }
};

// Selects a tokenizer of a translation model. Other models have one tokenizer and ignore the side.
enum class TextSide { source, target };

struct AttentionLayer {
  std::string name;    // "layer3.attention", "decoder.layer0.cross": the prefix of its values and parameters
  std::int64_t layer;  // index within its stack
  bool cross = false;
  bool encoder = false;  // part of the encoder of an encoder-decoder
};

// Returns the tokenizer of the checkpoint or, for a classifier, of its task. Null for image models.
std::shared_ptr<const tokenizers::Tokenizer> tokenizer_of(const store::OpenedModel& opened);

// Returns a token's text as it appears inside a sentence, with its leading blank. Invalid UTF-8 bytes are written as
// \xE2. A token that decodes to nothing is written as "<s>", "</s>" or its id, as in "<7>".
std::string token_text(const tokenizers::Tokenizer& tokenizer, std::int64_t id);

// `opened` must outlive the runner and its copies.
class ModelRunner {
 public:
  explicit ModelRunner(const store::OpenedModel& opened);
  // Restricts the runner to these layers: attention_layers() returns only them, and options() returns `options`.
  ModelRunner(const store::OpenedModel& opened, std::vector<std::int64_t> layers, config::ModelOptions options);

  const std::string& name() const { return opened_->name; }
  const config::ModelOptions& options() const { return options_; }
  bool includes(std::int64_t layer) const;
  const models::Model& model() const { return *opened_->model; }
  const tokenizers::Tokenizer& tokenizer() const { return *tokenizer_; }
  const tokenizers::Tokenizer& tokenizer(TextSide side) const {
    return side == TextSide::source ? tokenizer().for_sources() : tokenizer().for_targets();
  }
  const nn::Context& context() const { return opened_->context; }
  at::Tensor find_parameter(std::string_view parameter) const;  // undefined if there is no parameter of this name
  at::Tensor parameter(std::string_view parameter) const;       // throws Error if there is none
  std::vector<AttentionLayer> attention_layers() const;

  // Runs one pass without gradients; reads and updates `memory`. Skips the output layer of a language model.
  void forward(const InputBatch& input, models::Memory& memory, nn::Observer& observer) const;
  // Returns the logits [B, T, V], or [B, C] for a classifier, computed without memory. `observer` may be null.
  at::Tensor logits(const InputBatch& input, nn::Observer* observer) const;

  std::string token_text(std::int64_t id, TextSide side = TextSide::target) const {
    return analyse::token_text(tokenizer(side), id);
  }

 private:
  const store::OpenedModel* opened_;
  config::ModelOptions options_;
  std::vector<std::int64_t> layers_;  // empty: all
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
};

// The text to run a model on: `text` if not empty, else the file `data` if not empty, else the start of the run's
// validation data. `data` has the format of the run's validation data. For a translation model or a classifier, `text`
// has one example per line; a tab separates source and target, or the two texts of a pair.
struct TextInput {
  std::string text, data;
  std::string name() const { return !text.empty() ? "--text" : data.empty() ? "the run's validation data" : data; }
};

class InputText {
 public:
  virtual ~InputText() = default;
  virtual std::int64_t samples() const = 0;  // number of single sequences
  virtual std::int64_t tokens() const = 0;   // in the whole text
  // Returns sequence i and sets `memory` to the state after the preceding tokens.
  virtual InputBatch sample(std::int64_t i, models::Memory& memory) const = 0;
  // Calls `use` for the whole text in batches, each with the memory of the preceding tokens.
  using UseBatch = std::function<void(const InputBatch& input, models::Memory& memory)>;
  virtual void for_each_batch(const UseBatch& use) const = 0;
};

// Throws UserError if the text has no tokens or its files cannot be read.
std::unique_ptr<InputText> open_text(const store::OpenedModel& opened, const TextInput& source);

// Layer helpers shared by several analyses.
//
// Shapes: B sequences, T queries, S keys, H heads, w width of a head's output, d d_model, E experts, K selected
// experts.

// Throws InterruptedError after Ctrl-C.
void stop_if_interrupted();

// Splits the name of a value: "layer3.attention.probs" into "layer3.attention" and "probs".
std::string layer_of(std::string_view value);
std::string_view value_of(std::string_view name);
// Returns the number of the layer: 3 in "encoder.layer3.ffn.select".
std::int64_t layer_index(std::string_view name);

// Returns the name of the attention weights that multiply the values, after all compositions.
std::string_view weights_value(const config::AttentionOptions& options);
// Returns the attention matrices [.., T, S] of a value of that name. Linear attention may scale its weights, so each of
// its rows is divided by its sum.
at::Tensor attention_matrices(const at::Tensor& weights, const config::AttentionOptions& options);

std::string applies_always(const config::ModelOptions& options);  // a refusal that is always empty
// Refuses models whose queries, keys and values are not projected by one matrix per head.
std::string refuse_without_head_matrices(const config::ModelOptions& options);
// Returns the reason why a model does not read text from left to right; empty if it does.
std::string refuse_all_but_language_models(const config::ModelOptions& options);

// Returns the routed experts of each query: values "select_out" or "select", [B T, H, K] of H routers. Undefined in
// layers without experts.
struct RoutedExperts {
  at::Tensor index, weight;
};

// Reads the routing from a layer's recorded values; undefined if there is none.
RoutedExperts routing_of(const nn::Recorder& recorder, const std::string& layer);

// Returns each head's contribution to the layer's output, [B, H, T, d]: `o` [B, H, T, w] times the head's output
// matrices. The sum over heads is the output without biases.
at::Tensor head_outputs(const ModelRunner& runner, const std::string& layer, const at::Tensor& o,
                        const RoutedExperts& routing);

// Returns the matrix [d, V] from the residual stream to the logits. `through_norm` includes the scale and the centring
// of the final norm, but not its division.
at::Tensor direct_logit_matrix(const ModelRunner& runner, bool through_norm);

// Whether each token is routed to a subset of the heads. H then counts a token's routed slots.
bool routes_heads(const config::AttentionOptions& options);
// Returns the routing of each key and value head g of layers for which routes_heads() is true, [n, G, K]: slot g K + k
// of the heads holds the expert that g's queries use in k. Experts that are groups of heads have one head for each g.
RoutedExperts routing_of_slots(const RoutedExperts& routing, const config::AttentionOptions& options);
// Returns the head in each slot, [n, H], of these layers: head g E + x belongs to expert x of E and reads key and value
// head g.
at::Tensor heads_in_slots(const RoutedExperts& routing, const config::AttentionOptions& options);
// Scatters gates to [n, H, E], 0 for heads or experts that are not selected. `routing` is [n, H, K].
at::Tensor dense_gates(const RoutedExperts& routing, std::int64_t n_experts);

// Records the values that match its patterns and substitutes those in `instead`.
class Replacer : public nn::Recorder {
 public:
  explicit Replacer(std::vector<std::string> patterns) : nn::Recorder(std::move(patterns)) {}
  std::map<std::string, at::Tensor, std::less<>> instead;  // broadcast to the value's shape
  bool wants(std::string_view name) const override;
  at::Tensor observe(std::string_view name, at::Tensor value) override;
};

// Adds to a sum that may be undefined.
void add_to(at::Tensor& sum, const at::Tensor& more);
draw::Cells cells_of(const at::Tensor& matrix);
std::vector<double> to_vector(const at::Tensor& vector);
// Returns the text of each token of a sequence [T].
std::vector<std::string> token_texts(const ModelRunner& runner, const at::Tensor& tokens,
                                     TextSide side = TextSide::target);
// Formats a token as a label: without its leading blank, with symbols for line ends and tabs.
std::string display_text(std::string_view token);

// Draws a matrix as a block of the page. The colour scale ends at `full`; 0: at the largest absolute value.
Json heat_map_of(draw::HeatMap map, const at::Tensor& values, double full = 0.0);
// Returns the weight at which the shades of an attention map end, a scalar: 0.5% of the non-zero weights are larger.
// The largest weights are in the first queries' rows; on a scale up to them, a stripe would be pale.
at::Tensor shade_end(const at::Tensor& weights);
// Draws attention weights, whose shades follow the square root, so that faint structure remains visible.
Json attention_map(draw::HeatMap map, const at::Tensor& weights);
inline constexpr std::string_view kAttentionShades =
    "shades follow the square root of a weight and end where 0.5% of the weights are larger";
// Returns a block with a table.
Json table_of(const std::vector<std::string>& head, const std::vector<std::vector<Json>>& rows);

}  // namespace headroom::analyse
