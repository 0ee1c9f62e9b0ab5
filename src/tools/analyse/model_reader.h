// Forward passes of a trained model of any kind over sequences of tokens, for looking inside.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headroom/models/model.h"
#include "headroom/nn/observer.h"
#include "headroom/store/open_model.h"

namespace headroom::inspect {

// Sequences that are read together: B rows of T tokens, without padding.
struct Reading {
  at::Tensor tokens;     // [B, T] int64; of an encoder-decoder the source
  at::Tensor target;     // encoder-decoder: [B, U] int64, what the decoder reads
  bool sample = false;   // a single sequence, shown with its values of every pair
  std::int64_t row = 0;  // of a sample: which one, from 0
  std::int64_t n_tokens() const { return tokens.numel() + (target.defined() ? target.numel() : 0); }
};

// Of a translation, whose sides may have a tokenizer each; of other models either is all they read.
enum class Side { source, target };

// An attention layer of a model.
struct AttentionLayer {
  std::string name;    // "layer3.attention", "decoder.layer0.cross": in front of its values' and parameters' names
  std::int64_t layer;  // of its stack
  bool cross = false;
  bool encoder = false;  // of an encoder-decoder's encoder
};

// How a model's texts become tokens: its checkpoint's tokenizer, or that of a classifier's task; null: it reads images.
std::shared_ptr<const tokenizers::Tokenizer> tokenizer_of(const store::OpenedModel& opened);

class Reader {
 public:
  explicit Reader(const store::OpenedModel& opened);

  const std::string& name() const { return opened_->name; }
  const config::ModelOptions& options() const { return opened_->model->options(); }
  const models::Model& model() const { return *opened_->model; }
  const tokenizers::Tokenizer& tokenizer() const { return *tokenizer_; }  // not of images
  const tokenizers::Tokenizer& tokenizer(Side side) const {
    return side == Side::source ? tokenizer().for_sources() : tokenizer().for_targets();
  }
  const nn::Context& context() const { return opened_->context; }
  at::Tensor parameter(std::string_view parameter) const;  // throws Error naming it
  std::vector<AttentionLayer> attention_layers() const;

  // One pass, whose values go to the observer; `memory` is read and moved on. Without derivatives.
  void read(const Reading& reading, models::Memory& memory, nn::Observer& observer) const;
  // Scores of the vocabulary (of a classifier: the classes) [B, T, V] or [B, C]; the observer may be null.
  at::Tensor logits(const Reading& reading, nn::Observer* observer) const;

  // The spelling of a token in the middle of a text, blanks included; bytes that are no text as \xE2.
  std::string token_text(std::int64_t id, Side side = Side::target) const;

 private:
  const store::OpenedModel* opened_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
};

}  // namespace headroom::inspect
