#include "headroom/config/model_options.h"

// The sizes' upper ends are far beyond any model; they keep every product of two of them inside 64 bits.
namespace headroom::config {

void describe(Fields& fields, AttentionOptions& o) {
  fields.add("n_heads", o.n_heads, between(1, 65536),
             "attention matrices computed per layer (routed_heads: heads per token)");
  fields.add("d_head", o.d_head, between(1, 65536), "channels of a head");
  fields.add("n_kv_heads", o.n_kv_heads, between(0, 65536),
             "key and value heads; fewer than n_heads: grouped queries, 1: multi-query, 0: n_heads");
  fields.add("bias", o.bias, "biases in the query, key, value and output projections");

  fields.add(
      "projection", o.projection,
      "how projections are made: dense, banks of experts (SwitchHead), heads chosen per token (MoA), or dense with "
      "only the top_k heads of each token let through (gated_heads)");
  fields.add("experts", o.experts, {"q", "k", "v", "o"},
             "experts: the projections that are banks of experts: query, key, value, output");
  fields.add("n_experts", o.n_experts, between(1, 1 << 20),
             "experts: per head and projection; routed_heads: all heads to choose from");
  fields.add("top_k", o.top_k, between(1, 1 << 20),
             "experts: chosen per token, head and projection; routed_heads: must equal n_heads; gated_heads: heads let "
             "through per token");
  fields.add("gate", o.gate,
             "weights of the chosen: sigmoid of each score or softmax over the chosen (experts); sigmoid, softmax over "
             "all or the same with a sum of 1 (routed_heads, gated_heads)");
  fields.add("shared_selection", o.shared_selection,
             "experts: one selection for key and value (source) and query and output (destination) instead of two");
  fields.add("expert_dropout", o.expert_dropout, at_least_below(0, 1),
             "probability that an expert cannot be chosen while training");
  fields.add("noisy_routing", o.noisy_routing, "routed_heads: learned noise on the router's scores while training");
  fields.add("switch_coefficient", o.switch_coefficient, at_least(0),
             "routed_heads: weight of the loss E sum_e P_e F_e that keeps heads in even use");
  fields.add("switch_slots_coefficient", o.switch_slots_coefficient, at_least(0),
             "routed_heads: weight of the same loss as MoA's released code counts it");
  fields.add("cv_coefficient", o.cv_coefficient, at_least(0),
             "routed_heads: weight of the squared coefficient of variation of the heads' weights");
  fields.add("z_coefficient", o.z_coefficient, at_least(0),
             "routed_heads: weight of the mean squared logsumexp of the router's scores");
  fields.add("entropy_coefficient", o.entropy_coefficient, at_least(0),
             "routed_heads: weight of the negative entropy of the mean choice");

  fields.add("score", o.score,
             "how a query scores a key: dot product, mixture of Gaussian keys, or linear attention by feature maps");
  fields.add(
      "keys", o.keys,
      "gaussian_mixture, linear: components have own projections, shifted copies of one projection, or there is a "
      "single one");
  fields.add("n_mixtures", o.n_mixtures, between(1, 1024), "mixture components, keys at each position");
  fields.add("mixing", o.mixing, "gaussian_mixture: sum over components, or the nearest one only (max)");
  fields.add("prior", o.prior, "components' weights: equal (none), per layer, per head, or per head and key position");
  fields.add("prior_update", o.prior_update,
             "how the prior is learned: fixed (none), by gradient, or from responsibilities (soft_e)");
  fields.add("prior_clamp", o.prior_clamp, "keep a prior learned by gradient between 0 and 1");
  fields.add("soft_e_pairs", o.soft_e_pairs,
             "soft_e: average over pairs of tokens that are not padding (valid), or over all");
  fields.add("mixture_score", o.mixture_score,
             "a component's score: Gaussian of the distance between query and key, or their scaled dot product");
  fields.add("mixture_coefficients", o.mixture_coefficients, above(0),
             "gaussian_mixture: factor of each component's squared distance, times sqrt(d_head); empty: 0.5 each");
  fields.add("mixture_epsilon", o.mixture_epsilon, at_least(0),
             "gaussian_mixture: added to the sum of a query's weights");
  fields.add("shift_deviation", o.shift_deviation, at_least(0),
             "keys = shifted: standard deviation of the shifts at the start (the first one is 0)");

  fields.add("feature_map", o.feature_map, "linear: elu(x) + 1, or that divided by its sum over the channels");
  fields.add("linear_mixing", o.linear_mixing, "linear: components are summed after or before the feature map");
  fields.add("normaliser", o.normaliser, "linear: divide by the sum of a query's weights, or not");
  fields.add("normaliser_epsilon", o.normaliser_epsilon, at_least(0), "linear: added to that sum");
  fields.add("score_scale", o.score_scale, "linear: factor of the weights: 1, or 1/sqrt(d_head)");
  fields.add("output_scale", o.output_scale,
             "linear: factor of the result: 1, 1/sqrt(d_head), or 1/sqrt of the sequence's length");

  fields.add("composition", o.composition,
             "how heads talk: not at all, by a fixed learned map (static) or by maps computed per token (dynamic)");
  fields.add("compose", o.compose, {"pre", "post"}, "compose scores before the softmax, weights after it, or both");
  fields.add("compose_low_rank", o.compose_low_rank, {"query", "key"}, "dynamic: sides with low-rank maps");
  fields.add("compose_gates", o.compose_gates, {"query", "key"}, "dynamic: sides with a gate per head");
  fields.add("compose_skip", o.compose_skip, "keep each head's own scores beside what the maps add");
  fields.add("compose_static", o.compose_static, "dynamic: a static map beside the dynamic terms");
  fields.add("compose_rank", o.compose_rank, between(1, 1024), "dynamic: rank of the low-rank maps");
  fields.add("compose_groups", o.compose_groups, between(1, 65536),
             "groups of neighbouring heads that never mix with each other; divides n_heads");
  fields.add("compose_activation", o.compose_activation, "dynamic: non-linearity inside the low-rank maps");

  fields.add("position", o.position,
             "position scheme: none, rotary, Transformer-XL relative, or vectors added to the embeddings (learned, "
             "sinusoidal)");
  fields.add("position_bias", o.position_bias, "relative: Transformer-XL's learned biases u and v");
  fields.add("rope_fraction", o.rope_fraction, above_up_to(0, 1), "rope: part of a head's channels that rotates");
  fields.add("rope_base", o.rope_base, above(1), "rope: base of the geometric series of wavelengths");
  fields.add("scale", o.scale, "factor of the scores: 1/sqrt(d_head), or a scalar learned per layer from there");
  fields.add("qk_norm", o.qk_norm, "normalise queries and keys per head before they meet");
  fields.add("window", o.window, between(0, 1 << 30), "keys that a local layer's query sees, its own included; 0: all");
  fields.add("window_pattern", o.window_pattern,
             "local:global layers: \"1:0\" all local, \"1:1\" alternating from local on, \"3:1\" the second of every 4 "
             "global");
}

void describe(Fields& fields, MlpOptions& o) {
  fields.add("kind", o.kind, "dense, gated (the hidden layer times a second one, SwiGLU), or sigma-MoE experts");
  fields.add("d_hidden", o.d_hidden, between(1, 1 << 24), "width of the hidden layer (experts: of one expert)");
  fields.add("activation", o.activation, "non-linearity of the hidden layer");
  fields.add("bias", o.bias, "dense, gated: biases in both products (experts have none)");
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
             "tokens that the embedding and the head know; checked against the tokenizer");
  fields.add("n_layers", o.n_layers, between(1, 65536), "blocks of attention and MLP");
  fields.add("d_model", o.d_model, between(1, 1 << 20), "width of the residual stream");
  fields.add("context_length", o.context_length, between(1, 1 << 24), "tokens of one sequence or chunk, T");
  fields.add("memory_length", o.memory_length, between(0, 1 << 24),
             "tokens of the chunk before that layers still see (Transformer-XL); 0 or context_length");
  fields.add("arrangement", o.arrangement, "attention then MLP, or both beside each other from one norm (parallel)");
  fields.add("norm", o.norm, "layer normalisation, or root mean square only");
  fields.add("norm_position", o.norm_position, "norms before each part, or after each addition");
  fields.add("norm_epsilon", o.norm_epsilon, above(0), "added under the norms' square roots");
  fields.add("tied_embeddings", o.tied_embeddings, "the head's matrix is the embedding's");
  fields.add("head_bias", o.head_bias, "a bias in the head, one number a token of the vocabulary");
  fields.add(
      "adaptive_cutoffs", o.adaptive_cutoffs, between(1, 2147483647),
      "adaptive softmax: tokens at which classes of rarer ones begin, ascending, each below vocabulary_size; []: "
      "a plain softmax");
  fields.add("dropout", o.dropout, at_least_below(0, 1), "dropout probability in the residual stream while training");
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
             "vision: pixels of a patch's side; each patch is a token, context_length of them");
  fields.add("image_channels", o.image_channels, between(1, 1024), "vision: numbers of a pixel");
  fields.table("attention", o.attention, "every attention layer");
  fields.table("mlp", o.mlp, "the MLP behind every attention layer");
}

}  // namespace headroom::config
