// The interfaces of attention parts, without tensors: options and their help, restrictions, costs. The layer of a part
// is the file of the same name in src/engine/nn/attention/.
//
// A part is a class derived from one of the five interfaces below, in src/foundation/config/attention/. Its file ends
// with
//   const Registration<MyScore> kMyScore;
// Symbols: T queries, S = M + T sources with M tokens of memory, C = S / T, d d_model, H n_heads, G key/value heads as
// computed, e d_head, w the width of a value, E n_experts, k top_k, n_sel selection matrices, R keys at a position.
// Counts are exact; a count that exceeds 63 bits throws UserError.
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

// The tokens that one attention layer reads for one sequence.
struct AttentionExtent {
  Exact queries = 0, sources = 0;  // sources include memory tokens
  bool causal = true;
  bool self = true;  // the queries are the last sources; false: cross-attention, where distances do not exist
};

// The tokens and d_model of one layer and sequence in the papers' accounting (cost/cost.h).
struct PaperSizes {
  Exact t = 0, s = 0, d = 0;
};
struct PaperTerms {
  Exact macs = 0;
  Exact memory = 0;  // floats that the backward pass needs
  friend PaperTerms operator+(const PaperTerms& a, const PaperTerms& b) {
    return {a.macs + b.macs, a.memory + b.memory};
  }
};

// A typical setting of a part. Tests combine it with those of all other parts, and docs/combinations.md lists them.
struct Example {
  std::string name;
  std::function<void(AttentionOptions&)> set;
};

class AttentionPart {
 public:
  virtual ~AttentionPart() = default;
  virtual std::string_view name() const = 0;   // as in TOML
  virtual std::string_view about() const = 0;  // half a line of help
  // Adds the part's options, except those that another part has already added. Options that no chosen part describes
  // are unused: a value other than the default is reported (Field::refuse_unused).
  virtual void describe(Fields& /*fields*/, AttentionOptions& /*options*/) const {}
  // Throws UserError if the part does not support the other options.
  virtual void check(const detail::Checker& /*check*/, const ModelOptions& /*model*/) const {}
  virtual std::vector<Example> examples() const;  // by default one with the default options
};

// Multiply-accumulates of the matrix multiplications of the reference layer's forward pass.
struct ProjectionProducts {
  Exact projections = 0;  // q, k, v, o
  Exact selection = 0;    // router scores of experts, heads or gates
  Exact noise = 0;        // of the router scores, only in training
};

// How queries, keys, values and the output are computed. The defaults are those of H heads without experts.
class ProjectionPart : public AttentionPart {
 public:
  virtual std::int64_t kv_heads(const AttentionOptions& options) const = 0;  // G, as computed
  virtual std::int64_t position_heads(const AttentionOptions& a) const {
    return a.n_heads;
  }  // heads of relative positions
  virtual std::int64_t all_heads(const AttentionOptions& a) const {
    return a.n_heads;
  }  // heads that a token may choose from
  virtual std::int64_t value_width(const AttentionOptions& a) const { return a.d_head; }  // w
  // The channels of each head, from the first on, that rotary positions rotate. By default rope_fraction of d_head.
  virtual std::int64_t rotary_channels(const AttentionOptions& options) const;
  // Whether the projection `which` ('q', 'k', 'v' or 'o') is a bank of experts for every head.
  virtual bool is_bank(const AttentionOptions& /*options*/, char /*which*/) const { return false; }
  // Whether keys and values are computed from a shorter vector that they share, instead of the layer's input.
  virtual bool has_latent() const { return false; }
  virtual bool starts_truncated()
      const = 0;  // matrices are initialised from a truncated normal distribution, else normal
  virtual bool has_fixed_heads() const { return true; }  // every token uses the same heads, as composition needs

  // Elements of each trained tensor: the matrices of q, k, v and o, and all others.
  virtual Sizes matrices(const AttentionOptions& options, Exact d_model) const = 0;
  virtual Sizes other_tensors(const AttentionOptions& options, Exact d_model) const = 0;
  virtual ProjectionProducts products(const AttentionOptions& options, Exact d_model,
                                      const AttentionExtent& extent) const = 0;
  virtual PaperTerms paper(const AttentionOptions& options, const PaperSizes& sizes) const = 0;
  // The additional terms of Transformer-XL's relative positions.
  virtual PaperTerms paper_positions(const AttentionOptions& options, const PaperSizes& sizes) const = 0;
  virtual Exact cache_elements(const AttentionOptions& options) const = 0;  // of the KV cache, per token

  // The load-balancing losses of its layer.
  virtual std::vector<BalanceLoss> balance_losses(const AttentionOptions& /*options*/) const { return {}; }

  virtual std::string heads_text(const AttentionOptions& options) const = 0;  // "2 (3/5 experts)", for tables
  // For matching (cost/match.h): the candidates for d_head are multiples of the step from the minimum on.
  virtual std::int64_t d_head_step() const = 0;
  virtual std::int64_t least_d_head(const AttentionOptions& /*options*/) const { return d_head_step(); }
  // For matching by MACs.
  virtual void set_heads(AttentionOptions& options, std::int64_t n_heads) const { options.n_heads = n_heads; }
  // The settings that the part's paper tries, in its order, to match a dense model of `n_heads` heads.
  virtual std::vector<AttentionOptions> trials(const AttentionOptions& /*options*/, std::int64_t /*n_heads*/) const {
    return {};
  }
};

// How a query scores a key, and how scores weight the values.
class ScorePart : public AttentionPart {
 public:
  virtual std::int64_t key_components(const AttentionOptions& options) const = 0;   // R
  virtual std::int64_t key_projections(const AttentionOptions& options) const = 0;  // of the R keys, those projected
  // Whether there is a score for each pair of query and key, as relative positions, windows and composition need.
  virtual bool has_scores() const = 0;
  // Whether scores are dot products, so that a matrix can be moved from the keys to the queries.
  virtual bool is_bilinear() const = 0;
  // Whether a weight depends on all of a query's scores, as in a softmax.
  virtual bool is_normalised() const = 0;

  virtual Sizes tensors(const AttentionOptions& options, Exact sources) const = 0;  // sources: context_length
  virtual Exact products(const AttentionOptions& options, const AttentionExtent& extent) const = 0;  // keys and values
  virtual PaperTerms paper(const AttentionOptions& options, const PaperSizes& sizes) const = 0;
  // Elements of the recurrent state that replaces the KV cache in layers without memory; nullopt if there is none.
  virtual std::optional<Exact> state_elements(const AttentionOptions& options) const = 0;
  virtual bool keeps_width() const = 0;  // matching by parameters does not change d_head
};

// How heads mix.
class CompositionPart : public AttentionPart {
 public:
  virtual Sizes tensors(const AttentionOptions& options, Exact d_model) const = 0;
  virtual Exact products(const AttentionOptions& options, Exact d_model, const AttentionExtent& extent) const = 0;
  virtual PaperTerms paper(const AttentionOptions& options, const PaperSizes& sizes) const = 0;
  virtual Exact cache_elements(const AttentionOptions& /*options*/) const { return 0; }  // of the cache, per token
  virtual bool keeps_width() const = 0;  // matching by parameters does not change d_head
};

// Position vectors added to the embeddings.
enum class AddedVectors { none, learned, fixed };

// The position scheme.
class PositionPart : public AttentionPart {
 public:
  virtual AddedVectors added_vectors() const { return AddedVectors::none; }
  virtual bool has_distances() const = 0;  // depends on the distance of two tokens, which cross-attention does not have
  virtual bool fits_width(const AttentionOptions& /*options*/) const { return true; }  // supports d_head, for matching

  virtual Sizes tensors(const AttentionOptions& /*options*/, Exact /*d_model*/) const { return {}; }  // of one layer
  virtual PaperTerms paper(const AttentionOptions& /*options*/, const PaperSizes& /*sizes*/) const { return {}; }
  // Number of distances. Each is projected, d e MACs for each of position_heads(), and multiplied by every query, e
  // MACs a head.
  virtual Exact offsets(const AttentionExtent& /*extent*/) const { return 0; }
};

// What multiplies the head outputs before the output projection.
class OutputGatePart : public AttentionPart {
 public:
  virtual std::int64_t gates(const AttentionOptions& options) const = 0;  // per head and token: 0, 1 or w
};

// Registers a part, which must live as long as the program.
void add_part(const ProjectionPart& part);
void add_part(const ScorePart& part);
void add_part(const CompositionPart& part);
void add_part(const PositionPart& part);
void add_part(const OutputGatePart& part);

template <class Part>
class Registration {
 public:
  Registration() { add_part(part_); }

 private:
  Part part_;
};

}  // namespace headroom::config
