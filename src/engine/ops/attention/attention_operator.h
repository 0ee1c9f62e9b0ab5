// The fused attention operator of torch's dispatcher, for all kinds of scores and compositions. Letters as in
// headroom/ops/attention.h.
#pragma once

#include "engine/ops/backend.h"
#include "engine/ops/head_map/head_map_arguments.h"
#include "engine/ops/operator.h"
#include "foundation/core/formula/program.h"
#include "headroom/ops/attention.h"

namespace headroom::ops {

struct FusedAttention {
  static constexpr const char* kName = "attention_fused";

  struct Arguments {
    at::Tensor q, k, v;
    OptionalTensor q_position, r, sink, valid_keys;
    HeadMapArguments pre, post;
    // A mixture if `factor` [R] is set: s_r = factor_r q . k_r + query_term_r + key_term_r with terms [B, H, R, T] and
    // [B, G or H, R, S]. more_keys holds the keys of components 2 .. R; if empty, all components share the dot product
    // with k. Query and key biases become terms, if necessary of a mixture with one component.
    OptionalTensor factor, query_term, key_term;
    std::vector<at::Tensor> more_keys;
    double epsilon = 0.0;
    bool maximum = false;
    double scale = 1.0;  // of dot products and the relative position term
    bool causal = true;
    std::int64_t window = 0;
    ScoreFormula formula;

    bool composed() const { return pre.given() || post.given(); }
    // Whether the kernels compute all heads of a block of rows together.
    bool heads_together() const { return composed() || (factor && r); }
    template <class V>
    void visit(V& visitor) {
      visitor("q", q, "k", k, "v", v, "q_position", q_position, "r", r, "sink", sink);
      visitor.constant("valid_keys", valid_keys);
      pre.visit(visitor, "pre_");
      post.visit(visitor, "post_");
      visitor.constant("factor", factor);
      visitor("query_term", query_term, "key_term", key_term, "more_keys", more_keys, "epsilon", epsilon);
      visitor("maximum", maximum, "scale", scale, "causal", causal, "window", window);
      formula.visit(visitor);
    }
  };

  struct Results {
    at::Tensor o, log_sum;  // [B, H, T, w] with the memory order [B, T, H, w]; [B, H, T]
    template <class V>
    void visit(V& v) {
      v("o", o, "log_sum", log_sum);
    }
  };

  struct Backward {
    at::Tensor grad, log_sum;
    OptionalTensor o;  // not saved if heads are computed together
    Arguments in;
    template <class V>
    void visit(V& v) {
      v("grad", grad, "log_sum", log_sum);
      in.visit(v);
      v("o", o);
    }
  };

  static Backward save(const Arguments& in, const Results& out) {
    return {{}, out.log_sum, in.heads_together() ? std::nullopt : OptionalTensor(out.o), in};
  }
};

Backends<AttentionInputs>& attention_backends();

// The parsed texts of a formula.
struct ParsedFormula {
  std::optional<formula::Program> score, mask;
  std::optional<formula::Derivative> derivative;  // of `score`
};
// The returned reference stays valid. Throws UserError if a text cannot be parsed.
const ParsedFormula& parsed(const ScoreFormula& formula);
// Throws Error if the formula or its tensors do not match the inputs.
void check_formula(const AttentionInputs& in);
// Reference: the scores [B, H, T, S] that the formula computes from `s`, and the keys that are visible in both
// `visible` (undefined: all) and the formula's mask.
at::Tensor formula_scores(const AttentionInputs& in, const at::Tensor& s);
at::Tensor formula_visible(const AttentionInputs& in, const at::Tensor& visible);

// The fused operator's arguments for these inputs.
FusedAttention::Arguments fused_arguments(const AttentionInputs& in);

// Repeats key or value heads along axis 1 for the query heads that share them.
at::Tensor for_every_head(const at::Tensor& grouped, const c10::SymInt& n_heads);

// For AttentionInputs::difference, in this order: checks the inputs; returns the inputs with one bias and sink per
// matrix; the keys [B, G or 2 H, S, e] of 2 H matrices, for G value heads; the difference [B, H, ..] of values [B, 2 H,
// ..]; the result of attention().
void check_difference(const AttentionInputs& in);
AttentionInputs with_terms_of_matrices(const AttentionInputs& in);
at::Tensor keys_of_matrices(const at::Tensor& k, const c10::SymInt& groups, const c10::SymInt& matrices);
at::Tensor subtract_second(const at::Tensor& of_matrices, const at::Tensor& factor);
at::Tensor attention_with_difference(const AttentionInputs& in, Implementation implementation);

// Returns a bool tensor, true where key j is visible to query i: [T, S], or [B, 1, T, S] with valid_keys; undefined if
// all keys are visible.
at::Tensor visible_keys(const AttentionMask& mask, const c10::SymInt& n_queries, const c10::SymInt& n_keys,
                        at::Device device);

// Backends that compute AttentionInputs::sequences in one call. If all refuse, each sequence is a separate call.
Backends<AttentionInputs>& attention_sequences_backends();

// Squared lengths of rows and their dot products with a few directions, in one pass: the terms of a mixture of Gaussian
// keys that depend on the query or the key alone.

struct RowTerms {
  static constexpr const char* kName = "row_terms";
  struct Arguments {
    at::Tensor t, directions;
    template <class V>
    void visit(V& v) {
      v("t", t, "directions", directions);
    }
  };
  using Results = Single;
  using Backward = GradAndInputs<Arguments>;
  static Backward save(const Arguments& in, const Results& /*out*/) { return {{}, in}; }
};

Backends<RowTerms::Arguments>& row_terms_backends();

// t [B, X, n, e] and directions [X, R, e], R may be 0. Returns [B, X, 1 + R, n] in float32 (float64 if t is): |t_i|^2,
// then t_i . direction_r. Differentiable in both.
at::Tensor row_terms(const at::Tensor& t, const at::Tensor& directions,
                     Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
