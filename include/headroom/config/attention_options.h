// What an attention layer is made of: projection x score x composition x position x mask.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/config/field.h"

namespace headroom::config {

enum class Projection { dense, experts, routed_heads };
enum class Gate { sigmoid, softmax_top_k, softmax, softmax_renormalised };
enum class Score { dot, gaussian_mixture, linear };
enum class Keys { own, shifted, single };
enum class Mixing { sum, max };
enum class Prior { none, layer, head, head_position };
enum class PriorUpdate { none, gradient, soft_e };
enum class MixtureScore { gaussian, dot };
enum class Composition { none, static_map, dynamic };
enum class Position { none, rope, relative, learned, sinusoidal };
enum class Scale { inv_sqrt, learned };

struct AttentionOptions {
  std::int64_t n_heads = 8;
  std::int64_t d_head = 32;
  std::int64_t n_kv_heads = 0;  // 0: n_heads
  bool bias = false;

  Projection projection = Projection::dense;
  std::vector<std::string> experts = {"v", "o"};
  std::int64_t n_experts = 4;
  std::int64_t top_k = 2;
  Gate gate = Gate::sigmoid;
  bool shared_selection = false;
  double expert_dropout = 0.0;

  Score score = Score::dot;
  Keys keys = Keys::own;
  std::int64_t n_mixtures = 2;
  Mixing mixing = Mixing::sum;
  Prior prior = Prior::head;
  PriorUpdate prior_update = PriorUpdate::gradient;
  MixtureScore mixture_score = MixtureScore::gaussian;

  Composition composition = Composition::none;
  std::vector<std::string> compose = {"pre", "post"};
  std::vector<std::string> compose_low_rank = {"query", "key"};
  std::vector<std::string> compose_gates = {"query", "key"};
  bool compose_static = false;
  std::int64_t compose_rank = 2;
  std::int64_t compose_groups = 1;

  Position position = Position::rope;
  bool position_bias = false;
  double rope_fraction = 1.0;
  double rope_base = 10000.0;
  Scale scale = Scale::inv_sqrt;
  bool qk_norm = false;
  std::int64_t window = 0;
  std::string window_pattern = "1:0";

  std::int64_t kv_heads() const { return n_kv_heads == 0 ? n_heads : n_kv_heads; }
  // Whether the projection `which` ('q', 'k', 'v' or 'o') is a bank of experts.
  bool has_experts(char which) const;
  // Selection matrices needed: one a side that has an expert bank, one in all when shared.
  bool selects_source() const;       // k or v is a bank
  bool selects_destination() const;  // q or o is a bank
  std::int64_t n_selections() const;
  // Channels of a head that rotate: even, at most d_head.
  std::int64_t rope_channels() const;
};

void describe(Fields& fields, AttentionOptions& options);

template <>
struct Names<Projection> {
  static constexpr std::pair<Projection, std::string_view> kNames[] = {
      {Projection::dense, "dense"}, {Projection::experts, "experts"}, {Projection::routed_heads, "routed_heads"}};
};
template <>
struct Names<Gate> {
  static constexpr std::pair<Gate, std::string_view> kNames[] = {{Gate::sigmoid, "sigmoid"},
                                                                 {Gate::softmax_top_k, "softmax_top_k"},
                                                                 {Gate::softmax, "softmax"},
                                                                 {Gate::softmax_renormalised, "softmax_renormalised"}};
};
template <>
struct Names<Score> {
  static constexpr std::pair<Score, std::string_view> kNames[] = {
      {Score::dot, "dot"}, {Score::gaussian_mixture, "gaussian_mixture"}, {Score::linear, "linear"}};
};
template <>
struct Names<Keys> {
  static constexpr std::pair<Keys, std::string_view> kNames[] = {
      {Keys::own, "own"}, {Keys::shifted, "shifted"}, {Keys::single, "single"}};
};
template <>
struct Names<Mixing> {
  static constexpr std::pair<Mixing, std::string_view> kNames[] = {{Mixing::sum, "sum"}, {Mixing::max, "max"}};
};
template <>
struct Names<Prior> {
  static constexpr std::pair<Prior, std::string_view> kNames[] = {
      {Prior::none, "none"}, {Prior::layer, "layer"}, {Prior::head, "head"}, {Prior::head_position, "head_position"}};
};
template <>
struct Names<PriorUpdate> {
  static constexpr std::pair<PriorUpdate, std::string_view> kNames[] = {
      {PriorUpdate::none, "none"}, {PriorUpdate::gradient, "gradient"}, {PriorUpdate::soft_e, "soft_e"}};
};
template <>
struct Names<MixtureScore> {
  static constexpr std::pair<MixtureScore, std::string_view> kNames[] = {{MixtureScore::gaussian, "gaussian"},
                                                                         {MixtureScore::dot, "dot"}};
};
template <>
struct Names<Composition> {
  static constexpr std::pair<Composition, std::string_view> kNames[] = {
      {Composition::none, "none"}, {Composition::static_map, "static"}, {Composition::dynamic, "dynamic"}};
};
template <>
struct Names<Position> {
  static constexpr std::pair<Position, std::string_view> kNames[] = {{Position::none, "none"},
                                                                     {Position::rope, "rope"},
                                                                     {Position::relative, "relative"},
                                                                     {Position::learned, "learned"},
                                                                     {Position::sinusoidal, "sinusoidal"}};
};
template <>
struct Names<Scale> {
  static constexpr std::pair<Scale, std::string_view> kNames[] = {{Scale::inv_sqrt, "inv_sqrt"},
                                                                  {Scale::learned, "learned"}};
};

}  // namespace headroom::config
