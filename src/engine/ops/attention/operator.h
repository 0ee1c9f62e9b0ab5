// Attention of any scores and compositions as an operator of torch's dispatcher, and its backward pass. Letters as in
// attention.h.
#pragma once

#include "engine/ops/backend.h"
#include "engine/ops/head_map/arguments.h"
#include "engine/ops/operator.h"
#include "mixture_scores.h"

namespace headroom::ops {

struct FusedAttention {
  static constexpr const char* kName = "attention_fused";

  struct Arguments {
    at::Tensor q, k, v;
    OptionalTensor q_position, r, sink, valid_keys;
    HeadMapArguments pre, post;
    // A mixture, if `factor` [R] is given: s_r = factor_r q . k_r + query_term_r + key_term_r, the terms [B, H, R, T]
    // and [B, G, R, S]. k alone: all components share their product; else more_keys has those of 2 .. R.
    OptionalTensor factor, query_term, key_term;
    std::vector<at::Tensor> more_keys;
    double epsilon = 0.0;
    bool maximum = false;
    double scale = 1.0;  // of dot products and of the relative term
    bool causal = true;
    std::int64_t window = 0;

    bool composed() const { return pre.given() || post.given(); }
    // All heads of a block are computed together.
    bool heads_together() const { return composed() || (factor && r); }
    template <class V>
    void visit(V& visitor) {
      visitor("q", q);
      visitor("k", k);
      visitor("v", v);
      visitor("q_position", q_position);
      visitor("r", r);
      visitor("sink", sink);
      visitor.constant("valid_keys", valid_keys);
      pre.visit(visitor, "pre_");
      post.visit(visitor, "post_");
      visitor.constant("factor", factor);
      visitor("query_term", query_term);
      visitor("key_term", key_term);
      visitor("more_keys", more_keys);
      visitor("epsilon", epsilon);
      visitor("maximum", maximum);
      visitor("scale", scale);
      visitor("causal", causal);
      visitor("window", window);
    }
  };

  struct Results {
    at::Tensor o, log_sum;  // [B, H, T, w] lying by token, [B, H, T]
    template <class V>
    void visit(V& v) {
      v("o", o);
      v("log_sum", log_sum);
    }
  };

  struct Backward {
    at::Tensor grad, log_sum;
    OptionalTensor o;  // where heads are computed one by one
    Arguments in;
    template <class V>
    void visit(V& v) {
      v("grad", grad);
      v("log_sum", log_sum);
      in.visit(v);
      v("o", o);
    }
  };

  static Backward save(const Arguments& in, const Results& out) {
    return {{}, out.log_sum, in.heads_together() ? std::nullopt : OptionalTensor(out.o), in};
  }
};

// Those of the public operator, `attention`.
Backends<AttentionInputs>& attention_backends();

// What the fused operator takes for these inputs.
FusedAttention::Arguments fused_arguments(const AttentionInputs& in);

}  // namespace headroom::ops
