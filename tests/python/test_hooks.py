"""Hooks of attention layers, MLPs, norms and blocks do not change results; values can be observed."""

import copy

import pytest
import torch

import headroom_torch as ht
from refusals import assert_refused

D, T, B, V = 24, 10, 2, 50
EXPERTS = dict(n_heads=2, d_head=8, projection="experts", n_experts=4, top_k=2)
BLOCKS = {
    "dense": dict(attention=dict(n_heads=2, d_head=8, position="rope"), mlp=dict(d_hidden=32)),
    "switchhead": dict(attention=dict(**EXPERTS, position="relative"), dropout=0.2,
                       mlp=dict(kind="experts", d_hidden=16, n_experts=4, top_k=2)),
    "parallel": dict(arrangement="parallel", norm="rms", attention=dict(n_heads=2, d_head=8, window=4), n_layers=2),
    "peri": dict(norm_position="peri", attention=dict(**EXPERTS, position="rope", expert_entropy_coefficient=0.01),
                 mlp=dict(kind="experts", d_hidden=16, n_experts=4, top_k=2)),
    "post": dict(norm_position="post", dropout=0.2, attention=dict(n_heads=4, d_head=8, composition="dynamic")),
}


def rand(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def tokens(b=B, t=T, seed=0):
    return torch.randint(V, (b, t), generator=torch.Generator().manual_seed(seed))


def hooked(module, names):
    """Returns a copy with hooks on these sub-modules, and the recorded calls."""
    other, seen = copy.deepcopy(module), {}
    for name in names:
        other.get_submodule(name).register_forward_hook(
            lambda m, given, result, name=name: seen.setdefault(name, (given[0], result)) and None)
    return other, seen


def changed(model):
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def assert_same(these, those):
    for a, b in zip(these, those, strict=True):
        torch.testing.assert_close(a, b, atol=0 if a.dim() else 1e-6, rtol=0 if a.dim() else 1e-6)


def passed(module, run):
    """Returns results and gradients for fixed random numbers."""
    torch.manual_seed(7)
    results = run(module)
    sum((r * rand(*r.shape, seed=3)).sum() for r in results).backward()
    return [*results, *(p.grad for p in module.parameters())]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_in_parts_equals_the_operator(name, training):
    torch.manual_seed(0)
    block = ht.Block(d_model=D, memory_length=16, context_length=16, **BLOCKS[name]).train(training)
    parts = ["norm_1", "attention", "norm_2", "ffn"]
    other, seen = hooked(block, parts)
    x, memory, valid = rand(B, T, D), rand(B, 6, D, seed=1), torch.ones(B, 6 + T, dtype=torch.bool)
    valid[1, -3:] = False
    run = lambda m: m(x, memory=memory, valid_keys=valid, remember=True, balance=True)  # noqa: E731
    assert_same(passed(block, run), passed(other, run))
    assert list(seen) == (["attention", "norm_1", "ffn", "norm_2"] if name == "post" else parts)
    assert all(given.shape == result.shape == x.shape for given, result in seen.values())


def test_cross_attention_in_parts():
    block = ht.Block(d_model=D, cross=True, **BLOCKS["dense"])
    other, seen = hooked(block, ["norm_cross", "cross"])
    x, source, valid = rand(B, T, D), rand(B, 7, D, seed=1), torch.ones(B, 7, dtype=torch.bool)
    valid[0, 5:] = False
    run = lambda m: [m(x, source, valid_source=valid)]  # noqa: E731
    assert_same(passed(block, run), passed(other, run))
    assert len(seen) == 2
    assert not torch.equal(block(x, source, valid_source=valid), block(x, source))


def model_of(**options):
    return changed(ht.LanguageModel(**{"vocabulary_size": V, "n_layers": 2, "d_model": D, "context_length": 16, "seed": 3,
                                       **BLOCKS["switchhead"], **options}))


def test_hooks_of_a_language_model():
    model = model_of(tied_embeddings=True, dropout=0.0).eval()
    names = ["layer0.attention", "layer0", "layer1.norm_2", "layer1.ffn", "norm_f", "head"]
    other, seen = hooked(model, names)
    assert torch.equal(other(tokens()), model(tokens()))
    assert list(seen) == names and seen["head"][1].shape == (B, T, V)
    assert_same(passed(model, lambda m: [m.loss(tokens(), tokens(seed=1))]),
                passed(other, lambda m: [m.loss(tokens(), tokens(seed=1))]))


def test_a_hook_changes_what_is_computed():
    model = model_of(dropout=0.0).eval()
    plain = model(tokens())
    handle = model.layer1.attention.register_forward_hook(lambda m, given, result: torch.zeros_like(result))
    without = model(tokens())
    assert (without - plain).abs().max() > 1e-3
    written = model.generate(tokens(2, 3), 6, temperature=0)
    for i in range(3, 9):
        assert torch.equal(written[:, i], model(written[:, :i])[:, -1].argmax(-1))
    handle.remove()
    assert torch.equal(model(tokens()), plain)
    handle = model.layer1.ffn.register_forward_pre_hook(lambda m, given: (given[0] * 0,))
    assert (model(tokens()) - plain).abs().max() > 1e-3
    handle.remove()
    grads = []
    handle = model.layer0.attention.register_full_backward_hook(lambda m, into, out: grads.append(out[0].shape))
    model.loss(tokens(), tokens(seed=1)).backward()
    assert grads == [(B, T, D)]
    handle.remove()
    calls = []
    handle = torch.nn.modules.module.register_module_forward_hook(lambda m, given, result: calls.append(type(m).__name__))
    model(tokens())
    handle.remove()
    assert calls.count("Attention") == calls.count("MLP") == calls.count("Block") == 2


def test_a_part_can_be_replaced():
    model = model_of(dropout=0.0).eval()
    before = model(tokens())
    expected = copy.deepcopy(model)
    expected.layer0.ffn.register_forward_hook(lambda m, given, result: given[0] * 0.5)
    class Half(torch.nn.Module):
        def forward(self, x):
            return x * 0.5
    model.layer0.ffn = Half()
    assert torch.equal(model(tokens()), expected(tokens())) and not torch.equal(model(tokens()), before)
    assert model.generate(tokens(1, 3), 2).shape == (1, 5)


def test_decoding_with_hooks_has_no_dropout_in_training():
    model = model_of(dropout=0.5).train()
    model.layer0.norm_1.eval()
    other, seen = hooked(model, ["layer0.ffn"])
    assert torch.equal(other.generate(tokens(), 6, temperature=0), model.generate(tokens(), 6, temperature=0)) and seen
    assert other.training and other.layer1.training and not other.layer0.norm_1.training


@pytest.mark.parametrize("options", [dict(), dict(memory_length=16), dict(n_layers=4, n_groups=2)])
def test_decoding_with_hooks_equals_the_cache(options):
    model = model_of(dropout=0.0, **options).eval()
    other, seen = hooked(model, ["layer0.attention"])
    decoders = [m.decoder(2) for m in (model, other)]
    assert not isinstance(decoders[1], ht.Decoder)
    text, valid = tokens(2, 40, seed=5), torch.ones(2, 40, dtype=torch.bool)
    valid[1, :9] = False
    for begin, end in ((0, 20), (20, 21), (21, 36), (36, 37)):
        ours, theirs = (d.read(text[:, begin:end], valid[:, begin:end]) for d in decoders)
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    for d in decoders:
        d.reorder(torch.tensor([1, 1, 0]))
    ours, theirs = (d.read(text[:1, 37:38].expand(3, 1)) for d in decoders)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    assert seen
    for d in decoders:
        assert_refused(lambda: d.reorder(torch.tensor([3])), "rows must be in")
        assert_refused(lambda: d.read(tokens(2)), "tokens must be int64")


COMMON = dict(vocabulary_size=V, n_layers=2, d_model=D, context_length=T, seed=1, attention=dict(
    **EXPERTS, position="sinusoidal"), mlp=dict(kind="experts", d_hidden=16, n_experts=4, top_k=2,
                                               entropy_coefficient=0.01))
VALID = torch.arange(T) < torch.tensor([[T], [6]])
LABEL = torch.tensor([0, 2])
IMAGES = rand(B, 3, 8, 8)
HIDDEN = torch.where(torch.arange(T) % 3 == 0, tokens(), -1)
OTHERS = {
    "masked": (lambda: ht.MaskedLanguageModel(**COMMON), ["layer1.attention"],
               lambda m: [m(tokens(), VALID), m.loss(tokens(), HIDDEN, VALID)]),
    "repeated": (lambda: ht.MaskedLanguageModel(**{**COMMON, "n_layers": 4}, n_groups=2, norm_position="peri"),
                 ["layer1.attention"], lambda m: [m(tokens(), VALID), m.loss(tokens(), HIDDEN, VALID)]),
    "pairs": (lambda: ht.Classifier(**COMMON, n_classes=3, paired=True), ["layer0.ffn", "norm_f"],
              lambda m: [m(tokens(), tokens(seed=1)), m.loss(tokens(), LABEL, tokens(seed=1))]),
    "vision": (lambda: ht.VisionTransformer(**{**COMMON, "context_length": 4}, image_size=8, patch_size=4, n_classes=3),
               ["layer0.norm_1"], lambda m: [m(IMAGES), m.loss(IMAGES, LABEL)]),
    "translator": (lambda: ht.EncoderDecoder(**COMMON, n_decoder_layers=3, tied_embeddings=True),
                   ["encoder.layer1.ffn", "encoder.norm_f", "decoder.layer2.cross", "decoder.norm_f"],
                   lambda m: [m(tokens(), tokens(seed=1), VALID, VALID.flip(0)),
                              m.loss(tokens(), tokens(seed=1), tokens(seed=2), VALID, label_smoothing=0.1)]),
    "post": (lambda: ht.EncoderDecoder(**COMMON, norm_position="post"), ["decoder.layer1"],
             lambda m: [m(tokens(), tokens(seed=1))]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_hooks_of_the_other_models(name):
    make, names, run = OTHERS[name]
    model = changed(make())
    other, seen = hooked(model, names)
    for a, b in zip(passed(model, run), passed(other, run), strict=True):
        torch.testing.assert_close(a, b, atol=2e-6, rtol=1e-5)
    assert list(seen) == names
    patterns = ["*embedding", "*layer*.out"] if name in ("translator", "post") else ["embedding", "layer*.out"]
    values = []
    for m in (model, other):
        with ht.observe(*(p if p.startswith(("e", "l")) else p.replace("*", "*coder.", 1) for p in patterns)) as found:
            run(m)
        values.append(found)
    assert values[0].keys() == values[1].keys()
    for key in values[0]:
        torch.testing.assert_close(values[0][key], values[1][key], atol=1e-5, rtol=1e-5)


def test_observed_values():
    model = model_of(dropout=0.0, attention=dict(**EXPERTS, position="rope")).eval()
    plain = model(tokens())
    with ht.observe("embedding", "layer*.attention.probs", "layer*.attention.select_*.index", "layer*.ffn.*",
                    "layer*.out", "norm_f") as values:
        with ht.observe("layer1.attention.o") as more:
            logits = model(tokens())
        inside = list(values)
    torch.testing.assert_close(logits, plain, atol=1e-5, rtol=1e-4)
    assert list(values) == inside and values["layer1.out"].shape == values["embedding"].shape == (B, T, D)
    probs = values["layer1.attention.probs"]
    torch.testing.assert_close(probs.sum(-1), torch.ones(B, 2, T))
    assert not probs.detach().triu(1).any() and more["layer1.attention.o"].shape == (B, 2, T, 8)
    assert values["layer0.attention.select_in.index"].shape == (B * T, 2, 2)
    assert {"layer0.ffn.out"} < {name for name in values if ".ffn." in name}
    other, _ = hooked(model, ["layer0.ffn"])
    with ht.observe(*(name.replace("layer0.", "layer*.") for name in values if "1" not in name)) as again:
        other(tokens())
    assert again.keys() == values.keys()
    for name, value in values.items():
        torch.testing.assert_close(again[name], value, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(model.head(values["norm_f"]), logits)
    torch.autograd.grad(probs[..., 0].sum(), model.layer0.attention.w_q)
    with ht.observe("layer1.attention.probs") as step:
        model.generate(tokens(1, 5), 3)
    assert step["layer1.attention.probs"].shape == (1, 2, 1, 7)
    with ht.observe("attention.probs") as alone:
        ht.Block(d_model=D, **BLOCKS["dense"])(rand(B, T, D))
    assert alone["attention.probs"].shape == (B, 2, T, T)


def test_refusals():
    model = model_of()
    def look(*patterns, run=lambda: model(tokens())):
        with ht.observe(*patterns):
            run()
    assert_refused(lambda: look("layer9.out"), "'layer9.out'")
    assert_refused(lambda: look("layer0.out", run=lambda: model.generate(tokens(), 2)), "one row at a time, got 2")
    with pytest.raises(RuntimeError, match="mine"):
        with ht.observe("layer9.out"):
            raise RuntimeError("mine")
    model(tokens())


def test_compiled_with_hooks():
    torch._dynamo.reset()
    model = model_of(dropout=0.0).eval()
    other, _ = hooked(model, [])
    other.layer0.attention.register_forward_hook(lambda m, given, result: result * 0.5)
    expected = other(tokens())
    torch.testing.assert_close(torch.compile(other, backend="aot_eager")(tokens()), expected, atol=1e-5, rtol=1e-4)
    assert (expected - model(tokens())).abs().max() > 1e-3
