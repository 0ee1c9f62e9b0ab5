"""Tests the operators as functions: errors, references, and releasing the GIL."""

import threading

import pytest
import torch

import headroom_torch.functional as hf
from refusals import assert_refused

B, H, G, T, S, E = 2, 4, 2, 9, 13, 5


def rand(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def heads(t=S):
    return rand(B, H, T, E, seed=1), rand(B, G, t, E, seed=2), rand(B, G, t, E, seed=3)


def test_attention_is_what_plain_code_computes():
    q, k, v = heads()
    scores = 0.4 * q @ k.repeat_interleave(2, 1).transpose(2, 3)
    hidden = torch.ones(T, S, dtype=torch.bool).triu(S - T + 1)
    expected = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v.repeat_interleave(2, 1)
    for implementation in ("automatic", "fused", "reference"):
        torch.testing.assert_close(hf.attention(q, k, v, scale=0.4, implementation=implementation), expected)


def test_mixture_and_composition_reach_the_operator():
    q, k, v = heads()
    mixture = hf.Mixture(keys=[rand(B, G, S, E, seed=4)], coefficient=torch.tensor([0.3, 0.2]))
    pre = hf.HeadMap(query=rand(B, T, 5 * H, seed=5), query_rank=2, query_gate=True)
    post = hf.HeadMap(fixed=rand(1, H, H, seed=6))
    whole = hf.attention(q, k, v, scale=0.4, mixture=mixture, pre=pre, post=post)
    reference = hf.attention(q, k, v, scale=0.4, mixture=mixture, pre=pre, post=post, implementation="reference")
    torch.testing.assert_close(whole, reference, atol=1e-4, rtol=1e-4)
    assert (whole - hf.attention(q, k, v, scale=0.4, mixture=mixture, post=post)).abs().max() > 1e-3
    assert (whole - hf.attention(q, k, v, scale=0.4, pre=pre, post=post)).abs().max() > 1e-3
    a = rand(B, H, T, S)
    torch.testing.assert_close(hf.head_map(a, post), a + torch.einsum("bmts,mn->bnts", a, post.fixed[0]))
    assert hf.head_map(a.bfloat16(), hf.HeadMap(query=pre.query, query_rank=2, query_gate=True)).dtype == torch.bfloat16


def test_a_map_without_skip_and_terms_is_0():
    for implementation in ("automatic", "reference"):
        assert not hf.attention(*heads(), post=hf.HeadMap(skip=False), implementation=implementation).any()


def test_adamw_equals_torchs():
    p, g, m, v = [[t] for t in (rand(7), rand(7, seed=1), torch.zeros(7), torch.zeros(7))]
    other = torch.nn.Parameter(p[0].clone())
    other.grad = g[0].clone()
    hf.adamw([torch.nn.Parameter(p[0])], g, m, v, 1, learning_rate=0.1, weight_decay=0.01)
    torch.optim.AdamW([other], lr=0.1, weight_decay=0.01).step()
    torch.testing.assert_close(p[0], other.detach())


def test_muon_is_the_equation():
    p, g, m = (rand(2, 5, 3, seed=i) for i in range(3))
    moved, mean = p.clone(), 0.9 * m + 0.1 * g
    x = 0.9 * mean + 0.1 * g
    x = x / x.norm(dim=(1, 2), keepdim=True)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    hf.muon([moved], [g.clone()], [m], learning_rate=0.1, momentum=0.9, weight_decay=0.01)
    torch.testing.assert_close(m, mean)
    torch.testing.assert_close(moved, (1 - 0.001) * p - 0.1 * 0.2 * 5**0.5 * x)


def test_head_map_factors_are_the_equation():
    groups, m, rank, d, inner, tokens = 2, 3, 2, 5, 4, 6
    x = rand(tokens, d)
    stages = [(rand(groups, d, inner, seed=i), rand(groups, inner, 2, rank, m, seed=2 + i), rand(d, groups * m, seed=4 + i))
              for i in range(2)]
    expected = []
    for w1, w2, gate in stages:
        f = torch.einsum("cni,cikrm->nkrcm", torch.nn.functional.gelu(torch.einsum("nd,cdi->cni", x, w1)), w2)
        u = f[:, 0] / (f[:, 0].square().mean(-1, keepdim=True) + 1e-6).sqrt()
        expected += [u.flatten(1), f[:, 1].flatten(1), (x @ gate).tanh()]
    w1, w2, gates = zip(*stages)
    torch.testing.assert_close(hf.head_map_factors(x, w1, w2, gates), torch.cat(expected, 1))
    torch.testing.assert_close(hf.head_map_factors(x, gate=gates[:1]), expected[2])
    scores = rand(1, groups * m, tokens, tokens)
    width = 2 * rank * groups * m + groups * m
    key = hf.head_map_factors(x, w1, w2, gates)[:, :width].unsqueeze(0)
    assert hf.head_map(scores, hf.HeadMap(key=key, key_rank=rank, key_gate=True, groups=groups)).shape == scores.shape


def test_forward_mode_derivatives_of_head_map_factors():
    """The kernel for few rows must not drop the tangent."""
    x, v, gate = rand(3, 5), rand(3, 5, seed=1), [rand(5, 4, seed=2)]
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, v)
        y = torch.autograd.forward_ad.unpack_dual(hf.head_map_factors(dual, gate=gate, implementation="reference"))
        torch.testing.assert_close(y.tangent, (1 - y.primal.square()) * (v @ gate[0]))
        with pytest.raises(RuntimeError, match="jvp is not implemented"):
            hf.head_map_factors(dual, gate=gate)


@pytest.mark.parametrize("of", ["x", "w"])
def test_second_derivatives_of_the_cross_entropy_need_the_reference(of):
    given = dict(x=rand(3, 4).double().requires_grad_(True), w=rand(4, 5).double().requires_grad_(True))
    target = torch.tensor([0, 2, 1])

    def second(loss):
        gradient, = torch.autograd.grad(loss, given[of], create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), list(given.values()))

    with pytest.raises(RuntimeError, match="derivative for headroom::linear_cross_entropy.* is not implemented"):
        second(hf.linear_cross_entropy(**given, target=target))
    logits = given["x"] @ given["w"]
    torch.testing.assert_close(second(hf.linear_cross_entropy(**given, target=target, implementation="reference")),
                               second(torch.nn.functional.cross_entropy(logits, target)))


# One check of each kind; tests/engine/ops has all of them.
REFUSALS = {
    "types": (lambda: hf.attention(rand(2, 2, 3, 4), rand(2, 2, 3, 4).double(), rand(2, 2, 3, 4)),
              "must have one floating dtype, got Double"),
    "a mask as a bias": (lambda: hf.attention(*heads(), bias=rand(1, 4, 9, 13) > 0), "biases and sink must be floating-point, got Bool"),
    "devices": (lambda: hf.attention(rand(2, 2, 3, 4), rand(2, 2, 3, 4).to("meta"), rand(2, 2, 3, 4)),
                "tensors must be on one device, got cpu and meta"),
    "an index out of range": (lambda: hf.expert_linear(rand(7, 5), rand(6, 5, 3), torch.full((7, 2, 1), 6)), r"must lie in \[0, 6\)"),
    "probability": (lambda: hf.dropout(rand(3), 1.0, seed=1), "p must be at least 0 and below 1"),
    "shapes of a product": (lambda: hf.linear(rand(3, 4), rand(5, 6)), "must fit, got 3x4, 5x6 and -"),
    "an implementation": (lambda: hf.linear(rand(2, 3), rand(3, 4), implementation="quick"), "automatic, reference or"),
    "no fused version": (lambda: hf.attention(*(t.double() for t in heads()), implementation="fused"), "no fused"),
    "a mixture of nothing": (lambda: hf.attention(*heads(), mixture=hf.Mixture(shift=torch.zeros(0, 2, 1, 4))), "one component"),
    "a rank without factors": (lambda: hf.attention(*heads(), pre=hf.HeadMap(query_rank=2)), "factors of the query side"),
    "lists of AdamW": (lambda: hf.adamw([rand(3)], [], [], [], 1), "one for each of 1 parameters"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_value_errors_of_one_sentence(case):
    assert_refused(*REFUSALS[case])


def test_calls_release_the_interpreter():
    """Two threads take turns in Python while an operator runs in a third."""
    q = rand(1, 8, 2048, 64)
    turns, done = [0], threading.Event()

    def count():
        while not done.is_set():
            turns[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = turns[0]
    hf.attention(q, q, q)
    during = turns[0] - before
    done.set()
    thread.join()
    assert during > 100  # while holding the GIL the other thread could not run
