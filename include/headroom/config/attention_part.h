// What a part of attention says of itself, without tensors: its options and their help, what it refuses, what it costs.
// Its layer is the file of the same name in nn.
//
// A part is a class that answers every question of its kind below, in a file of its own under
// src/foundation/config/attention/ that ends with
//   const Registration<MyScore> kMyScore;
// Symbols: T queries, S = M + T sources with M tokens of memory, C = S / T, d d_model, H n_heads, G key/value heads as
// computed, e d_head, w the width of a value, E n_experts, k top_k, n_sel selection matrices, R keys at a position.
// Every count is exact, and throws UserError where it does not fit 63 bits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/attention_options.h"
#include "headroom/config/balance_loss.h"
#include "headroom/core/exact.h"

namespace headroom::config {

struct ModelOptions;
namespace detail {
class Checker;
}

// The tokens that one attention layer reads for one sequence.
struct Span {
  Exact queries = 0, sources = 0;  // memory tokens are sources
  bool causal = true;
  bool self = true;  // the queries are the last of the sources; false: another sequence, there are no distances
};

// One layer and sequence in the papers' accounting (cost/cost.h).
struct PaperSizes {
  Exact t = 0, s = 0, d = 0;
};
struct PaperTerms {
  Exact macs = 0;
  Exact memory = 0;  // numbers that the backward pass needs
  friend PaperTerms operator+(const PaperTerms& a, const PaperTerms& b) {
    return {a.macs + b.macs, a.memory + b.memory};
  }
};

// A setting that differs in kind from the part's other ones: the tests take it together with every other part's, and
// docs/combinations.md lists them.
struct Example {
  std::string name;
  std::function<void(AttentionOptions&)> set;
};

class AttentionPart {
 public:
  virtual ~AttentionPart() = default;
  virtual std::string_view name() const = 0;   // as TOML spells it
  virtual std::string_view about() const = 0;  // half a line of help
  // Adds the options that are its own, or that it shares with others and nobody has added yet.
  virtual void describe(Fields& fields, AttentionOptions& options) const = 0;
  // Refuses what makes no sense with it, in a sentence that says why.
  virtual void check(const detail::Checker& check, const ModelOptions& model) const = 0;
  // Another part is chosen: refuses options that only this one would read.
  virtual void check_absent(const detail::Checker& check, const AttentionOptions& options) const = 0;
  virtual std::vector<Example> examples() const;  // by default the part with its defaults
};

// Multiply-accumulates of the matrix products that the reference layer executes, forward.
struct ProjectionProducts {
  Exact projections = 0;  // q, k, v, o
  Exact selection = 0;    // scores of experts, heads or gates
  Exact noise = 0;        // of those scores, only while training
};

// How queries, keys, values and the output are made.
class ProjectionPart : public AttentionPart {
 public:
  // Heads: G, as computed; those with relative positions of their own; those that a token may choose from.
  virtual std::int64_t kv_heads(const AttentionOptions& options) const = 0;
  virtual std::int64_t position_heads(const AttentionOptions& options) const = 0;
  virtual std::int64_t all_heads(const AttentionOptions& options) const = 0;
  // Channels: w; and the first of a head's, which rotate.
  virtual std::int64_t value_width(const AttentionOptions& options) const = 0;
  virtual std::int64_t rotary_channels(const AttentionOptions& options) const = 0;
  // Whether the projection `which` ('q', 'k', 'v' or 'o') is a bank of experts for every head.
  virtual bool is_bank(const AttentionOptions& options, char which) const = 0;
  // Whether keys and values are made of a shorter vector that they share, the latent, instead of the layer's input.
  virtual bool has_latent() const = 0;
  virtual bool starts_truncated() const = 0;  // the layer's matrices are initialised truncated normal, else normal
  virtual bool has_fixed_heads() const = 0;   // every token uses the same heads, as maps between heads need

  // Numbers of each tensor of q's, k's, v's and o's matrices, and of each other one that is trained.
  virtual Sizes matrices(const AttentionOptions& options, Exact d_model) const = 0;
  virtual Sizes other_tensors(const AttentionOptions& options, Exact d_model) const = 0;
  virtual ProjectionProducts products(const AttentionOptions& options, Exact d_model, const Span& span) const = 0;
  virtual PaperTerms paper(const AttentionOptions& options, const PaperSizes& sizes) const = 0;
  // What Transformer-XL's relative positions add to that.
  virtual PaperTerms paper_positions(const AttentionOptions& options, const PaperSizes& sizes) const = 0;
  virtual Exact cache_numbers(const AttentionOptions& options) const = 0;  // kept of each token while decoding

  // Those that its layer adds to nn::Context::losses.
  virtual std::vector<BalanceLoss> balance_losses(const AttentionOptions& options) const = 0;

  virtual std::string heads_text(const AttentionOptions& options) const = 0;  // "2 (3/5 experts)", for tables
  // Matching (cost/match.h) tries widths d_head in these steps, from this one on.
  virtual std::int64_t d_head_step() const = 0;
  virtual std::int64_t least_d_head(const AttentionOptions& options) const = 0;
  virtual void set_heads(AttentionOptions& options, std::int64_t n_heads) const = 0;  // matching by MACs
  // The settings that the part's paper tries when it matches a model of `n_heads` dense heads, in its order.
  virtual std::vector<AttentionOptions> trials(const AttentionOptions& options, std::int64_t n_heads) const = 0;
};

// How a query scores a key, and what it takes from the values.
class ScorePart : public AttentionPart {
 public:
  virtual std::int64_t key_components(const AttentionOptions& options) const = 0;   // R
  virtual std::int64_t key_projections(const AttentionOptions& options) const = 0;  // of those, projected by themselves
  // Whether each query has a score for each key, which relative positions, windows and maps between heads change.
  virtual bool has_scores() const = 0;
  // Whether queries and keys are compared by dot products alone, so that a matrix may be moved from the keys to the
  // queries.
  virtual bool is_bilinear() const = 0;
  // Whether the keys share one whole, a softmax: a weight then depends on all of a query's scores.
  virtual bool is_normalised() const = 0;

  virtual Sizes tensors(const AttentionOptions& options, Exact sources) const = 0;      // sources: of the whole context
  virtual Exact products(const AttentionOptions& options, const Span& span) const = 0;  // with keys and with values
  virtual PaperTerms paper(const AttentionOptions& options, const PaperSizes& sizes) const = 0;
  // Numbers of a state that does not grow, instead of keys and values, where a layer has no memory.
  virtual std::optional<Exact> state_numbers(const AttentionOptions& options) const = 0;
  virtual bool keeps_width() const = 0;  // matching by parameters leaves d_head as it is, as the part's paper does
};

// How heads mix.
class CompositionPart : public AttentionPart {
 public:
  virtual Sizes tensors(const AttentionOptions& options, Exact d_model) const = 0;
  virtual Exact products(const AttentionOptions& options, Exact d_model, const Span& span) const = 0;
  virtual PaperTerms paper(const AttentionOptions& options, const PaperSizes& sizes) const = 0;
  virtual Exact cache_numbers(const AttentionOptions& options) const = 0;  // kept of each token while decoding
  virtual bool keeps_width() const = 0;                                    // as ScorePart's
};

// Vectors that a position scheme adds to the embeddings, one a position.
enum class AddedVectors { none, learned, fixed };

// How tokens know where they are.
class PositionPart : public AttentionPart {
 public:
  virtual AddedVectors added_vectors() const = 0;
  virtual bool has_distances() const = 0;  // between two tokens: there are none across two sequences
  virtual bool fits_width(const AttentionOptions& options) const = 0;  // whether d_head does, for matching

  virtual Sizes tensors(const AttentionOptions& options, Exact d_model) const = 0;  // of one attention layer
  virtual PaperTerms paper(const AttentionOptions& options, const PaperSizes& sizes) const = 0;
  // Distances that occur and are projected, d e for each of position_heads(), and multiplied by every query, e a head.
  virtual Exact offsets(const Span& span) const = 0;
  virtual Exact cache_numbers(const AttentionOptions& options) const = 0;  // kept of each token while decoding
};

// What multiplies the heads' results before the output projection.
class OutputGatePart : public AttentionPart {
 public:
  virtual std::int64_t gates(const AttentionOptions& options) const = 0;  // of a head and token: 0, 1 or w
};

// Makes a part known for as long as the program runs.
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
