"""The operators as functions of named tensors.

Letters: B batch, H heads, G key/value heads (H a multiple of G), T queries, S keys, e width of a head, w width of a
value, N rows.

All functions except `adamw` and `muon` are differentiable in their floating-point tensors, work under `torch.compile` and
`torch.export`, and release the GIL. `flex_attention` with captured tensors breaks the graph of torch.compile and cannot be
exported. `implementation` is "automatic" (fused if it supports these tensors, otherwise the reference), "fused" (ValueError
if it does not) or "reference" (plain tensor operations on any device, which specify the result). Tensors of wrong shapes,
dtypes or values raise ValueError.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence

import torch
from torch import Tensor

from ._library import ops
from .flex import flex_attention

__all__ = ["HeadMap", "Mixture", "adamw", "attention", "dropout", "expert_linear", "flex_attention",
           "head_map", "head_map_factors", "linear", "linear_attention", "linear_attention_step", "linear_cross_entropy", "muon"]


@dataclass
class Mixture:
    """R keys at each position (Nguyen et al., "Transformer with a Mixture of Gaussian Keys", Eq. 7-13).

    s_r = -c_r |q_i - k_jr|^2, or scale * q_i . k_jr without a coefficient. The score of a pair is
    log sum_r prior_r(j) exp(s_r), or max_r s_r with `maximum`.

    keys: components 2 .. R, each shaped like k; or shift [R, G, S or 1, e]: component r's key is k_j - shift[r].
    coefficient [R]: c_r; has no derivative. prior [R, G, S or 1], at least 0.
    epsilon: added to a query's sum of weights sum_j exp(score).
    """

    keys: Optional[Sequence[Tensor]] = None
    shift: Optional[Tensor] = None
    coefficient: Optional[Tensor] = None
    prior: Optional[Tensor] = None
    maximum: bool = False
    epsilon: float = 0.0


@dataclass
class HeadMap:
    """A map across heads for each query-key pair (Xiao et al., "Improving Transformers with Dynamically Composable
    Multi-Head Attention", Eq. 3-8). With heads in C groups of m = H / C and sums over m inside n's group,

    a'_n = a_n [skip] + sum_m a_m fixed_mn + sum_r (sum_m a_m u_mr) w_nr + a_n gate_n   (the last two terms for each side)

    fixed [C, m, m]. query [B, T, F] and key [B, S, F]: for each token u [R, H], w [R, H] and, with `query_gate` or
    `key_gate`, gate [H]; F = 2 R H + H. `query_rank`, `key_rank`: R; 0: no u and w.
    """

    fixed: Optional[Tensor] = None
    query: Optional[Tensor] = None
    key: Optional[Tensor] = None
    query_rank: int = 0
    query_gate: bool = False
    key_rank: int = 0
    key_gate: bool = False
    groups: int = 1
    skip: bool = True

    def _arguments(self, prefix=""):
        return {prefix + name: value for name, value in vars(self).items()}


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float = 1.0, causal: bool = True, window: int = 0,
              valid_keys: Optional[Tensor] = None, q_position: Optional[Tensor] = None, r: Optional[Tensor] = None,
              bias: Optional[Tensor] = None, query_bias: Optional[Tensor] = None, key_bias: Optional[Tensor] = None,
              sink: Optional[Tensor] = None,
              mixture: Optional[Mixture] = None, pre: Optional[HeadMap] = None, post: Optional[HeadMap] = None,
              implementation: str = "automatic") -> Tensor:
    """Softmax attention with optional relative positions, bias, sink, key mixtures and head composition: [B, H, T, w].

    By default it is causal and not scaled, unlike torch's scaled_dot_product_attention.

    s_ij = scale * q_i . k_j + scale * p_i . r_delta + bias_ij,  delta = j - (S - T + i)
    a_ij = pre(s_ij) across heads;  w_i = softmax over visible j of a_ij;  o_i = sum_j post(w_ij) v_j

    q [B, H, T, e]; k [B, G, S, e]; v [B, G, S, w]: float32, bfloat16 or float64, all of one type. A query that sees no key
    gives 0.
    causal: key j is visible to query i iff j <= S - T + i; requires S >= T.
    window: with causal, the number of visible keys, the query's own included; 0: all.
    valid_keys [B, S] bool: False for padding.
    q_position [B, H, T, e], r [H, C, e]: Transformer-XL's relative term (Dai et al., section 3.3), both or neither. Row c of
    r belongs to delta = c - (S - 1); C = S if causal, otherwise S + T - 1.
    bias [B or 1, H, T or 1, S]: added to the scores.
    query_bias [B or 1, H, T], key_bias [B or 1, H, S]: their sum is added to the scores, by the fused kernels as well; both
    or neither.
    sink [H]: exp(sink) is added to the softmax denominator.
    mixture: several keys at each position, see Mixture. pre, post: composition of heads before and after the softmax, see
    HeadMap.
    """
    more = {}
    if mixture is not None:
        more.update(mixture_keys=None if mixture.keys is None else list(mixture.keys), mixture_shift=mixture.shift,
                    mixture_coefficient=mixture.coefficient, mixture_prior=mixture.prior,
                    mixture_maximum=mixture.maximum, mixture_epsilon=mixture.epsilon)
    if pre is not None:
        more.update(pre._arguments("pre_"))
    if post is not None:
        more.update(post._arguments("post_"))
    return ops.attention(q, k, v, scale=scale, causal=causal, window=window, valid_keys=valid_keys,
                         q_position=q_position, r=r, bias=bias, query_bias=query_bias, key_bias=key_bias, sink=sink,
                         implementation=implementation, **more)


def linear_attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, valid_keys: Optional[Tensor] = None,
                     factor: float = 1.0, output_factor: float = 1.0, normalise: bool = True, epsilon: float = 0.0,
                     implementation: str = "automatic") -> Tensor:
    """Linear attention (Katharopoulos et al., "Transformers are RNNs"): [B, H, T, w] without a T x S matrix.

    a_ij = factor * q_i . k_j over visible j;  o_i = output_factor * sum_j a_ij v_j / (sum_j a_ij + epsilon)

    q [B, H, T, e], k [B, G, S, e]: features (for example elu + 1); v [B, G, S, w]; any floating type. valid_keys [B, S]
    bool: False for padding. Without `normalise` there is no division. A query whose sum is 0 gives 0.
    """
    return ops.linear_attention(q, k, v, valid_keys, causal=causal, factor=factor, output_factor=output_factor,
                                normalise=normalise, epsilon=epsilon, implementation=implementation)


def linear_attention_step(q: Tensor, k: Tensor, v: Tensor, state: Optional[tuple[Tensor, Tensor]] = None, *,
                          factor: float = 1.0, output_factor: float = 1.0, normalise: bool = True,
                          epsilon: float = 0.0) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Causal linear attention that continues a sequence: the result [B, H, T, w] and the new state.

    state: sums over all earlier keys (sum_j k_j v_j^T [B, G, e, w], sum_j k_j [B, G, e]); None: no earlier keys. The other
    arguments are those of linear_attention(), whose result over the whole sequence is the same.
    """
    kv, total = state if state is not None else (None, None)
    o, kv, total = ops.linear_attention_step(q, k, v, factor=factor, output_factor=output_factor, normalise=normalise,
                                             epsilon=epsilon, state_kv=kv, state_k=total)
    return o, (kv, total)


def expert_linear(input: Tensor, bank: Tensor, index: Tensor, weight: Optional[Tensor] = None, *,
                  sum_heads: bool = False, implementation: str = "automatic") -> Tensor:
    """Matrix multiplication with the experts that each token is routed to: [N, H, d_out], or [N, d_out] with `sum_heads`.

    y[n, h] = sum_k weight[n, h, k] * input[n, h] bank[index[n, h, k]]      (Csordas et al., "SwitchHead", Eq. 7-9)

    input [N, d_in] for all heads, or [N, H, d_in]; bank [X, d_in, d_out] in the same type; index [N, H, K] int64 in [0, X),
    distinct within a head; weight [N, H, K] in any floating type, None: 1.
    """
    return ops.expert_linear(input, bank, index, weight, sum_heads=sum_heads, implementation=implementation)


def head_map(a: Tensor, map: HeadMap) -> Tensor:
    """Applies a HeadMap to scores or weights `a` [B, H, T, S]; the result has the shape and type of a."""
    return ops.head_map(a, **map._arguments())


def head_map_factors(x: Tensor, w1: Sequence[Tensor] = (), w2: Sequence[Tensor] = (), gate: Sequence[Tensor] = (), *,
                     tanh_gelu: bool = False, implementation: str = "automatic") -> Tensor:
    """Factors of head maps for the tokens x [N, d] of one side (DCMHA, Eq. 6-8): [N, stages * F], where stages are before
    and after the softmax. The columns of a stage are `query` or `key` of a HeadMap.

    In each of C groups of m heads, f = gelu(x w1) w2, u_r = f_0r / sqrt(mean over m of f_0r^2 + 1e-6), w_r = f_1r; the
    gate is tanh(x gate). w1 [C, d, I], w2 [C, I, 2, R, m], gate [d, H]: one tensor for each stage, all of one floating type;
    w1 and w2, or gate, may be empty. `tanh_gelu`: GELU in its tanh approximation.
    """
    return ops.head_map_factors(x, list(w1), list(w2), list(gate), tanh_gelu, implementation=implementation)


def linear(x: Tensor, w: Tensor, b: Optional[Tensor] = None, *, implementation: str = "automatic") -> Tensor:
    """x w + b: x [N, d_in], w [d_in, d_out] with any strides, b [d_out]; [N, d_out] in w's type."""
    return ops.linear(x, w, b, implementation=implementation)


def linear_cross_entropy(x: Tensor, w: Tensor, target: Tensor, b: Optional[Tensor] = None, *,
                         implementation: str = "automatic") -> Tensor:
    """Output layer and cross-entropy in one, without storing the N x V logits.

    loss = mean over targets >= 0 of -log softmax(x w + b)[target], in nats: a scalar, float32 (float64 for float64).

    x [N, d], w [d, V] with any strides (a transposed embedding), b [V], target [N] int64 below V. Rows with a negative
    target do not count; the loss is 0 if none counts.
    """
    return ops.linear_cross_entropy(x, w, target, b, implementation=implementation)


def dropout(x: Tensor, p: float, *, seed: int, relu: bool = False, first_row: int = 0,
            implementation: str = "automatic") -> Tensor:
    """Dropout without a stored mask: keep(seed, row, place in the row) f(x) / (1 - p), f(x) = x, or max(x, 0) with relu.

    x of any shape; p in [0, 1). The same seed drops the same places. first_row: index of x[0] in the whole batch, so that
    the mask does not depend on how the batch is split.
    """
    return ops.dropout(x, p=p, seed=seed, relu=relu, first_row=first_row, implementation=implementation)


@torch.no_grad()
def adamw(parameters: Sequence[Tensor], gradients: Sequence[Tensor], m: Sequence[Tensor], v: Sequence[Tensor],
          step: int, *, learning_rate: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8,
          weight_decay: float = 0.0, gradient_scale: float = 1.0, implementation: str = "automatic") -> None:
    """One step of AdamW (Loshchilov & Hutter, "Decoupled weight decay regularization", Alg. 2), in place.

    parameters, gradients, m, v: lists of the same length, of tensors of the same shapes. `step` counts from 1. Gradients are
    first multiplied by `gradient_scale` (for clipping) and may be overwritten.
    """
    ops.adamw_step(list(parameters), list(gradients), list(m), list(v), step, learning_rate=learning_rate, beta1=beta1,
                   beta2=beta2, epsilon=epsilon, weight_decay=weight_decay, gradient_scale=gradient_scale,
                   implementation=implementation)


@torch.no_grad()
def muon(parameters: Sequence[Tensor], gradients: Sequence[Tensor], m: Sequence[Tensor], *,
         learning_rate: float = 1e-3, momentum: float = 0.95, weight_decay: float = 0.0, gradient_scale: float = 1.0,
         bfloat16: bool = False, implementation: str = "automatic") -> None:
    """One step of Muon (Jordan et al., "Muon: an optimizer for hidden layers in neural networks"), in place.

    parameters, gradients, m (running means of the gradients): lists of the same length, of tensors [batch, rows, columns] of
    the same shapes; each matrix of a batch is updated separately.

    m <- momentum m + (1 - momentum) g;  u = momentum m + (1 - momentum) g
    W <- (1 - learning_rate weight_decay) W - learning_rate 0.2 sqrt(max(rows, columns)) orthogonal(u)

    orthogonal() is five Newton-Schulz iterations, with matmuls in bfloat16 if `bfloat16` is set. Updates are about as large
    as AdamW's. Gradients are first multiplied by `gradient_scale` (for clipping).
    """
    ops.muon_step(list(parameters), list(gradients), list(m), learning_rate=learning_rate, momentum=momentum,
                  weight_decay=weight_decay, bfloat16=bfloat16, gradient_scale=gradient_scale,
                  implementation=implementation)
