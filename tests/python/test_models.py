"""Tests models as modules: parameter names, losses against plain code, decoding, and PyTorch features."""

import pickle

import pytest
import torch
import torch.nn.utils.parametrize
import torch.nn.utils.prune

import headroom_torch as ht
from refusals import assert_refused

D, T, B = 24, 10, 2


def rand(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def tiny_model(**options):
    options = {"vocabulary_size": 50, "n_layers": 2, "d_model": D, "context_length": 16, "seed": 3,
               "attention": dict(n_heads=2, d_head=8, projection="experts", n_experts=4, top_k=2, position="rope"),
               "mlp": dict(kind="experts", d_hidden=16, n_experts=4, top_k=2), **options}
    return ht.LanguageModel(**options)


def tokens(b=B, t=T, seed=0):
    return torch.randint(50, (b, t), generator=torch.Generator().manual_seed(seed))


def test_names_match_the_contract():
    model = tiny_model()
    assert {"embed", "layer0.attention.w_q", "layer1.ffn.w_up", "norm_f.scale", "head.w"} <= set(model.state_dict())


def test_an_empty_batch_of_a_model():
    model = tiny_model(mlp=dict(d_hidden=32))
    assert model(tokens(0)).shape == (0, T, 50)
    loss = model.loss(tokens(0), tokens(0))
    loss.backward()
    assert loss == 0 and not any(p.grad.any() for p in model.parameters() if p.grad is not None)


def test_a_decoder_without_rows():
    assert tiny_model().decoder(0).read(tokens(0)).shape == (0, 50)
    with pytest.raises(ValueError, match="rows must be at least 0, got -1"):
        tiny_model().decoder(-1)


class Half(torch.nn.Module):
    def forward(self, x):
        return x * 0.5


@pytest.mark.parametrize("options", [dict(), dict(tied_embeddings=True)], ids=["own", "tied"])
def test_parameters_can_be_replaced(options):
    """functional_call(), parametrize and prune replace parameters; the embedding is read like any other parameter."""
    halved = tiny_model(**options)
    with torch.no_grad():
        halved.embed.mul_(0.5)
    expected = halved(tokens())
    model = tiny_model(**options)
    values = {**dict(model.named_parameters()), "embed": model.embed * 0.5}
    assert torch.equal(torch.func.functional_call(model, values, (tokens(),)), expected)
    torch.nn.utils.parametrize.register_parametrization(model, "embed", Half())
    assert torch.equal(model(tokens()), expected)
    model.loss(tokens(), tokens()).backward()
    assert model.parametrizations.embed.original.grad.any()
    torch.nn.utils.prune.random_unstructured(halved, "embed", 0.5)
    with torch.no_grad():
        pruned = tiny_model(**options)
        pruned.embed.copy_(halved.embed)
    assert torch.equal(halved(tokens()), pruned(tokens()))


def test_export_of_a_model():
    model = tiny_model().eval()
    dims = ({0: torch.export.Dim("batch", min=2, max=64), 1: torch.export.Dim("length", min=2, max=16)},)
    program = torch.export.export(model, (tokens(),), dynamic_shapes=dims, strict=False)
    for b, t in ((B, T), (5, 16), (3, 3)):
        torch.testing.assert_close(program.module()(tokens(b, t)), model(tokens(b, t)), atol=1e-5, rtol=1e-4)


def test_copies():
    model = tiny_model()
    assert torch.equal(pickle.loads(pickle.dumps(model))(tokens()), model(tokens()))


def test_a_model_depends_on_its_seed_and_learns():
    model = tiny_model()
    assert torch.equal(tiny_model().head.w, model.head.w)
    assert not torch.equal(tiny_model(seed=4).head.w, model.head.w)
    batch = tokens(4, 17)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = model.loss(batch[:, :-1], batch[:, 1:])
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.parametrize("options", [{}, {"adaptive_cutoffs": [10, 30]}], ids=["softmax", "adaptive"])
def test_a_loss_over_no_targets_is_0(options):
    model = tiny_model(attention=dict(n_heads=2, d_head=8), mlp=dict(d_hidden=32), **options)  # without balance losses
    loss = model.loss(tokens(), torch.full_like(tokens(), -100))
    loss.backward()
    assert loss == 0 and all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


MIXED = dict(layers=[dict(attention=dict(window=3, composition="dynamic", projection="dense"), mlp=dict(kind="dense")),
                     dict(attention=dict(n_heads=3))])


def test_generate():
    model = tiny_model().eval()
    written = model.generate(tokens(2, 4), 6, temperature=0)
    assert written.shape == (2, 10)
    for i in range(4, 10):
        assert torch.equal(written[:, i], model(written[:, :i])[:, -1].argmax(-1))
    draw = lambda seed: model.generate(tokens(2, 4), 20, generator=torch.Generator().manual_seed(seed))  # noqa: E731
    assert torch.equal(draw(1), draw(1)) and not torch.equal(draw(1), draw(2))
    assert torch.equal(model.generate(tokens(2, 4), 6, top_k=1), written)
    assert torch.equal(model.generate(tokens(2, 4), 6, temperature=1e-320), written)
    assert model.generate(tokens(2, 4)[:0], 6).shape == (0, 10)
    ties = ht.decoding.draw(torch.zeros(500, 5), 1.0, 2, 1.0, None)
    assert set(ties.flatten().tolist()) == {0, 1}  # exactly top_k, the smaller ids
    with pytest.raises(ValueError, match="temperature"):
        model.generate(tokens(2, 4), 1, temperature=float("nan"))
    with pytest.raises(ValueError, match=r"top_p in \(0, 1\]"):
        model.generate(tokens(2, 4), 1, top_p=0)


def test_the_other_models():
    common = dict(vocabulary_size=50, n_layers=1, d_model=D, context_length=T, mlp=dict(d_hidden=32),
                  attention=dict(n_heads=2, d_head=8, position="sinusoidal"), seed=1)
    text, other = tokens(), tokens(seed=1)
    masked = ht.MaskedLanguageModel(**common)
    hidden = torch.where(torch.arange(T) % 3 == 0, text, -1)
    expected = torch.nn.functional.cross_entropy(masked(other)[:, ::3].flatten(0, 1), text[:, ::3].flatten())
    torch.testing.assert_close(masked.loss(other, hidden), expected)
    translator = ht.EncoderDecoder(**common)
    torch.testing.assert_close(translator.loss(text, other, text, label_smoothing=0.1), torch.nn.functional.cross_entropy(
        translator(text, other).flatten(0, 1), text.flatten(), label_smoothing=0.1))
    label = torch.tensor([0, 2])
    classifier = ht.Classifier(**common, n_classes=3)
    torch.testing.assert_close(classifier.loss(text, label), torch.nn.functional.cross_entropy(classifier(text), label))
    vision = ht.VisionTransformer(image_size=8, patch_size=4, n_classes=3, d_head_hidden=5,
                                  **{**common, "context_length": 4})
    torch.nn.init.normal_(vision.head.w_down)
    images = rand(B, 3, 8, 8)
    loss = vision.loss(images, label)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(vision(images), label))
    loss.backward()
    assert all(p.grad is not None for p in vision.parameters())


def test_layers_that_differ():
    model = tiny_model(**MIXED)
    text = tokens(2, 12)
    whole = model(text)
    assert model.layer0.attention.w_q.shape[1] == 2 and model.layer1.attention.w_q.shape[1] == 3
    assert not hasattr(model.layer0.ffn, "select") and hasattr(model.layer1.ffn, "select")
    model.layer1.register_forward_hook(lambda *_: None)  # computes layer by layer
    torch.testing.assert_close(model(text), whole, atol=1e-5, rtol=1e-4)


REFUSALS = {
    "too long": (lambda: tiny_model()(tokens(2, 17)), "at most context_length=16 tokens, got 17"),
    "no tokens": (lambda: tiny_model()(rand(2, 4)), "embedding: tokens must be"),
    "targets": (lambda: tiny_model().loss(tokens(), tokens(2, 3)),
                rf"targets must be of the tokens' shape \[{B}, {T}\], got \[2, 3\]"),
    "memory": (lambda: tiny_model()(tokens(2, 3), [rand(2, 3, 4)]), "memory must be one tensor for each of 2 layers, got 1"),
    "rows of a decoder": (lambda: tiny_model().decoder(2).read(tokens(3)), "decoding: tokens must be int64"),
    "a text": (lambda: tiny_model()("hello"), "LanguageModel: the input must be a tensor, got 'hello'"),
    "a list to classify": (lambda: ht.Classifier(n_layers=1, n_classes=2)([1]), r"Classifier: the input must be a tensor, got \[1\]"),
    "a text to continue": (lambda: tiny_model().generate("hello", 3), "generate: tokens must be int64 .*encode"),
    "no such recipe": (lambda: ht.LanguageModel("switchhead/wt103_47n"), "did you mean switchhead/wt103_47m"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_are_value_errors_of_one_sentence(case):
    assert_refused(*REFUSALS[case])
