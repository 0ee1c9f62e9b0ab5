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

// An attention part, stored by name. There is no list of parts: each registers itself from its own file
// (attention_part.h). Part is ProjectionPart, ScorePart, CompositionPart, PositionPart or OutputGatePart.
template <class Part>
class PartName {
 public:
  // `name` is the part's name in TOML. Throws UserError if there is no such part.
  PartName(std::string_view name);                                  // NOLINT: implicit, so that a name can be assigned
  PartName(const char* name) : PartName(std::string_view(name)) {}  // NOLINT
  PartName(const std::string& name) : PartName(std::string_view(name)) {}  // NOLINT

  const Part* operator->() const { return part_; }
  std::string_view name() const;

  friend bool operator==(PartName a, PartName b) { return a.part_ == b.part_; }
  friend std::string_view name_of(PartName part) { return part.name(); }

 private:
  const Part* part_;
};

// Returns all parts of a kind: "none" first, the others sorted by name.
template <class Part>
const std::vector<const Part*>& all_parts();

// A load-balancing loss of a router: its name in nn::Context::losses, and its coefficient.
struct BalanceLoss {
  std::string_view name;
  double coefficient = 0.0;
};

enum class Gate { sigmoid, softmax_top_k, softmax, softmax_renormalised };
template <>
inline constexpr EnumNames kEnumNames<Gate> = {"sigmoid", "softmax_top_k", "softmax", "softmax_renormalised"};
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
enum class ComposeActivation { gelu, gelu_tanh };
template <>
inline constexpr EnumNames kEnumNames<ComposeActivation> = {"gelu", "gelu_tanh"};
enum class Scale { inv_sqrt, learned };
template <>
inline constexpr EnumNames kEnumNames<Scale> = {"inv_sqrt", "learned"};

// Queries per chunk of causal linear attention, for its costs: ops::kLinearChunk.
inline constexpr std::int64_t kLinearChunk = 64;

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
  std::vector<double> mixture_coefficients;  // c_r sqrt(d_head); empty: 1/2 for each component
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
  double dropout = 0.0;  // dropout of the attention weights
  std::int64_t window = 0;
  std::string window_pattern = "1:0";

  std::int64_t kv_heads() const { return n_kv_heads == 0 ? n_heads : n_kv_heads; }
  bool has_experts(char which) const;  // ProjectionPart::is_bank()
  bool selects_source() const;         // whether k or v is a bank of experts
  bool selects_destination() const;    // whether q or o is a bank of experts
  // Returns the number of selection matrices: one for each side that has a bank, or a single one if they are shared.
  std::int64_t n_selections() const;
  std::int64_t key_components() const;   // ScorePart::key_components()
  std::int64_t key_projections() const;  // ScorePart::key_projections()
  // Returns whether mixture components have weights: there are several, they are summed, and the prior is not "none".
  bool has_prior() const { return key_components() > 1 && mixing == Mixing::sum && prior != Prior::none; }
  std::int64_t computed_kv_heads() const;         // ProjectionPart::kv_heads()
  bool composes(const std::string& stage) const;  // whether heads are composed at stage "pre" or "post"
  std::int64_t value_width() const;               // channels of a value, and thus of a head's output
  std::int64_t rope_channels() const;             // rotating channels per head: even, at most d_head
  // Returns the options of the same layer as cross-attention, without positions that depend on distances.
  AttentionOptions across_sequences() const;
};

void describe(Fields& fields, AttentionOptions& options);

}  // namespace headroom::config
