#include "headroom/config/attention_part.h"
#include "headroom/config/model_options.h"
#include "headroom/core/error.h"

// The sizes' upper ends are far beyond any model; they keep every product of two of them inside 64 bits.
namespace headroom::config {

void describe(Fields& fields, MlpOptions& o) {
  fields.add("kind", o.kind, "dense, gated (the hidden layer times a second one, SwiGLU), or sigma-MoE experts");
  fields.add("d_hidden", o.d_hidden, between(1, 1 << 24), "width of the hidden layer (experts: of one expert)");
  fields.add("activation", o.activation, "non-linearity of the hidden layer");
  fields.add("bias", o.bias, "dense, gated: biases in both products (experts have none)");
  fields.add("dropout", o.dropout, at_least_below(-1, 1),
             "dense, gated: dropout probability in the hidden layer while training; below 0: model.dropout");
  fields.add("n_experts", o.n_experts, between(1, 1 << 20), "experts: how many there are");
  fields.add("top_k", o.top_k, between(1, 1 << 20), "experts: how many each token uses");
  fields.add("expert_dropout", o.expert_dropout, at_least_below(0, 1),
             "experts: probability that an expert is left out of the choice while training");
  fields.add("entropy_coefficient", o.entropy_coefficient, at_least(0),
             "experts: weight of the loss that keeps their use even");
}

void describe(Fields& fields, ModelOptions& o) {
  fields.add("kind", o.kind, "what the model does");
  fields.add("vocabulary_size", o.vocabulary_size, between(1, 2147483647),
             "tokens that the embedding and the head know; not given: as many as the tokenizer has");
  fields.add("n_layers", o.n_layers, between(1, 65536), "blocks of attention and MLP");
  fields.add("d_model", o.d_model, between(1, 1 << 20), "width of the residual stream");
  fields.add("context_length", o.context_length, between(1, 1 << 24),
             "tokens of one sequence or chunk, T; vision: the patches of a picture, which need not be given");
  fields.add("memory_length", o.memory_length, between(0, 1 << 24),
             "tokens of the chunk before that layers still see (Transformer-XL); 0 or context_length");
  fields.add("arrangement", o.arrangement, "attention then MLP, or both from one norm (parallel)");
  fields.add("norm", o.norm, "layer normalisation, or root mean square only");
  fields.add("norm_position", o.norm_position, "norms before each part, or after each addition");
  fields.add("norm_epsilon", o.norm_epsilon, above(0), "added under the norms' square roots");
  fields.add(
      "initialisation", o.initialisation,
      "how matrices are initialised; scaled: deviation sqrt(2 / (n_layers fan_in)), as SwitchHead's; normal: deviation "
      "initialisation_std everywhere; glorot: by fan in and out (MoA, Vaswani et al.); torch: as PyTorch's layers; "
      "pythia: "
      "deviation sqrt(2 / (5 d_model)), of what is added to the residual stream 2 / (n_layers sqrt(d_model))");
  fields.add("initialisation_std", o.initialisation_std, above(0), "normal: standard deviation");
  fields.add("embedding_std", o.embedding_std, at_least(0),
             "initial standard deviation of embeddings and learned positions; 0: as initialisation says");
  fields.add("tied_embeddings", o.tied_embeddings, "the head's matrix is the embedding's");
  fields.add("scaled_embeddings", o.scaled_embeddings,
             "token embeddings are multiplied by sqrt(d_model) (encoder_decoder: always)");
  fields.add("head_bias", o.head_bias, "a bias in the head, one number a token of the vocabulary");
  fields.add(
      "adaptive_cutoffs", o.adaptive_cutoffs, between(1, 2147483647),
      "adaptive softmax: tokens at which classes of rarer ones begin, ascending, each below vocabulary_size; []: "
      "a plain softmax");
  fields.add("dropout", o.dropout, at_least_below(0, 1), "dropout probability in the residual stream while training");
  fields.add(
      "source_vocabulary_size", o.source_vocabulary_size, between(0, 2147483647),
      "encoder_decoder: tokens that the encoder knows, by an embedding of its own, where sources have a tokenizer "
      "of their own (tokenizer.source_model, or one trained on them); 0: both sides share tokenizer and embedding");
  fields.add("n_decoder_layers", o.n_decoder_layers, between(0, 65536),
             "encoder_decoder: blocks of the decoder, each with an attention to the source as well; 0: n_layers");
  fields.add("n_classes", o.n_classes, between(0, 1 << 24), "classifier, vision: classes to choose from, at least 2");
  fields.add("d_head_hidden", o.d_head_hidden, between(0, 1 << 20),
             "classifier, vision: width of a hidden layer in the head; 0: none");
  fields.add("head_activation", o.head_activation,
             "classifier: non-linearity of the head's hidden layer (vision: always tanh)");
  fields.add("padding_token", o.padding_token, between(0, 2147483647),
             "classifier: the token that fills short sequences, neither seen nor averaged");
  fields.add("paired", o.paired, "classifier: an example is two sequences that are compared");
  fields.add("image_size", o.image_size, between(0, 1 << 16), "vision: pixels of a picture's side");
  fields.add("patch_size", o.patch_size, between(0, 1 << 16),
             "vision: pixels of a patch's side; each patch is a token");
  fields.add("image_channels", o.image_channels, between(1, 1024), "vision: numbers of a pixel");
  fields.table("attention", o.attention, "every attention layer");
  fields.table("mlp", o.mlp, "the MLP after every attention layer");
}

std::vector<BalanceLoss> MlpOptions::balance_losses() const {
  return kind == MlpKind::experts ? std::vector<BalanceLoss>{{"entropy", entropy_coefficient}}
                                  : std::vector<BalanceLoss>{};
}

bool ModelOptions::routes() const {
  constexpr Span kOneToken{.queries = 1, .sources = 1};
  return mlp.kind == MlpKind::experts ||
         attention.projection->products(attention, d_model, kOneToken).selection.value() > 0;
}

std::int64_t ModelOptions::patches() const {
  if (!has_whole_patches()) {
    user_error("model.patch_size: must divide image_size = {}, got {}", image_size, patch_size);
  }
  return (image_size / patch_size) * (image_size / patch_size);
}

}  // namespace headroom::config
