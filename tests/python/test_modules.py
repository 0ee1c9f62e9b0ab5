"""Tests layers as modules: parameter names, results against plain code, and PyTorch features."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.library import opcheck

import headroom_torch as ht
from refusals import assert_refused

D, T, B = 24, 10, 2
SWITCHHEAD = dict(d_model=D, n_heads=2, d_head=8, projection="experts", experts=["v", "o"], n_experts=4, top_k=2)
LAYERS = {
    "dense": lambda: ht.Attention(d_model=D, n_heads=2, d_head=8, bias=True),
    "switchhead": lambda: ht.Attention(**SWITCHHEAD, position="none"),
    "relative": lambda: ht.Attention(**SWITCHHEAD, position="relative", position_bias=True),
    "rope": lambda: ht.Attention(d_model=D, n_heads=2, d_head=8, position="rope", qk_norm=True),
    "window": lambda: ht.Attention(d_model=D, n_heads=2, d_head=8, n_kv_heads=1, window=4, n_layers=1),
    "moa": lambda: ht.Attention(d_model=D, n_heads=2, d_head=8, projection="routed_heads", n_experts=6, top_k=2),
    "dcmha": lambda: ht.Attention(d_model=D, n_heads=4, d_head=8, composition="dynamic"),
    "differential": lambda: ht.Attention(d_model=D, n_heads=4, d_head=8, n_kv_heads=2, composition="differential"),
    "differential 1": lambda: ht.Attention(d_model=D, n_heads=4, d_head=8, n_kv_heads=2, composition="differential",
                                           differential_version=1, layer=3),
    "mgk": lambda: ht.Attention(d_model=D, n_heads=2, d_head=8, score="gaussian_mixture"),
    "linear": lambda: ht.Attention(d_model=D, n_heads=2, d_head=8, score="linear", keys="single", position="none"),
    "mlk": lambda: ht.Attention(d_model=D, n_heads=2, d_head=8, score="linear", keys="own"),
    "gated delta": lambda: ht.Attention(d_model=D, n_heads=4, d_head=8, score="gated_delta", position="none",
                                        delta_key_heads=2, delta_d_value=6),
    "sigmoid": lambda: ht.Attention(d_model=D, n_heads=2, d_head=8, score="sigmoid"),
    "gated output": lambda: ht.Attention(**SWITCHHEAD, gate_output="element"),
    "gated moa": lambda: ht.Attention(d_model=D, n_heads=2, d_head=8, projection="routed_heads", n_experts=6, top_k=2,
                                      gate_output="head"),
    "gqe": lambda: ht.Attention(d_model=D, n_heads=6, d_head=8, projection="routed_queries", n_kv_heads=2, top_k=2),
    "moh": lambda: ht.Attention(d_model=D, n_heads=4, d_head=8, projection="shared_and_routed", shared_heads=1, top_k=2),
    "sink": lambda: ht.Attention(d_model=D, n_heads=4, d_head=8, n_kv_heads=2, sink=True),
    "alibi": lambda: ht.Attention(d_model=D, n_heads=3, d_head=8, position="alibi", gate_output="head", gate_channels=5),
    "forgetting": lambda: ht.Attention(d_model=D, n_heads=4, d_head=8, n_kv_heads=2, position="forgetting", exclusive=True),
    "forgetting heads": lambda: ht.Attention(**SWITCHHEAD, position="forgetting", forget="head", forget_times=[2, 50]),
    "latent": lambda: ht.Attention(d_model=D, n_heads=2, d_head=8, projection="latent", kv_rank=6, q_rank=10, d_value=5),
    "grouped latents": lambda: ht.Attention(d_model=D, n_heads=4, d_head=8, projection="latent", kv_rank=6,
                                            latent_groups=2),
    "factored": lambda: ht.Attention(d_model=D, n_heads=4, d_head=8, projection="factored", kv_rank=2, q_rank=3),
    "tied": lambda: ht.Attention(d_model=D, n_heads=4, d_head=8, projection="tied", n_kv_heads=2, bias=True),
    "mlp": lambda: ht.MLP(d_model=D, d_hidden=32),
    "gated": lambda: ht.MLP(d_model=D, kind="gated", d_hidden=32, activation="silu"),
    "sigma-moe": lambda: ht.MLP(d_model=D, kind="experts", d_hidden=16, n_experts=5, top_k=2),
    "peri": lambda: ht.Block(d_model=D, norm_position="peri", attention=dict(
        n_heads=2, d_head=8, projection="experts", n_experts=3, top_k=2), mlp=dict(kind="experts", d_hidden=16, n_experts=4,
                                                                                  top_k=2)),
    "block": lambda: ht.Block(d_model=D, norm="rms", attention=dict(n_heads=2, d_head=8, position="rope"),
                              mlp=dict(kind="gated", d_hidden=40)),
}
# These references need sizes as integers.
STATIC = {"sigmoid"}


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()


def rand(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def layer(name, seed=0):
    torch.manual_seed(seed)
    return LAYERS[name]()


def gradients(module, x, run=None):
    x = x.clone().requires_grad_(True)
    y = module(x) if run is None else run(x)
    return [y, *torch.autograd.grad((y * rand(*y.shape, seed=9)).sum(), [x, *module.parameters()], allow_unused=True)]


def assert_alike(these, those, tolerance=2e-5):
    for a, b in zip(these, those, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, atol=tolerance * max(1.0, float(b.detach().abs().max())), rtol=tolerance)


def test_other_sources_memory_and_balance_losses():
    m, x, source, value = ht.Attention(d_model=D, n_heads=2, d_head=8, position="none", cross=True), *(
        rand(B, T, D, seed=i) for i in range(3))
    valid = torch.arange(T) < torch.tensor([[T], [6]])
    q, k, v = (torch.einsum("btd,dhe->bhte", of, w) for of, w in ((x, m.w_q), (source, m.w_k), (value, m.w_v)))
    p = (q @ k.transpose(2, 3) / 8**0.5).masked_fill(~valid[:, None, None], -torch.inf).softmax(-1)
    expected = torch.einsum("bhte,hed->btd", p @ v, m.w_o)
    for mask in dict(valid_keys=valid), dict(attn_mask=valid[:, None, None]):
        torch.testing.assert_close(m(x, source, source_value=value, **mask), expected)
    m = ht.Attention(d_model=D, n_heads=2, d_head=8, position="rope", memory_length=T, context_length=T)
    torch.testing.assert_close(m(x, memory=source), m(torch.cat([source, x], 1))[:, T:], atol=1e-5, rtol=1e-4)
    m = ht.Attention(d_model=D, n_heads=2, d_head=8, projection="routed_heads", n_experts=6, top_k=2, switch_coefficient=0.5,
                     z_coefficient=0.0)
    torch.nn.init.zeros_(m.select)  # a uniform router, whose loss is 1
    y, balance = m(x, valid_queries=valid, balance=True)
    torch.testing.assert_close(balance, torch.tensor(0.5))
    assert not y[~valid].any() and y[valid].any()


def test_names_and_shapes_match_the_contract():
    shapes = {name: tuple(p.shape) for name, p in layer("switchhead").named_parameters()}
    assert shapes == {"w_q": (D, 2, 8), "w_k": (D, 2, 8), "w_v": (2, 4, D, 8), "w_o": (2, 4, 8, D),
                      "select_in": (D, 2, 4), "select_out": (D, 2, 4)}


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "gated delta"])  # it needs a token
def test_sequences_without_tokens(name):
    for implementation in ("automatic", "reference"):
        assert layer(name)(rand(B, 0, D), implementation=implementation).shape == (B, 0, D)


def test_sparse_heads_of_an_encoder():
    options = dict(d_model=D, n_heads=2, d_head=8, projection="sparse_heads", sparsity=2)
    m, x = ht.Attention(**options, causal=False), rand(B, T, D)
    assert_alike(gradients(m, x), gradients(m, x, lambda x: m(x, implementation="reference")), 1e-4)
    with pytest.raises(ValueError, match="later tokens would affect"):
        ht.Attention(**options)


@pytest.mark.parametrize("name", LAYERS)
def test_an_empty_batch(name):
    y, of_x, *others = gradients(layer(name), rand(0, T, D))
    assert y.shape == of_x.shape == (0, T, D)
    assert not any(g.any() for g in others if g is not None)


def test_composed_heads_have_finite_gradients_in_float16():
    m = ht.Attention(d_model=D, n_heads=4, d_head=8, composition="dynamic", dtype=torch.float16)
    m(rand(B, 12, D).half()).float().sum().backward()
    assert all(p.grad.isfinite().all() for p in m.parameters())


def test_dropout_matches_the_attention_weights():
    m = ht.Attention(d_model=D, n_heads=2, d_head=8, dropout=0.5)
    assert "model.attention.dropout=0.5" in m.options
    x = rand(B, T, D)
    assert not torch.equal(m(x), m(x)) and torch.equal(m.eval()(x), m(x))


def test_a_parameter_may_share_its_name_with_a_scope():
    def made():
        return ht.Attention(d_model=D, n_heads=2, d_head=8, projection="factored", kv_rank=2, position="relative", position_bias=True)
    m, other = made(), made()
    assert {"v", "v.a", "v.b"} <= dict(m.named_parameters()).keys()
    other.load_state_dict(m.state_dict())
    assert torch.equal(m(rand(B, T, D)), other(rand(B, T, D)))


def hessian_product(m, x, v, **options):
    x = x.clone().requires_grad_(True)
    gradient, = torch.autograd.grad(m(x, **options).sin().sum(), x, create_graph=True)
    return torch.autograd.grad((gradient * v).sum(), x)[0]


@pytest.mark.parametrize("name", ["dense", "switchhead", "dcmha", "mgk", "gated delta", "gated", "block"])
def test_second_derivatives_need_the_reference(name):
    m, x, v = layer(name), rand(B, T, D), rand(B, T, D, seed=1)
    with pytest.raises(RuntimeError, match="derivative for headroom::.* is not implemented"):
        hessian_product(m, x, v)
    m, x, v = m.double(), x.double(), v.double()

    def gradient(x):
        x = x.clone().requires_grad_(True)
        return torch.autograd.grad(m(x).sin().sum(), x)[0]

    second = hessian_product(m, x, v, implementation="reference")
    torch.testing.assert_close(second, (gradient(x + 1e-5 * v) - gradient(x - 1e-5 * v)) / 2e-5, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_opcheck(name):
    m = layer(name)
    given = [t.detach().clone().requires_grad_(t.requires_grad) for t in m._tensors()]
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]  # compiled in test_compiled_equals_eager
    opcheck(torch.ops.headroom.layer, (rand(B, T, D).requires_grad_(True), given, m.description), dict(training=True),
            test_utils=tests)


@pytest.mark.parametrize("name", LAYERS)
def test_compiled_equals_eager(name):
    m, x = layer(name), rand(B, T, D)
    compiled = torch.compile(m, backend="aot_eager", fullgraph=True)
    assert_alike(gradients(m, x, compiled), gradients(m, x))


@pytest.mark.parametrize("name", ["switchhead", "block"])
def test_traced_equals_eager(name):
    """torch.jit's executor locks a mutex inside torch; the engine must not lock it."""
    m, x = layer(name), rand(B, T, D)
    traced = torch.jit.trace(m, (x,))
    assert torch.equal(traced(x), m(x))


@pytest.mark.parametrize("name", ["switchhead", "relative", "block"])
def test_inductor_equals_eager(name):
    m, x = layer(name), rand(B, T, D)
    assert_alike(gradients(m, x, torch.compile(m, fullgraph=True)), gradients(m, x))


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in STATIC])
def test_export_with_any_batch_and_length(name):
    m = layer(name).eval()
    lowest = 8 if name == "mgk" else 2  # where torch's matmul starts to fold its operands
    batch, length = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("length", min=lowest, max=128)
    program = torch.export.export(m, (rand(3, T, D),), dynamic_shapes=({0: batch, 1: length},), strict=False)
    for b, t in ((3, T), (4, 17), (2, lowest)):
        x = rand(b, t, D, seed=t)
        torch.testing.assert_close(program.module()(x), m(x), atol=1e-5, rtol=1e-4)


def test_copies_and_files():
    m, x = layer("switchhead"), rand(B, T, D)
    y = m(x)
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert torch.equal(other(x), y)
        assert other.w_q is not m.w_q
    fresh = layer("switchhead", seed=1)
    assert not torch.equal(fresh(x), y)
    fresh.load_state_dict(m.state_dict())
    assert torch.equal(fresh(x), y)


def test_types_and_devices():
    m, x = layer("switchhead"), rand(B, T, D)
    wide = copy.deepcopy(m).double()(x.double())
    assert wide.dtype == torch.float64
    torch.testing.assert_close(m(x), wide.float(), atol=1e-5, rtol=1e-4)
    assert copy.deepcopy(m).to(torch.bfloat16)(x.bfloat16()).dtype == torch.bfloat16
    meta = ht.Attention(**SWITCHHEAD, device="meta")
    assert meta.w_q.is_meta and meta.w_q.shape == m.w_q.shape
    with torch.device("meta"):
        assert ht.Attention(**SWITCHHEAD).w_q.is_meta


def test_numbers_of_numpy_and_torch_are_options():
    plain = ht.Attention(d_model=24, n_heads=2, d_head=8, dropout=0.5, experts=["v"], projection="experts", n_experts=2)
    for number in (np.int64, np.int32, torch.tensor):
        assert ht.Attention(d_model=number(24), n_heads=number(2), d_head=number(8), dropout=np.float32(0.5),
                            experts=np.array(["v"]), projection="experts", n_experts=number(2)).options == plain.options


def test_functional_call():
    m, x = layer("switchhead"), rand(B, T, D)
    other = {name: p * 2 for name, p in m.named_parameters()}
    twice = layer("switchhead")
    twice.load_state_dict(other)
    assert torch.equal(torch.func.functional_call(m, other, (x,)), twice(x))


def test_activation_checkpointing():
    m, x = ht.Block(d_model=D, dropout=0.5, attention=dict(n_heads=2, d_head=8)), rand(B, T, D)
    results = []
    for run in (m, lambda x: torch.utils.checkpoint.checkpoint(m, x, use_reentrant=False)):
        torch.manual_seed(4)
        results.append(gradients(m, x, run))
    assert_alike(*results, 0)
    torch.manual_seed(5)
    assert not torch.equal(m(x), results[0][0])
    assert torch.equal(m.eval()(x), m(x))


@pytest.mark.parametrize("name", ["switchhead", "block", "sigma-moe"])
def test_autocast(name):
    m, x = layer(name), rand(B, T, D)
    with torch.autocast("cpu", torch.bfloat16):
        y = m(x)
    assert y.dtype == (torch.float32 if name == "block" else torch.bfloat16)
    assert 0 < (y - m(x)).abs().max() < 0.1 * m(x).abs().max() + 0.02


def test_options_from_recipes_and_files(tmp_path):
    recipe = ht.Attention("switchhead/wt103_47m")
    assert recipe.w_v.shape[:2] == (2, 5) and "n_experts=5" in recipe.extra_repr()
    (tmp_path / "my.toml").write_text("[model]\nd_model = 48\n[model.attention]\nn_heads = 3\nd_head = 4\n")
    assert ht.Attention(tmp_path / "my.toml", d_head=6).w_q.shape == (48, 3, 6)
    assert ht.Block(str(tmp_path / "my.toml")).attention.w_q.shape == (48, 3, 4)


def test_a_layer_shows_the_keys_of_its_own_table():
    block = ht.Block(d_model=16, attention=dict(n_heads=2), mlp=dict(d_hidden=32))
    assert block.d_model == block.attention.d_model == 16
    assert repr(block.attention) == "Attention(n_heads=2)" and repr(block.ffn) == "MLP(d_hidden=32)"
    learned = {"a": {"shape": "head", "start": np.float32(0.5)}}
    assert "formula=s * a, learned=" in repr(ht.Attention(d_model=16, n_heads=2, formula="s * a", learned=learned))


REFUSALS = {
    "no such key": (lambda: ht.Attention(n_headz=2), "model.attention.n_headz: unknown key, did you mean .*n_heads"),
    "no such type": (lambda: ht.Attention(n_heads=object()), "model.attention.n_heads: must be a number, a string, .*got <object"),
    "no such type in a list": (lambda: ht.Attention(experts=["v", {1}]), "model.attention.experts: must be a number"),
    "no such layer": (lambda: ht.Attention(layer=7), r"layer must be in \[0, n_layers=4\), got 7"),
    "another width": (lambda: layer("switchhead")(rand(B, T, D + 1)), r"attention: x must be \[B, T, d_model=24\]"),
    "another type": (lambda: layer("switchhead")(rand(B, T, D).double()), "x must be Float as the parameters are"),
    "another device": (lambda: layer("switchhead")(rand(B, T, D).to("meta")), "tensors must be on one device"),
    "a mask by query": (lambda: layer("dense")(rand(B, T, D), attn_mask=torch.ones(B, 1, T, T, dtype=torch.bool)),
                        r"attn_mask must be bool \[B, 1, 1, S\].*mask_mod"),
    "a source": (lambda: layer("dense")(rand(B, T, D), rand(B, T, D)), "source must not be given"),
    "soft_e": (lambda: ht.Attention(d_model=D, score="gaussian_mixture", prior_update="soft_e")(rand(B, T, D)), "soft_e"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_value_errors_of_one_sentence(case):
    assert_refused(*REFUSALS[case])


def test_parameters_of_another_layer_are_refused():
    m = layer("switchhead")
    m.w_q = torch.nn.Parameter(rand(D, 2, 9))
    with pytest.raises(ValueError, match='"w_q" must be Float'):
        m(rand(B, T, D))
