// The options of scores: dot products, mixtures of keys, linear attention, the gated delta rule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/config/field.h"

namespace headroom::config {

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

}  // namespace headroom::config
