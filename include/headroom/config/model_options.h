// The options of a whole model: the stack around the attention layers, and its MLPs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "headroom/config/attention_options.h"
#include "headroom/config/field.h"
#include "headroom/config/part_options.h"

namespace headroom::config {

enum class ModelKind { language_model, masked_language_model, encoder_decoder, classifier, vision };
template <>
inline constexpr EnumNames kEnumNames<ModelKind> = {"language_model", "masked_language_model", "encoder_decoder",
                                                    "classifier", "vision"};
enum class Arrangement { sequential, parallel };
template <>
inline constexpr EnumNames kEnumNames<Arrangement> = {"sequential", "parallel"};
enum class Norm { layer, rms };
template <>
inline constexpr EnumNames kEnumNames<Norm> = {"layer", "rms"};
enum class NormPosition { pre, post, peri };
template <>
inline constexpr EnumNames kEnumNames<NormPosition> = {"pre", "post", "peri"};
enum class Initialisation { scaled, normal, glorot, torch, pythia };
template <>
inline constexpr EnumNames kEnumNames<Initialisation> = {"scaled", "normal", "glorot", "torch", "pythia"};
enum class InitialisationSeeds { sequence, by_name };
template <>
inline constexpr EnumNames kEnumNames<InitialisationSeeds> = {"sequence", "by_name"};
enum class MlpKind { dense, gated, experts, none };
template <>
inline constexpr EnumNames kEnumNames<MlpKind> = {"dense", "gated", "experts", "none"};
// One expert: dense: f(x up) down. gated: (f(x gate) * (x up)) down. clamped: gpt-oss's gated expert, with the gate and
// the other factor limited to kExpertLimit.
enum class ExpertKind { dense, gated, clamped };
template <>
inline constexpr EnumNames kEnumNames<ExpertKind> = {"dense", "gated", "clamped"};
inline constexpr double kExpertLimit = 7.0, kExpertSlope = 1.702;
// Biases. none; output: one vector after the sum over experts; hidden: as output, and one element per hidden unit, so
// that the experts have the biases of a dense MLP; all: the router's and one for each matrix of an expert.
enum class ExpertBias { none, output, hidden, all };
template <>
inline constexpr EnumNames kEnumNames<ExpertBias> = {"none", "output", "hidden", "all"};
enum class Activation { relu, gelu, gelu_tanh, silu };
template <>
inline constexpr EnumNames kEnumNames<Activation> = {"relu", "gelu", "gelu_tanh", "silu"};

// Returns the number of tokens that a model of this kind adds to its tokenizer's vocabulary; their ids follow the
// tokenizer's. Masked language models add <separator> and <mask>, in this order.
constexpr std::int64_t n_special_tokens(ModelKind kind) {
  return kind == ModelKind::masked_language_model ? 2 : 0;
}

// Percentage of tokens that a masked language model predicts, in training and validation (BERT, Devlin et al., 3.1).
inline constexpr std::int64_t kMaskedPercent = 15;

struct MlpOptions {
  MlpKind kind = MlpKind::dense;
  std::int64_t d_hidden = 1024;  // experts: width of one expert
  Activation activation = Activation::gelu;
  bool bias = true;                // dense and gated; experts: expert_bias
  double dropout = -1.0;           // dropout of the hidden layer, not for experts; below 0: model.dropout
  std::int64_t hidden_groups = 0;  // gated: groups of hidden units that the token gates (DCFormer); 0: none
  std::int64_t n_experts = 16;
  std::int64_t top_k = 4;
  ExpertKind expert_kind = ExpertKind::dense;
  ExpertBias expert_bias = ExpertBias::none;
  Gate gate = Gate::sigmoid;
  double gate_scale = 1.0;    // factor of the routed experts' weights
  std::int64_t d_shared = 0;  // width of a gated MLP that every token uses in addition; 0: none
  bool shared_gate = false;   // multiply the output of the shared MLP by a sigmoid of the token
  double expert_dropout = 0.0;
  double entropy_coefficient = 1e-4;

  // Returns the load-balancing losses of the layer.
  std::vector<BalanceLoss> balance_losses() const;
};

// An entry of model.layers: `repeat` layers in a row, which differ from model.attention and model.mlp in the given
// keys.
struct LayerOptions {
  using Keys = std::map<std::string, std::string, std::less<>>;  // values are TOML: {"window", "256"}
  std::int64_t repeat = 1;
  Keys attention, mlp;
};

// Returns the keys in which `options` differs from `base`, for an entry whose model.attention or model.mlp is `base`.
LayerOptions::Keys differing_keys(const AttentionOptions& options, const AttentionOptions& base);
LayerOptions::Keys differing_keys(const MlpOptions& options, const MlpOptions& base);

struct ModelOptions {
  ModelKind kind = ModelKind::language_model;
  std::int64_t vocabulary_size = 8000;
  std::int64_t n_layers = 4;
  std::int64_t n_groups = 0;  // G: layer l has the parameters of layer l mod G; 0: n_layers
  std::int64_t d_model = 256;
  std::int64_t context_length = 128;  // T, tokens
  std::int64_t memory_length = 0;     // M, tokens of Transformer-XL memory
  Arrangement arrangement = Arrangement::sequential;
  Norm norm = Norm::layer;
  NormPosition norm_position = NormPosition::pre;
  bool output_norms = false;  // norms of the outputs of attention and MLP, before they are added (Gemma)
  double norm_epsilon = 1e-5;
  double final_norm_epsilon = 0.0;  // of the norm after the last layer; 0: norm_epsilon
  Initialisation initialisation = Initialisation::scaled;
  double initialisation_std = 0.02;  // for Initialisation::normal
  double embedding_std = 0.0;        // 0: determined by initialisation
  InitialisationSeeds initialisation_seeds = InitialisationSeeds::sequence;
  bool tied_embeddings = false;
  bool scaled_embeddings = false;
  bool head_bias = true;
  std::vector<std::int64_t>
      adaptive_cutoffs;  // adaptive softmax: first token of each cluster except the first; empty: plain softmax
  double dropout = 0.0;
  std::int64_t source_vocabulary_size = 0;        // encoder_decoder: of the encoder; 0: one for both
  std::int64_t n_decoder_layers = 0;              // encoder_decoder; 0: n_layers
  std::int64_t n_classes = 0;                     // classifier, vision
  std::int64_t d_head_hidden = 0;                 // classifier, vision: width of the head's hidden layer; 0: none
  Activation head_activation = Activation::relu;  // classifier: activation of the head's hidden layer; vision: tanh
  bool paired = false;                            // classifier: input is a pair of sequences
  std::int64_t padding_token = 0;                 // classifier: masked in attention, left out of the average
  std::int64_t image_size = 0;                    // vision: side length in pixels
  std::int64_t patch_size = 0;
  std::int64_t image_channels = 3;
  AttentionOptions attention;
  MlpOptions mlp;
  // The pattern of the layers, repeated to the number of layers. Empty: layers differ in their windows at most
  // (AttentionOptions::window_pattern).
  std::vector<LayerOptions> layers;

  // Returns the options of a model all of whose layers are like layer `index`: with that layer's `attention` and `mlp`
  // and without a pattern. Throws UserError for an invalid pattern.
  ModelOptions of_layer(std::int64_t index) const;
  // Returns the different layers among the first `n` as of_layer() does, each with the number of such layers.
  std::vector<std::pair<ModelOptions, std::int64_t>> kinds_of_layers(std::int64_t n) const;
  // Returns for each of the first `n` layers the layer whose keys and values it uses: the layer itself or an earlier
  // one (AttentionOptions::share_kv). -1 if the layer has no attention, or if no such layer exists.
  std::vector<std::int64_t> key_owners(std::int64_t n) const;
  // Throws UserError "<what>: ..." if model.layers or n_groups is set; for features that treat all layers alike.
  void require_no_pattern(std::string_view what) const;
  // Returns the balance losses of a layer with `attention` and `mlp`.
  std::vector<BalanceLoss> layer_balance_losses() const;
  // Returns the balance losses of all layers, each name once.
  std::vector<BalanceLoss> balance_losses() const;

  std::int64_t distinct_layers() const { return n_groups == 0 ? n_layers : n_groups; }  // with their own parameters
  std::int64_t decoder_layers() const { return n_decoder_layers == 0 ? n_layers : n_decoder_layers; }
  std::int64_t vocabulary_of_sources() const {
    return source_vocabulary_size == 0 ? vocabulary_size : source_vocabulary_size;
  }
  double last_norm_epsilon() const { return final_norm_epsilon == 0.0 ? norm_epsilon : final_norm_epsilon; }
  std::int64_t norms_per_sublayer() const { return output_norms ? 2 : 1; }
  double hidden_dropout() const { return mlp.dropout < 0.0 ? dropout : mlp.dropout; }
  bool scales_embeddings() const { return scaled_embeddings || kind == ModelKind::encoder_decoder; }
  bool reads_tokens() const { return kind != ModelKind::vision; }  // false: reads images
  bool has_whole_patches() const { return patch_size > 0 && image_size >= patch_size && image_size % patch_size == 0; }
  // vision: returns the number of patches of an image. Throws UserError unless has_whole_patches().
  std::int64_t patches() const;
  // Returns whether tokens are routed, either to experts or heads of attention or to experts of the MLP.
  bool routes() const;
  // Returns whether the output is a class instead of a token.
  bool has_classes() const { return kind == ModelKind::classifier || kind == ModelKind::vision; }
};

void describe(Fields& fields, MlpOptions& options);
void describe(Fields& fields, ModelOptions& options);

}  // namespace headroom::config
