// Forward passes of a trained model of any kind that reads tokens, and the input texts of analyses.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

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
  // A runner for analyses of these layers alone: attention_layers() returns only them, and options() returns `options`.
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

}  // namespace headroom::analyse
