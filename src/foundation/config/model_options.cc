#include "headroom/config/model_options.h"
#include <algorithm>

#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"

// The upper limits exceed the sizes of any real model, and the product of any two limits fits 64 bits.
namespace headroom::config {

void describe(Fields& fields, MlpOptions& o) {
  fields.add(
      "kind", o.kind,
      "dense; gated (SwiGLU: the hidden layer times a second one); experts (sigma-MoE); none: a layer without MLP");
  fields.add("d_hidden", o.d_hidden, between(1, 1 << 24), "width of the hidden layer (experts: of one expert)");
  fields.add("activation", o.activation, "non-linearity of the hidden layer");
  fields.add("bias", o.bias, "dense, gated: biases of both matrices (experts: expert_bias)");
  fields.add("dropout", o.dropout, at_least_below(-1, 1),
             "dense, gated: dropout probability of the hidden layer in training; below 0: model.dropout");
  fields.only_with("kind", {name_of(MlpKind::gated)}, [&](Fields& own) {
    own.add("hidden_groups", o.hidden_groups, between(0, 1 << 20),
            "gated: groups of hidden units, each multiplied by a softmax gate of the token (DCFormer); 0: no gates")
        .refuse_unused = true;
  });
  fields.only_with("kind", {name_of(MlpKind::experts)}, [&](Fields& own) {
    own.add("n_experts", o.n_experts, between(1, 1 << 20), "experts: number of experts");
    own.add("top_k", o.top_k, between(1, 1 << 20), "experts: number of experts that each token is routed to");
    own.add("expert_kind", o.expert_kind,
            "experts: one expert is dense, gated (SwiGLU), or gated with clamped factors (gpt-oss)");
    own.add("expert_bias", o.expert_bias,
            "experts: no biases, one vector added to the output (JetMoE), that and one of the hidden units (as a dense "
            "MLP has), or biases of the router and of all matrices (gpt-oss)");
    own.add("gate", o.gate,
            "experts: weights of the top_k: sigmoid of each score, softmax over the top_k, over all, or over all "
            "renormalised to sum to 1");
    own.add("gate_scale", o.gate_scale, above(0), "experts: factor of these weights (DeepSeek-V2)");
    own.add("d_shared", o.d_shared, between(0, 1 << 24),
            "experts: width of a gated MLP that every token uses in addition (DeepSeek-V2); 0: none");
    own.add("shared_gate", o.shared_gate,
            "experts: multiply the output of the MLP of d_shared by the sigmoid of a score of the token (Qwen3-Next)")
        .refuse_unused = true;
    own.add("expert_dropout", o.expert_dropout, at_least_below(0, 1),
            "experts: probability that an expert is excluded from routing in training");
    own.add("entropy_coefficient", o.entropy_coefficient, at_least(0),
            "experts: weight of the entropy load-balancing loss");
  });
}

void describe(Fields& fields, ModelOptions& o) {
  fields.add("kind", o.kind, "kind of model");
  fields.add("vocabulary_size", o.vocabulary_size, between(1, 2147483647),
             "tokens of the embedding and the head; if not set: the tokenizer's number");
  fields.add("n_layers", o.n_layers, between(1, 65536), "blocks of attention and MLP");
  fields.add("n_groups", o.n_groups, between(0, 65536),
             "layers with their own parameters, which are repeated in their order to n_layers (MoEUT); 0: n_layers");
  fields.add("d_model", o.d_model, between(1, 1 << 20), "width of the residual stream");
  fields.add("context_length", o.context_length, between(1, 1 << 24),
             "T, tokens of a sequence or chunk; vision: if not set, the number of patches");
  fields.add("memory_length", o.memory_length, between(0, 1 << 24),
             "M, tokens of the previous chunk that attention sees (Transformer-XL); 0 or context_length");
  fields.add("arrangement", o.arrangement, "attention, then MLP; or both from the same norm (parallel)");
  fields.add("norm", o.norm, "LayerNorm or RMSNorm");
  fields.add("norm_position", o.norm_position,
             "norms before each sublayer (pre), after each residual addition (post), or only where tokens are compared "
             "and routed (peri, MoEUT: queries, keys and routing, but neither values nor MLPs)");
  fields.add(
      "output_norms", o.output_norms,
      "normalise the outputs of attention and MLP as well, before they are added to the residual stream (Gemma)");
  fields.add("norm_epsilon", o.norm_epsilon, above(0), "epsilon of the norms, under the square root");
  fields.add("final_norm_epsilon", o.final_norm_epsilon, at_least(0),
             "epsilon of the norm after the last layer (JetMoE); 0: norm_epsilon");
  fields.add(
      "initialisation", o.initialisation,
      "initialisation of matrices; scaled: standard deviation sqrt(2 / (n_layers fan_in)), as SwitchHead; normal: "
      "initialisation_std everywhere; glorot: by fan in and out (MoA, Vaswani et al.); torch: as PyTorch's layers; "
      "pythia: sqrt(2 / (5 d_model)), and 2 / (n_layers sqrt(d_model)) for outputs to the residual stream");
  fields.add("initialisation_std", o.initialisation_std, above(0), "normal: standard deviation");
  fields.add("initialisation_seeds", o.initialisation_seeds,
             "random numbers of the initial values; sequence: one sequence for the whole model; by_name: one for each "
             "parameter's name, so that models that differ in one part have the same initial values elsewhere");
  fields.add("embedding_std", o.embedding_std, at_least(0),
             "initial standard deviation of embeddings and learned positions; 0: determined by initialisation");
  fields.add("tied_embeddings", o.tied_embeddings, "use the embedding matrix as the head's matrix");
  fields.add("scaled_embeddings", o.scaled_embeddings,
             "multiply token embeddings by sqrt(d_model) (encoder_decoder: always)");
  fields.add("head_bias", o.head_bias, "a bias of the head for each token of the vocabulary");
  fields.add("adaptive_cutoffs", o.adaptive_cutoffs, between(1, 2147483647),
             "adaptive softmax: the first token of each cluster but the first, ascending, each below vocabulary_size; "
             "[]: a plain softmax");
  fields.add("dropout", o.dropout, at_least_below(0, 1), "dropout probability of the residual stream in training");
  fields.add("source_vocabulary_size", o.source_vocabulary_size, between(0, 2147483647),
             "encoder_decoder: vocabulary of the encoder if sources have a separate tokenizer (tokenizer.source_model, "
             "or one trained on them) and embedding; 0: both sides share tokenizer and embedding");
  fields.add("n_decoder_layers", o.n_decoder_layers, between(0, 65536),
             "encoder_decoder: blocks of the decoder, each with cross-attention; 0: n_layers");
  fields.add("n_classes", o.n_classes, between(0, 1 << 24), "classifier, vision: number of classes, at least 2");
  fields.add("d_head_hidden", o.d_head_hidden, between(0, 1 << 20),
             "classifier, vision: width of a hidden layer in the head; 0: none");
  fields.add("head_activation", o.head_activation,
             "classifier: non-linearity of the head's hidden layer (vision: always tanh)");
  fields.add("padding_token", o.padding_token, between(0, 2147483647),
             "classifier: the padding token, which is masked out and not averaged");
  fields.add("paired", o.paired, "classifier: an example is a pair of sequences");
  fields.add("image_size", o.image_size, between(0, 1 << 16), "vision: side length of an image in pixels");
  fields.add("patch_size", o.patch_size, between(0, 1 << 16),
             "vision: side length of a patch in pixels; each patch is a token");
  fields.add("image_channels", o.image_channels, between(1, 1024), "vision: channels of an image");
  const std::string_view classifier = name_of(ModelKind::classifier), vision = name_of(ModelKind::vision);
  fields.refuse_without("kind", {name_of(ModelKind::language_model)}, {"memory_length", "adaptive_cutoffs"});
  fields.refuse_without("kind", {name_of(ModelKind::encoder_decoder)}, {"source_vocabulary_size", "n_decoder_layers"});
  fields.refuse_without("kind", {classifier, vision}, {"n_classes", "d_head_hidden"});
  fields.refuse_without("kind", {classifier}, {"head_activation", "paired"});
  fields.refuse_without("kind", {vision}, {"image_size", "patch_size"});
  fields.add("layers", o.layers,
             "layers that differ from [model.attention] and [model.mlp], a table each: repeat, attention, mlp; the "
             "pattern is repeated to n_layers");
  fields.table("attention", o.attention, "every attention layer");
  fields.table("mlp", o.mlp, "the MLP after every attention layer");
}

std::vector<BalanceLoss> MlpOptions::balance_losses() const {
  return kind == MlpKind::experts ? std::vector<BalanceLoss>{{"entropy", entropy_coefficient}}
                                  : std::vector<BalanceLoss>{};
}

bool ModelOptions::routes() const {
  const auto kinds = kinds_of_layers(std::max(n_layers, decoder_layers()));
  return std::ranges::any_of(kinds, [&](const auto& layer) {
    const AttentionOptions& a = layer.first.attention;
    return layer.first.mlp.kind == MlpKind::experts || (a.has_heads() && a.projection->routes(a));
  });
}

std::int64_t ModelOptions::patches() const {
  if (!has_whole_patches()) {
    user_error("model.patch_size: must divide image_size = {}, got {}", image_size, patch_size);
  }
  return (image_size / patch_size) * (image_size / patch_size);
}

}  // namespace headroom::config
