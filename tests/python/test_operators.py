"""Tests the operators in Python with torch's own tool, and compiled: schemas, derivatives and meta kernels."""

import pytest
import torch
from torch.library import opcheck

import headroom_torch  # noqa: F401

ops = torch.ops.headroom

B, H, G, T, S, E = 2, 4, 2, 9, 13, 5


def rand(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def strided(*shape, seed=0):
    """Returns a tensor whose head and token axes are transposed in memory, as after a projection."""
    shape = list(shape)
    shape[1], shape[2] = shape[2], shape[1]
    return rand(*shape, seed=seed).transpose(1, 2)


def heads():
    return strided(B, H, T, E, seed=1), strided(B, G, S, E, seed=2), strided(B, G, S, E, seed=3)


def valid_keys():
    valid = torch.ones(B, S, dtype=torch.bool)
    valid[0, 3:5] = False
    return valid


def factors(n, rank, seed):
    return rand(B, n, (2 * rank + 1) * H, seed=seed)


def map_weights(n):
    """Returns the arguments that compute the factors of n tokens in two stages."""
    two = lambda *shape, seed: [rand(*shape, seed=seed), rand(*shape, seed=seed + 1)]  # noqa: E731
    return dict(x=rand(n, 6), w1=two(2, 6, 5, seed=1), w2=two(2, 5, 2, 1, 2, seed=3), gate=two(6, 4, seed=5))


def attention_samples():
    """Returns the keyword arguments of `attention` besides q, k and v."""
    relative = dict(q_position=strided(B, H, T, E, seed=4), r=rand(H, S, E, seed=5))
    composed = dict(
        pre_fixed=rand(2, 2, 2, seed=6), pre_groups=2, post_groups=2,
        pre_query=factors(T, 2, 7), pre_query_rank=2, pre_query_gate=True,
        pre_key=factors(S, 2, 8), pre_key_rank=2, pre_key_gate=True,
        post_query=factors(T, 2, 9), post_query_rank=2, post_query_gate=True)
    mixture = dict(mixture_keys=[strided(B, G, S, E, seed=10)], mixture_coefficient=torch.tensor([0.3, 0.2]),
                   mixture_prior=rand(2, G, S, seed=11).exp(), mixture_epsilon=0.1)
    shifted = dict(mixture_shift=rand(3, G, 1, E, seed=12), mixture_coefficient=torch.tensor([0.3, 0.2, 0.1]))
    return {
        "plain": dict(scale=0.4),
        "window": dict(scale=0.4, window=4, valid_keys=valid_keys()),
        "both_ways": dict(causal=False, valid_keys=valid_keys()),
        "relative": relative,
        "bias": dict(scale=0.4, bias=rand(B, H, T, S, seed=15)),
        "token_bias": dict(scale=0.4, query_bias=rand(1, H, T, seed=16), key_bias=rand(1, H, S, seed=17)),
        "token_bias_mixture": dict(query_bias=rand(B, H, T, seed=16), key_bias=rand(B, H, S, seed=17), **mixture),
        "sink": dict(scale=0.4, sink=rand(H, seed=14)),
        "sink_relative_composed": dict(sink=rand(H, seed=14), **relative, **composed),
        "composed": composed,
        "post_only": dict(post_fixed=rand(1, H, H, seed=13)),
        "mixture": mixture,
        "best_component": dict(mixture_shift=shifted["mixture_shift"], mixture_maximum=True),
        "shifted": shifted,
        "relative_composed": {**relative, **composed},
        "relative_mixture": {**relative, **mixture},
        "everything": {**relative, **composed, **shifted},
    }


ATTENTION = attention_samples()
# The last test compiles static shapes.
FORWARD = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
BACKWARD = ("test_schema", "test_faketensor")


def leaves(arguments):
    """Returns copies in which every floating-point tensor with a gradient has requires_grad."""
    def leaf(name, value):
        if isinstance(value, list):
            return [leaf(name, item) for item in value]
        if isinstance(value, torch.Tensor) and value.is_floating_point() and name != "mixture_coefficient":
            return value.detach().clone().requires_grad_(True)
        return value
    return {name: leaf(name, value) for name, value in arguments.items()}


def samples():
    """Returns (operator, arguments by name) of every public operator with a derivative, with and without its options."""
    q, k, v = heads()
    for name, options in ATTENTION.items():
        yield f"attention {name}", ops.attention, dict(q=q, k=k, v=v, **options)
    yield "linear_attention", ops.linear_attention, dict(q=q.exp(), k=k.exp(), v=v, valid_keys=valid_keys())
    yield "linear_attention both ways", ops.linear_attention, dict(q=q.exp(), k=k.exp(), v=v, causal=False)
    index = torch.stack([torch.randperm(6, generator=torch.Generator().manual_seed(i))[:4].view(2, 2) for i in range(7)])
    yield "expert_linear", ops.expert_linear, dict(input=rand(7, 5), bank=rand(6, 5, 3), index=index)
    yield "expert_linear weighted", ops.expert_linear, dict(
        input=rand(7, 2, 5), bank=rand(6, 5, 3).transpose(1, 2).contiguous().transpose(1, 2), index=index,
        weight=rand(7, 2, 2), sum_heads=True)
    yield "linear", ops.linear, dict(x=rand(7, 5), w=rand(3, 5).t(), b=rand(3))
    yield "linear without bias", ops.linear, dict(x=rand(1, 5), w=rand(5, 3))
    target = torch.tensor([0, 3, -1, 10, 2, 4, 4])
    yield "linear_cross_entropy", ops.linear_cross_entropy, dict(x=rand(7, 5), w=rand(5, 11), target=target, b=rand(11))
    yield "linear_cross_entropy without bias", ops.linear_cross_entropy, dict(x=rand(7, 5), w=rand(11, 5).t(),
                                                                              target=target)
    yield "dropout", ops.dropout, dict(x=rand(7, 5), p=0.3, seed=3, relu=True)
    yield "head_map", ops.head_map, dict(a=rand(B, H, T, S), fixed=rand(1, H, H), query=factors(T, 1, 1), query_rank=1,
                                         query_gate=True)
    yield "head_map_factors", ops.head_map_factors, map_weights(7)


SAMPLES = {name: (operator, arguments) for name, operator, arguments in samples()}
UNFUSED = {"head_map", "attention bias"}


@pytest.mark.parametrize("name", SAMPLES)
def test_public_operator(name):
    operator, arguments = SAMPLES[name]
    opcheck(operator, (), leaves(arguments), test_utils=FORWARD)


class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
    """Records every call of a Headroom operator that the dispatcher makes after autograd."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "headroom":
            self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def calls_of(name):
    operator, arguments = SAMPLES[name]
    given = leaves(arguments)
    with Recorder() as recorder:
        operator(**given).sum().backward()
    return recorder.calls


def test_every_operator_is_called_by_a_sample():
    called = {func.name().split("::")[1] for name in SAMPLES for func, _, _ in calls_of(name)}
    assert called == {
        "attention_fused", "attention_fused_backward", "row_terms", "row_terms_backward", "prefix_product",
        "expert_linear_fused", "expert_linear_fused_backward", "linear_fused", "linear_fused_backward",
        "linear_cross_entropy_fused", "linear_cross_entropy_fused_backward", "dropout_fused", "dropout_fused_backward"}


def test_fused_factors_of_few_tokens():
    """Tests an operator without a derivative."""
    weights = map_weights(3)
    with torch.no_grad():
        expected = ops.head_map_factors(**weights, implementation="reference")
        with Recorder() as recorder:
            torch.testing.assert_close(ops.head_map_factors(**weights), expected)
        [(func, args, kwargs)] = recorder.calls
        assert func.name() == "headroom::head_map_factors_fused"
        opcheck(func, args, kwargs, test_utils=BACKWARD)


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in UNFUSED])
def test_fused_operators_and_their_backward_passes(name):
    """The operators that public operators call have meta kernels with the strides and types of the real kernels."""
    calls = calls_of(name)
    assert any(func.name().endswith("_backward") for func, _, _ in calls) or "prefix_product" in str(calls[0][0])
    for func, args, kwargs in calls:
        with torch.no_grad():
            opcheck(func, args, kwargs, test_utils=BACKWARD)


def test_mismatched_factors_are_refused():
    q, k, v = heads()
    with pytest.raises(ValueError, match="factors of the query side"):
        ops.attention(q, k, v, pre_query=rand(B, T, 3), pre_query_rank=2)


def layer(x, bank, index, relative, w_out, b_out, target):
    """Applies expert projections, relative attention, the output layer and the loss."""
    n, heads_ = B * T, 2
    q, k, v = (ops.expert_linear(x.reshape(n, -1), bank[i], index).view(B, T, heads_, E).transpose(1, 2)
               for i in range(3))
    o = ops.attention(q, k, v, scale=0.5, q_position=q + 0.1, r=relative)
    y = ops.dropout(o.transpose(1, 2).reshape(n, heads_ * E), p=0.2, seed=7)
    return ops.linear_cross_entropy(ops.linear(y, w_out, b_out), w_out.t(), target)


def test_compiled_equals_eager():
    index = torch.randint(0, 3, (B * T, 2, 1), generator=torch.Generator().manual_seed(0))
    target = torch.randint(0, 2 * E, (B * T,), generator=torch.Generator().manual_seed(1))
    make = lambda: [t.requires_grad_(True) for t in (  # noqa: E731
        rand(B, T, 6), rand(3, 3, 6, E, seed=1), rand(2, T, E, seed=2), rand(2 * E, 8, seed=3), rand(8, seed=4))]
    results = []
    for run in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
        x, bank, relative, w_out, b_out = given = make()
        loss = run(x, bank, index, relative, w_out, b_out, target)
        results.append([loss, *torch.autograd.grad(loss, given)])
    for eager, compiled in zip(*results):
        torch.testing.assert_close(compiled, eager, rtol=0, atol=0)


ONCE = ("attention plain", "attention everything", "linear_attention", "expert_linear weighted", "linear",
        "linear_cross_entropy", "dropout", "head_map", "head_map_factors")


def test_inductor_compiles_every_operator():
    """Compiles all operators in one graph. Compiled code reads tensors by the meta kernels' strides."""
    def everything(given):
        return torch.stack([SAMPLES[name][0](**given[name]).square().sum() for name in ONCE])

    results = []
    for run in (everything, torch.compile(everything, fullgraph=True)):
        given = {name: leaves(SAMPLES[name][1]) for name in ONCE}
        tensors = [t for arguments in given.values() for value in arguments.values()
                   for t in (value if isinstance(value, list) else [value])
                   if isinstance(t, torch.Tensor) and t.requires_grad]
        sums = run(given)
        results.append([sums, *torch.autograd.grad(sums.sum(), tensors)])
    for eager, compiled in zip(*results):
        assert (compiled - eager).abs().max() <= 6e-5 * eager.abs().max()  # both accumulate in float32
