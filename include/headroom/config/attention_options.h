// The options of an attention layer, which combines five parts: projection, score, composition, position, output gate.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/config/field.h"

namespace headroom::config {

// Declared in attention_part.h.
class ProjectionPart;
class ScorePart;
class CompositionPart;
class PositionPart;
class OutputGatePart;

// An attention part, held by name. Parts are listed nowhere: each registers itself from its own file
// (attention_part.h). Part: ProjectionPart, ScorePart, CompositionPart, PositionPart or OutputGatePart.
template <class Part>
class PartName {
 public:
  // As in TOML. Throws UserError if there is no such part.
  PartName(std::string_view name);                                  // NOLINT: implicit, so that names are assigned
  PartName(const char* name) : PartName(std::string_view(name)) {}  // NOLINT
  PartName(const std::string& name) : PartName(std::string_view(name)) {}  // NOLINT

  const Part* operator->() const { return part_; }
  std::string_view name() const;

  friend bool operator==(PartName a, PartName b) { return a.part_ == b.part_; }
  friend std::string_view name_of(PartName part) { return part.name(); }

 private:
  const Part* part_;
};

// All parts of a kind: "none" first, the others sorted by name.
template <class Part>
const std::vector<const Part*>& all_parts();

// A load-balancing loss of a router: its name in nn::Context::losses, and its weight.
struct BalanceLoss {
  std::string_view name;
  double coefficient = 0.0;
};

enum class Gate { sigmoid, softmax_top_k, softmax, softmax_renormalised };
enum class Keys { own, shifted, single };
enum class Mixing { sum, max };
enum class Prior { none, layer, head, head_position };
enum class PriorUpdate { none, gradient, soft_e };
enum class MixtureScore { gaussian, dot };
enum class SoftEPairs { valid, all };
enum class FeatureMap { elu_plus_one, elu_plus_one_l1 };
enum class LinearMixing { after_map, before_map };
enum class Normaliser { sum, none };
enum class ScoreScale { none, inv_sqrt_head };
enum class OutputScale { none, inv_sqrt_head, inv_sqrt_length };
enum class ComposeActivation { gelu, gelu_tanh };
enum class Scale { inv_sqrt, learned };

struct AttentionOptions {
  std::int64_t n_heads = 8;
  std::int64_t d_head = 32;
  std::int64_t n_kv_heads = 0;  // 0: n_heads
  bool bias = false;

  PartName<ProjectionPart> projection = "dense";
  std::vector<std::string> experts = {"v", "o"};
  std::int64_t n_experts = 4;
  std::int64_t top_k = 2;
  Gate gate = Gate::sigmoid;
  bool shared_selection = false;
  double expert_dropout = 0.0;
  bool noisy_routing = false;
  double switch_coefficient = 0.01;
  double switch_slots_coefficient = 0.0;
  double cv_coefficient = 0.0;
  double z_coefficient = 0.001;
  double entropy_coefficient = 0.0;
  std::int64_t kv_rank = 64;
  std::int64_t q_rank = 0;    // 0: queries are not compressed
  std::int64_t d_rotary = 0;  // 0: half of d_head
  std::int64_t d_value = 0;   // 0: d_head

  PartName<ScorePart> score = "dot";
  bool sink = false;
  Keys keys = Keys::own;
  std::int64_t n_mixtures = 2;
  Mixing mixing = Mixing::sum;
  Prior prior = Prior::head;
  PriorUpdate prior_update = PriorUpdate::gradient;
  bool prior_clamp = true;
  SoftEPairs soft_e_pairs = SoftEPairs::valid;
  MixtureScore mixture_score = MixtureScore::gaussian;
  std::vector<double> mixture_coefficients;  // c_r sqrt(d_head); empty: 1/2 each
  double mixture_epsilon = 0.0;
  double shift_std = 1.0;

  FeatureMap feature_map = FeatureMap::elu_plus_one;
  LinearMixing linear_mixing = LinearMixing::after_map;
  Normaliser normaliser = Normaliser::sum;
  double normaliser_epsilon = 1e-6;
  ScoreScale score_scale = ScoreScale::none;
  OutputScale output_scale = OutputScale::none;

  PartName<CompositionPart> composition = "none";
  std::vector<std::string> compose = {"pre", "post"};
  std::vector<std::string> compose_low_rank = {"query", "key"};
  std::vector<std::string> compose_gates = {"query", "key"};
  bool compose_skip = true;
  bool compose_static = false;
  std::int64_t compose_rank = 2;
  std::int64_t compose_groups = 1;
  ComposeActivation compose_activation = ComposeActivation::gelu;

  PartName<PositionPart> position = "rope";
  bool position_bias = false;
  double rope_fraction = 1.0;
  double rope_base = 10000.0;
  PartName<OutputGatePart> gate_output = "none";
  Scale scale = Scale::inv_sqrt;
  bool qk_norm = false;
  double qk_norm_epsilon = 1e-6;
  double dropout = 0.0;  // of the attention weights
  std::int64_t window = 0;
  std::string window_pattern = "1:0";

  std::int64_t kv_heads() const { return n_kv_heads == 0 ? n_heads : n_kv_heads; }
  bool has_experts(char which) const;  // ProjectionPart::is_bank()
  bool selects_source() const;         // whether k or v is a bank of experts
  bool selects_destination() const;    // whether q or o is
  // Selection matrices: one for each side that has a bank, or one if they are shared.
  std::int64_t n_selections() const;
  std::int64_t key_components() const;   // ScorePart::key_components()
  std::int64_t key_projections() const;  // ScorePart::key_projections()
  // Whether mixture components have weights: several, summed, with a prior other than "none".
  bool has_prior() const { return key_components() > 1 && mixing == Mixing::sum && prior != Prior::none; }
  std::int64_t computed_kv_heads() const;         // ProjectionPart::kv_heads()
  bool composes(const std::string& stage) const;  // whether heads are composed at "pre" or "post"
  std::int64_t value_width() const;               // channels of a value, and so of a head's output
  std::int64_t rope_channels() const;             // channels of a head that rotate: even, at most d_head
  // The same layer as cross-attention, without positions that depend on distances.
  AttentionOptions across_sequences() const;
};

void describe(Fields& fields, AttentionOptions& options);

template <>
struct Names<Gate> {
  static constexpr std::pair<Gate, std::string_view> kNames[] = {{Gate::sigmoid, "sigmoid"},
                                                                 {Gate::softmax_top_k, "softmax_top_k"},
                                                                 {Gate::softmax, "softmax"},
                                                                 {Gate::softmax_renormalised, "softmax_renormalised"}};
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
struct Names<SoftEPairs> {
  static constexpr std::pair<SoftEPairs, std::string_view> kNames[] = {{SoftEPairs::valid, "valid"},
                                                                       {SoftEPairs::all, "all"}};
};
template <>
struct Names<FeatureMap> {
  static constexpr std::pair<FeatureMap, std::string_view> kNames[] = {
      {FeatureMap::elu_plus_one, "elu_plus_one"}, {FeatureMap::elu_plus_one_l1, "elu_plus_one_l1"}};
};
template <>
struct Names<LinearMixing> {
  static constexpr std::pair<LinearMixing, std::string_view> kNames[] = {{LinearMixing::after_map, "after_map"},
                                                                         {LinearMixing::before_map, "before_map"}};
};
template <>
struct Names<Normaliser> {
  static constexpr std::pair<Normaliser, std::string_view> kNames[] = {{Normaliser::sum, "sum"},
                                                                       {Normaliser::none, "none"}};
};
template <>
struct Names<ScoreScale> {
  static constexpr std::pair<ScoreScale, std::string_view> kNames[] = {{ScoreScale::none, "none"},
                                                                       {ScoreScale::inv_sqrt_head, "inv_sqrt_head"}};
};
template <>
struct Names<OutputScale> {
  static constexpr std::pair<OutputScale, std::string_view> kNames[] = {
      {OutputScale::none, "none"},
      {OutputScale::inv_sqrt_head, "inv_sqrt_head"},
      {OutputScale::inv_sqrt_length, "inv_sqrt_length"}};
};
template <>
struct Names<ComposeActivation> {
  static constexpr std::pair<ComposeActivation, std::string_view> kNames[] = {
      {ComposeActivation::gelu, "gelu"}, {ComposeActivation::gelu_tanh, "gelu_tanh"}};
};
template <>
struct Names<Scale> {
  static constexpr std::pair<Scale, std::string_view> kNames[] = {{Scale::inv_sqrt, "inv_sqrt"},
                                                                  {Scale::learned, "learned"}};
};

}  // namespace headroom::config
