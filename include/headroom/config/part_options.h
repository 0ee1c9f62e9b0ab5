// The options of attention parts: of each projection, position scheme, score, composition and output gate.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/field.h"

namespace headroom::config {

// Used by latent and factored.
struct LatentOptions {
  std::int64_t kv_rank = 64;
  std::int64_t q_rank = 0;         // 0: queries are not compressed
  std::int64_t d_rotary = 0;       // 0: half of d_head
  std::int64_t d_value = 0;        // 0: d_head
  std::int64_t latent_groups = 1;  // latents of a token, each for an equal share of the heads
};

// Used by dense.
struct DenseOptions {
  bool output_bias = true;  // false: no bias of the output projection even if the other projections have biases
};

// Used by sparse_heads.
struct SparseHeadOptions {
  std::int64_t sparsity = 4;
  bool include_first = false;
  std::int64_t dense_heads = 0;

  // Returns the number of tokens that a head selects from a sequence.
  std::int64_t chosen(std::int64_t tokens) const {
    return std::min(tokens, std::max<std::int64_t>(2, tokens / sparsity));
  }
};

enum class Gate { sigmoid, softmax_top_k, softmax, softmax_renormalised };
template <>
inline constexpr EnumNames kEnumNames<Gate> = {"sigmoid", "softmax_top_k", "softmax", "softmax_renormalised"};

// Used by experts, gated_heads and routed_heads; all but n_experts by routed_queries; top_k by shared_and_routed.
struct RoutingOptions {
  std::int64_t n_experts = 4;
  std::int64_t top_k = 2;
  Gate gate = Gate::sigmoid;
  double expert_dropout = 0.0;
};

// Used by experts. AttentionOptions::has_experts() also considers the projection.
struct ExpertOptions {
  std::vector<std::string> experts = {"v", "o"};
  bool shared_selection = false;
  double expert_entropy_coefficient = 0.0;

  bool has(char which) const { return std::ranges::find(experts, std::string(1, which)) != experts.end(); }
  bool on_source() const { return has('k') || has('v'); }
  bool on_destination() const { return has('q') || has('o'); }
  // Returns the number of selection matrices: one for each side that has a bank, or a single one if they are shared.
  std::int64_t n_selections() const {
    const int sides = (on_source() ? 1 : 0) + (on_destination() ? 1 : 0);
    return shared_selection ? std::min(sides, 1) : sides;
  }
};

// Used by routed_heads and routed_queries; switch_coefficient also by shared_and_routed.
struct RoutedHeadOptions {
  bool noisy_routing = false;
  bool output_bias = false;
  double switch_coefficient = 0.01;
  double switch_slots_coefficient = 0.0;
  double cv_coefficient = 0.0;
  double z_coefficient = 0.001;
  double entropy_coefficient = 0.0;
};

// Used by shared_and_routed.
struct SharedHeadOptions {
  std::int64_t shared_heads = 2;
};

enum class RopeScaling { none, yarn, linear, llama3 };
template <>
inline constexpr EnumNames kEnumNames<RopeScaling> = {"none", "yarn", "linear", "llama3"};

// Slows rotations, for contexts longer than in pre-training.
struct RopeScalingOptions {
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1.0;                            // context length divided by rope_original_length
  std::int64_t rope_original_length = 0;               // context length in pre-training, in tokens
  double rope_beta_fast = 32.0, rope_beta_slow = 1.0;  // yarn
  bool rope_truncate = true;                           // yarn
  double rope_attention_factor = 0.0;                  // yarn: factor of cosines and sines; 0: 0.1 ln(rope_factor) + 1
  double rope_low_freq_factor = 1.0, rope_high_freq_factor = 4.0;  // llama3

  // Returns whether rope_original_length has an effect.
  bool has_original_length() const { return rope_scaling == RopeScaling::yarn || rope_scaling == RopeScaling::llama3; }

  friend auto operator<=>(const RopeScalingOptions&, const RopeScalingOptions&) = default;
};

// What a forget gate depends on.
enum class Forget { token, head };
template <>
inline constexpr EnumNames kEnumNames<Forget> = {"token", "head"};

struct PositionOptions : RopeScalingOptions {
  bool position_bias = false;  // relative
  double rope_fraction = 1.0;  // rope
  double rope_base = 10000.0;  // relative, rope, sinusoidal
  // forgetting
  Forget forget = Forget::token;
  std::vector<double> forget_times;  // with Forget::head: empty, or the shortest and the longest initial time in tokens
};

enum class Keys { own, shifted, single };
template <>
inline constexpr EnumNames kEnumNames<Keys> = {"own", "shifted", "single"};
enum class Mixing { sum, max };
template <>
inline constexpr EnumNames kEnumNames<Mixing> = {"sum", "max"};
enum class Prior { none, layer, head, head_position };
template <>
inline constexpr EnumNames kEnumNames<Prior> = {"none", "layer", "head", "head_position"};
enum class PriorUpdate { none, gradient, soft_e };
template <>
inline constexpr EnumNames kEnumNames<PriorUpdate> = {"none", "gradient", "soft_e"};
enum class MixtureScore { gaussian, dot };
template <>
inline constexpr EnumNames kEnumNames<MixtureScore> = {"gaussian", "dot"};
enum class SoftEPairs { valid, all };
template <>
inline constexpr EnumNames kEnumNames<SoftEPairs> = {"valid", "all"};
enum class FeatureMap { elu_plus_one, elu_plus_one_l1 };
template <>
inline constexpr EnumNames kEnumNames<FeatureMap> = {"elu_plus_one", "elu_plus_one_l1"};
enum class LinearMixing { after_map, before_map };
template <>
inline constexpr EnumNames kEnumNames<LinearMixing> = {"after_map", "before_map"};
enum class Normaliser { sum, none };
template <>
inline constexpr EnumNames kEnumNames<Normaliser> = {"sum", "none"};
enum class ScoreScale { none, inv_sqrt_head };
template <>
inline constexpr EnumNames kEnumNames<ScoreScale> = {"none", "inv_sqrt_head"};
enum class OutputScale { none, inv_sqrt_head, inv_sqrt_length };
template <>
inline constexpr EnumNames kEnumNames<OutputScale> = {"none", "inv_sqrt_head", "inv_sqrt_length"};

enum class Normalise { softmax, none };
template <>
inline constexpr EnumNames kEnumNames<Normalise> = {"softmax", "none"};

struct DotOptions {
  bool sink = false;
  double scale_width = 0.0;  // scores are divided by its square root; 0: d_head
  std::string formula;       // replaces the score s; empty: "s"
  std::string mask;          // keys that a query sees within the model's own mask; empty: all
  std::string learned;       // learned values that formula and mask name, as a TOML table
  Normalise normalise = Normalise::softmax;
};

enum class LearnedShape { head, token, token_head, distance, head_distance };
template <>
inline constexpr EnumNames kEnumNames<LearnedShape> = {"head", "token", "token, head", "distance", "head, distance"};
enum class TokenFunction { linear, sigmoid, log_sigmoid, softplus, tanh };
template <>
inline constexpr EnumNames kEnumNames<TokenFunction> = {"linear", "sigmoid", "log_sigmoid", "softplus", "tanh"};

// A value that formulas name: a parameter of each head, a projection of each token, or a table.
struct LearnedValue {
  std::string name;
  LearnedShape shape = LearnedShape::head;
  double start = 0.0;                          // initial value; for a token's value: initial bias of the projection
  std::int64_t size = 0;                       // number of elements of a table
  TokenFunction from = TokenFunction::linear;  // applied to a token's projection
  bool cumulative = false;                     // tokens: the sum over the tokens up to this one
  bool of_tokens() const { return shape == LearnedShape::token || shape == LearnedShape::token_head; }
  bool is_table() const { return shape == LearnedShape::distance || shape == LearnedShape::head_distance; }
  bool by_head() const { return shape != LearnedShape::token && shape != LearnedShape::distance; }
};

// A layer's formulas as texts for ops::ScoreFormula, which number the learned values of each kind in their order.
struct Formulas {
  std::string score, mask;
  std::vector<LearnedValue> learned;
};
// Throws UserError "<key>: <what is wrong>".
Formulas formulas_of(const DotOptions& options, std::int64_t n_heads, std::int64_t d_head);
// Whether the score of the start values is s for every pair, and all keys are visible.
bool starts_as_product(const DotOptions& options, std::int64_t n_heads, std::int64_t d_head);

// Several keys at each position. Used by gaussian_mixture; linear uses some of the options.
struct MixtureOptions {
  Keys keys = Keys::own;
  std::int64_t n_mixtures = 2;
  Prior prior = Prior::head;
  PriorUpdate prior_update = PriorUpdate::gradient;
  bool prior_clamp = true;
  double shift_std = 1.0;
  // gaussian_mixture only
  Mixing mixing = Mixing::sum;
  SoftEPairs soft_e_pairs = SoftEPairs::valid;
  MixtureScore mixture_score = MixtureScore::gaussian;
  std::vector<double> mixture_coefficients;  // c_r sqrt(d_head); empty: 1/2 for each component
  double mixture_epsilon = 0.0;

  std::int64_t components() const { return keys == Keys::single ? 1 : n_mixtures; }
  std::int64_t projections() const { return keys == Keys::own ? components() : 1; }
  // Returns whether components have weights: there are several, they are summed, and the prior is not "none".
  bool has_prior() const { return components() > 1 && mixing == Mixing::sum && prior != Prior::none; }
};

struct LinearOptions {
  FeatureMap feature_map = FeatureMap::elu_plus_one;
  LinearMixing linear_mixing = LinearMixing::after_map;
  Normaliser normaliser = Normaliser::sum;
  double normaliser_epsilon = 1e-6;
  ScoreScale score_scale = ScoreScale::none;
  OutputScale output_scale = OutputScale::none;
};

// Tokens per chunk of the fused versions, for memory estimates: ops::kDeltaChunk.
inline constexpr std::int64_t kDeltaChunk = 64;

// Used by gated_delta.
struct GatedDeltaOptions {
  std::int64_t delta_key_heads = 0;  // 0: n_heads
  std::int64_t delta_d_value = 0;    // 0: d_head
  std::int64_t delta_conv_width = 4;
};

enum class ComposeActivation { gelu, gelu_tanh };
template <>
inline constexpr EnumNames kEnumNames<ComposeActivation> = {"gelu", "gelu_tanh"};

struct CompositionOptions {
  std::vector<std::string> compose = {"pre", "post"};
  std::vector<std::string> compose_low_rank = {"query", "key"};
  std::vector<std::string> compose_gates = {"query", "key"};
  bool compose_skip = true;
  bool compose_static = false;
  std::int64_t compose_rank = 2;
  std::int64_t compose_groups = 1;
  ComposeActivation compose_activation = ComposeActivation::gelu;

  // Returns whether heads are composed at `stage`, "pre" or "post".
  bool composes(std::string_view stage) const { return std::ranges::find(compose, stage) != compose.end(); }
  // These functions return whether `side`, "query" or "key", has low-rank maps or gates.
  bool has_low_rank(std::string_view side) const {
    return std::ranges::find(compose_low_rank, side) != compose_low_rank.end();
  }
  bool has_gates(std::string_view side) const { return std::ranges::find(compose_gates, side) != compose_gates.end(); }
};

// Used by differential.
struct DifferentialOptions {
  std::int64_t differential_version = 2;  // 1: the 2024 paper, with values twice as wide; 2: its 2026 successor
  double head_norm_epsilon = 1e-5;        // version 1: epsilon of the norm of each head's output

  std::int64_t keys_per_head() const { return differential_version == 1 ? 2 : 1; }
  std::int64_t value_factor() const { return differential_version == 1 ? 2 : 1; }
};

struct OutputGateOptions {
  bool exclusive = false;          // head outputs lose their projection on the token's own value
  std::int64_t gate_channels = 0;  // input channels that the gates read; 0: all
};

}  // namespace headroom::config
