// Interfaces of attention parts, without tensors: options and their help, restrictions, costs in the
// papers' accounting. The layer of a part is
// in the file of the same name in src/engine/nn/attention/.
//
// A part is a class derived from one of the five interfaces below, in src/foundation/config/attention/. Its file ends
// with
//   const Registration<MyScore> kMyScore("my_score", "half a line of help");
// Symbols: T = queries, M = tokens of memory, S = M + T = sources, C = S / T, d = d_model, H = computed heads, G =
// computed key/value heads, e = d_head, w = width of a value, E = n_experts, k = top_k, n_sel = selection matrices, R =
// keys per position. Counts are exact; a count that exceeds 63 bits throws UserError.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/attention_options.h"
#include "headroom/core/exact.h"

namespace headroom::config {

struct ModelOptions;
namespace detail {
class Checker;
}

// The numbers of tokens that one attention layer reads for one sequence.
struct AttentionExtent {
  Exact queries = 0, sources = 0;  // sources include memory tokens
};

// t, s: token counts; d: d_model. For one layer and sequence, in the papers' accounting (cost/cost.h).
struct PaperSizes {
  Exact t = 0, s = 0, d = 0;
};
struct PaperTerms {
  Exact macs = 0;
  Exact memory = 0;  // floats stored for the backward pass
  friend PaperTerms operator+(const PaperTerms& a, const PaperTerms& b) {
    return {a.macs + b.macs, a.memory + b.memory};
  }
};

// A typical setting of a part. Tests combine the settings of all parts, and docs/combinations.md lists them.
struct Example {
  std::string name;
  std::function<void(AttentionOptions&)> set;
};

class AttentionPart {
 public:
  virtual ~AttentionPart() = default;
  std::string_view name() const { return name_; }    // name in TOML
  std::string_view about() const { return about_; }  // half a line of help text
  // Adds the part's options. A non-default value of an option that no selected part adds is reported
  // (Field::refuse_unused).
  virtual void describe(Fields& /*fields*/, AttentionOptions& /*options*/) const {}
  // Throws UserError if the part does not support the values of the other options.
  virtual void check(const detail::Checker& /*check*/, const ModelOptions& /*model*/) const {}
  virtual std::vector<Example> examples() const;  // default: one example with the default options

 private:
  template <class Part>
  friend class Registration;
  std::string_view name_, about_;
};

// Computes queries, keys, values and the output. The defaults are for H heads without experts.
class ProjectionPart : public AttentionPart {
 public:
  static constexpr std::string_view kKey = "projection";  // the key of model.attention that selects the part
  using Kind = ProjectionPart;
  virtual std::int64_t kv_heads(const AttentionOptions& options) const = 0;  // G, as computed
  // Returns H, the number of heads that are computed for a token.
  virtual std::int64_t computed_heads(const AttentionOptions& a) const { return a.n_heads; }
  virtual std::int64_t position_heads(const AttentionOptions& a) const {
    return a.attention_matrices();
  }  // heads with relative positions
  virtual std::int64_t all_heads(const AttentionOptions& a) const {
    return a.n_heads;
  }  // heads that a token can be routed to
  // Returns the number of heads or experts that each router of the layer chooses among. Default: n_experts.
  virtual std::int64_t router_width(const AttentionOptions& options) const;
  virtual std::int64_t value_width(const AttentionOptions& a) const { return a.d_head; }  // w
  // Returns whether tokens are routed to heads or experts.
  virtual bool routes(const AttentionOptions& /*options*/) const { return false; }
  // Returns the number of query heads of a routed expert of attention (JetMoE).
  virtual std::int64_t heads_per_expert(const AttentionOptions& /*options*/) const { return 1; }
  // Returns the number of leading channels in each head that rotary positions rotate. Default: rope_fraction of d_head.
  virtual std::int64_t rotary_channels(const AttentionOptions& options) const;
  // Returns whether the projection `which` ('q', 'k', 'v' or 'o') is a bank of experts in every head.
  virtual bool is_bank(const AttentionOptions& /*options*/, char /*which*/) const { return false; }
  // Returns whether keys and values are computed from a shared low-rank vector instead of the layer's input.
  virtual bool has_latent() const { return false; }
  // Returns whether queries, keys and values are the layer's input times one matrix (or bank) per head: w_q, w_k, w_v.
  virtual bool has_head_matrices() const { return true; }
  // Returns whether the output projection has a bias.
  virtual bool has_output_bias(const AttentionOptions& a) const { return a.bias; }
  virtual bool starts_truncated()
      const = 0;  // true: matrices are initialised from a truncated normal distribution; false: normal
  // Returns whether ScorePart::projected_heads() determines the numbers of heads.
  virtual bool has_projected_heads() const { return false; }
  virtual bool attends_everywhere() const { return true; }  // a head reads all tokens that the mask allows
  virtual bool has_fixed_heads() const { return true; }  // every token uses the same heads; composition requires this
  // Returns whether heads may have several queries and keys (CompositionPart::maps_per_head(), keys_per_head()) and
  // wider values.
  virtual bool allows_several_maps() const { return false; }

  virtual PaperTerms paper(const AttentionOptions& options, const PaperSizes& sizes) const = 0;
  // Returns the number of scored pairs of a query and a key, in the paper's accounting.
  virtual Exact paper_pairs(const AttentionOptions& a, const PaperSizes& z) const {
    return z.t * z.s * a.attention_matrices();
  }
  // Returns the additional terms of Transformer-XL's relative positions.
  virtual PaperTerms paper_positions(const AttentionOptions& options, const PaperSizes& sizes) const = 0;

  // Returns the load-balancing losses of the layer.
  virtual std::vector<BalanceLoss> balance_losses(const AttentionOptions& /*options*/) const { return {}; }

  virtual std::string heads_text(const AttentionOptions& options) const = 0;  // "2 (3/5 experts)", for tables
  // For matching (cost/match.h): the candidates for d_head are the multiples of d_head_step() from least_d_head() on.
  virtual std::int64_t d_head_step() const = 0;
  virtual std::int64_t least_d_head(const AttentionOptions& /*options*/) const { return d_head_step(); }
  // Sets top_k if it follows from other options; for configs that do not set it.
  virtual void derive_top_k(AttentionOptions& /*options*/) const {}
  // Sets the number of heads; for matching by MACs.
  virtual void set_heads(AttentionOptions& options, std::int64_t n_heads) const { options.n_heads = n_heads; }
  // Returns the settings that the part's paper tries, in its order, to match a dense model with `n_heads` heads.
  virtual std::vector<AttentionOptions> trials(const AttentionOptions& /*options*/, std::int64_t /*n_heads*/) const {
    return {};
  }
};

// Scores keys against a query, and weights the values by the scores.
class ScorePart : public AttentionPart {
 public:
  static constexpr std::string_view kKey = "score";  // the key of model.attention that selects the part
  using Kind = ScorePart;
  virtual std::int64_t key_components(const AttentionOptions& options) const = 0;   // R
  virtual std::int64_t key_projections(const AttentionOptions& options) const = 0;  // key projections, at most R
  // Returns whether every pair of query and key has a score; relative positions, windows and composition require it.
  virtual bool has_scores() const = 0;
  // Returns whether scores are dot products, so that a matrix can be moved from the keys to the queries.
  virtual bool is_bilinear() const = 0;
  // Returns whether a weight depends on all scores of its query, as in a softmax.
  virtual bool is_normalised() const = 0;

  // Returns the heads of the projection `which` ('q', 'k', 'v' or 'o') and the width of a value, for projections with
  // one matrix or bank per head. Defaults: H for q and o, G for k and v; d_head.
  virtual std::int64_t projected_heads(const AttentionOptions& options, char which) const;
  virtual std::int64_t value_width(const AttentionOptions& a) const { return a.d_head; }
  // Returns whether keys and values are read in their order by a recurrence, which requires self-attention with a
  // causal mask and without memory.
  virtual bool is_recurrent() const { return false; }
  // Returns whether a recurrent state of constant size replaces the KV cache in layers without memory.
  virtual bool has_state() const { return false; }

  // Returns the elements saved for the backward pass besides queries, keys, values and head outputs.
  virtual Exact saved_elements(const AttentionOptions& /*options*/, const AttentionExtent& /*extent*/) const {
    return 0;
  }
  virtual PaperTerms paper(const AttentionOptions& options, const PaperSizes& sizes) const = 0;
  virtual bool keeps_width() const = 0;  // whether matching by parameters keeps d_head
};

// Mixes heads with each other, or the attention matrices of a head.
class CompositionPart : public AttentionPart {
 public:
  static constexpr std::string_view kKey = "composition";  // the key of model.attention that selects the part
  using Kind = CompositionPart;
  // Returns whether heads are mixed by head maps at `stage`, "pre" or "post" the softmax.
  virtual bool has_maps(const AttentionOptions& /*options*/, std::string_view /*stage*/) const { return false; }
  // Return the number of queries of a head, each with its own attention matrix; the number of keys of a key and value
  // head; the width of a value in multiples of d_head.
  virtual std::int64_t maps_per_head(const AttentionOptions& /*options*/) const { return 1; }
  virtual std::int64_t keys_per_head(const AttentionOptions& /*options*/) const { return 1; }
  virtual std::int64_t value_factor(const AttentionOptions& /*options*/) const { return 1; }

  virtual PaperTerms paper(const AttentionOptions& options, const PaperSizes& sizes) const = 0;
  virtual bool keeps_width() const = 0;  // whether matching by parameters keeps d_head
};

// Kinds of position vectors that are added to the embeddings.
enum class AddedVectors { none, learned, fixed };

// Encodes the positions of tokens.
class PositionPart : public AttentionPart {
 public:
  static constexpr std::string_view kKey = "position";  // the key of model.attention that selects the part
  using Kind = PositionPart;
  virtual AddedVectors added_vectors() const { return AddedVectors::none; }
  virtual bool has_distances() const = 0;  // uses the distance between two tokens, which cross-attention lacks
  virtual bool has_offsets() const { return false; }   // scores projected distances against the queries
  virtual bool needs_causal() const { return false; }  // defined for earlier keys only
  virtual bool fits_width(const AttentionOptions& /*options*/) const { return true; }  // supports d_head; for matching

  virtual PaperTerms paper(const AttentionOptions& /*options*/, const PaperSizes& /*sizes*/) const { return {}; }
};

// Gates the head outputs before the output projection.
class OutputGatePart : public AttentionPart {
 public:
  static constexpr std::string_view kKey = "gate_output";  // the key of model.attention that selects the part
  using Kind = OutputGatePart;
  virtual std::int64_t gates(const AttentionOptions& options) const = 0;  // gates per head and token: 0, 1 or w
  Exact inputs(const AttentionOptions& options, Exact d_model) const;     // channels of x that a gate reads
  void describe(Fields& fields, AttentionOptions& options) const override;
  void check(const detail::Checker& check, const ModelOptions& model) const override;
};

template <class Part>
class Registration {
 public:
  // Both texts must be string literals.
  Registration(std::string_view name, std::string_view about) {
    part_.name_ = name;
    part_.about_ = about;
    PartName<typename Part::Kind>::add(part_);
  }

 private:
  Part part_;
};

}  // namespace headroom::config
