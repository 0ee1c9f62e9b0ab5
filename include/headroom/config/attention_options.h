// The options of an attention layer, which combines five parts: projection, score, composition, position, output gate.
#pragma once

#include <any>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <typeindex>
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

  // Registers a part, which must live until the program exits.
  static void add(const Part& part);

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

enum class Scale { inv_sqrt, learned };
template <>
inline constexpr EnumNames kEnumNames<Scale> = {"inv_sqrt", "learned"};

// The options of the parts of a layer: at most one object of each type. A part's type is declared in
// headroom/config/attention/; adding one needs no change here.
class PartOptions {
 public:
  // Returns the object of this type, with the default values unless it was changed. References stay valid.
  template <class Options>
  Options& of() {
    std::any& options = by_type_[typeid(Options)];
    return options.has_value() ? *std::any_cast<Options>(&options) : options.emplace<Options>();
  }
  template <class Options>
  const Options& of() const {
    static const Options kDefaults;
    const auto found = by_type_.find(typeid(Options));
    return found == by_type_.end() ? kDefaults : *std::any_cast<Options>(&found->second);
  }

 private:
  std::map<std::type_index, std::any> by_type_;
};

struct AttentionOptions : PartOptions {
  std::int64_t n_heads = 8;  // 0: the layer has no attention, and no other key has an effect
  std::int64_t d_head = 32;
  std::int64_t n_kv_heads = 0;  // 0: n_heads
  std::int64_t share_kv = 0;    // n: uses the keys and values of layer l - n, or of that layer's owner; 0: its own
  bool bias = false;
  PartName<ProjectionPart> projection = "dense";
  PartName<ScorePart> score = "dot";
  PartName<CompositionPart> composition = "none";
  PartName<PositionPart> position = "rope";
  PartName<OutputGatePart> gate_output = "none";
  Scale scale = Scale::inv_sqrt;
  bool qk_norm = false;
  double qk_norm_epsilon = 1e-6;
  double dropout = 0.0;  // dropout of the attention weights
  std::int64_t window = 0;
  std::string window_pattern = "1:0";

  bool has_heads() const { return n_heads > 0; }
  std::int64_t kv_heads() const { return n_kv_heads == 0 ? n_heads : n_kv_heads; }
  bool has_experts(char which) const;       // ProjectionPart::is_bank()
  std::int64_t computed_kv_heads() const;   // ProjectionPart::kv_heads()
  std::int64_t value_width() const;         // ProjectionPart::value_width()
  std::int64_t computed_heads() const;      // ProjectionPart::computed_heads()
  std::int64_t attention_matrices() const;  // computed_heads() times CompositionPart::maps_per_head()
  // Returns the width of a head's projection `which`: 'q', 'k' (of one key projection), 'v' or 'o'.
  std::int64_t projected_width(char which) const;
  std::int64_t key_components() const;   // ScorePart::key_components()
  std::int64_t key_projections() const;  // ScorePart::key_projections()
  // Returns the options of the same layer as cross-attention, without positions that depend on distances and without
  // exclusive head outputs.
  AttentionOptions across_sequences() const;
};

void describe(Fields& fields, AttentionOptions& options);

}  // namespace headroom::config
