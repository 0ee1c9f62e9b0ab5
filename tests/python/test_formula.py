"""Compares formulas of attention scores with autograd of plain operations, and traces functions to formulas."""

import math
import random

import pytest
import torch

import headroom_torch
import headroom_torch.functional as hf
from headroom_torch._library import ops
from refusals import assert_refused

B, H, T, E, SIZE = 2, 4, 9, 5, 6


class Table:
    def __init__(self, values):
        self.values = values

    def __getitem__(self, index):
        h = torch.arange(H).view(H, 1, 1)
        return self.values[0][h, index.floor().clamp(0, SIZE - 1).long()]


def random_formula(draw, depth):
    """Returns an expression that is finite and smooth in s almost everywhere; it compares only positions."""
    if depth == 0:
        return draw.choice(["s", "s", "s / 3", "learned0", "table0[i - j]", "table0[(i + 2 * j) % 5]", "token0(i)", "token0(j)",
                            "(i - j) / 5", "0.7", "h / n_heads"])
    a, b = (random_formula(draw, depth - 1) for _ in range(2))
    return draw.choice([
        f"({a} + {b})", f"({a} - {b})", f"({a}) * ({b})", f"({a}) / (1.5 + abs({b}))", f"min({a}, {b})", f"max({a}, {b})",
        f"tanh({a})", f"sigmoid({a})", f"exp(tanh({a}))", f"log(1 + abs({a}))", f"log1p(relu({a}))", f"sqrt(0.3 + abs({a}))",
        f"log_sigmoid({a})", f"softplus({a})", f"-({a})", f"({a}) ** 2", f"(1 + abs({a})) ** -0.5",
        f"where(i - j < {draw.randrange(4)}, {a}, {b})", f"where(i // 3 == j // 3, {a}, {b})"])


def plain(formula, q, k, v, learned, table, token):
    s = q @ k.mT / math.sqrt(E)
    i, j = torch.arange(float(T), dtype=q.dtype).view(T, 1), torch.arange(float(T), dtype=q.dtype)
    names = {name: getattr(torch, name) for name in ("tanh", "sigmoid", "exp", "log1p", "sqrt", "relu", "abs")}
    tensor = lambda x: x if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=q.dtype)  # noqa: E731
    names = {name: (lambda x, f=f: f(tensor(x))) for name, f in names.items()}
    names |= {"log": lambda x: tensor(x).log(), "log_sigmoid": lambda x: torch.nn.functional.logsigmoid(tensor(x)),
              "softplus": lambda x: torch.nn.functional.softplus(tensor(x)),
              "min": lambda a, b: torch.minimum(tensor(a), tensor(b)), "max": lambda a, b: torch.maximum(tensor(a), tensor(b)),
              "where": lambda c, a, b: torch.where(c, tensor(a), tensor(b)),
              "s": s, "i": i, "j": j, "h": torch.arange(float(H), dtype=q.dtype).view(H, 1, 1), "n_heads": H,
              "learned0": learned.view(H, 1, 1), "table0": Table(table),
              "token0": lambda x: token.unsqueeze(3) if x is i else token.unsqueeze(2)}
    score = tensor(eval(formula.replace("n_heads", "4"), {"__builtins__": {}}, names)) + 0 * s
    return score.masked_fill(~((j <= i) & ((i - j < 5) | (j < 2))), -torch.inf).softmax(-1) @ v


def inputs(seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(B, H, T, E)] * 3 + [(H,), (1, H, SIZE), (B, H, T)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def results(o, tensors):
    grad = torch.linspace(-1, 1, o.numel(), dtype=o.dtype).view(o.shape)
    grads = torch.autograd.grad(o, tensors, grad, allow_unused=True)
    return [o, *(torch.zeros_like(t) if g is None else g for t, g in zip(tensors, grads))]


def fused(formula, tensors, implementation="automatic"):
    q, k, v, learned, table, token = tensors
    return ops.attention(q, k, v, scale=1 / math.sqrt(E), formula=formula, formula_mask="i - j < 5 or j < 2",
                         formula_learned=[learned], formula_tables=[table], formula_tokens=[token],
                         implementation=implementation)


@pytest.mark.parametrize("part", range(4))
def test_random_formulas_equal_plain_operations(part):
    for seed in range(part * 50, part * 50 + 50):
        body = random_formula(random.Random(seed), 3)
        formula = f"8 * tanh(({body.replace('n_heads', '4')}) / 8)"
        exact, single = inputs(seed), inputs(seed, torch.float32)
        expected = results(plain(formula, *exact), exact)
        for got, wanted in zip(results(fused(formula, exact), exact), expected):
            assert (got - wanted).abs().max() <= 1e-9 * (1 + wanted.abs().max()), formula
        for got, wanted in zip(results(fused(formula, single), single), expected):
            assert (got - wanted).abs().max() <= 2e-4 * (1 + wanted.abs().max()), formula


def test_a_formula_has_second_derivatives():
    tensors = [t[..., :2, :] if t.dim() == 4 else t[..., :2] if t.dim() == 3 and t.shape[0] == B else t for t in inputs(0)]
    tensors = [t.detach().requires_grad_() for t in tensors]
    formula = "tanh(s) * learned0 - table0[i - j] + token0(i) * token0(j)"
    assert torch.autograd.gradgradcheck(lambda *t: fused(formula, t), tensors, fast_mode=True)


def test_indices_outside_a_table_are_clamped_by_both_implementations():
    tensors = inputs(1, torch.float32)
    whole = fused("s + table0[where(i == 3, 0 / (i - 3), 100 - 60 * (i - j))]", tensors)
    reference = fused("s + table0[where(i == 3, 0 / (i - 3), 100 - 60 * (i - j))]", tensors, "reference")
    torch.testing.assert_close(whole, reference)


def flex(q, k, v, score, mask, **more):
    return hf.flex_attention(q, k, v, score_mod=score, mask_mod=mask, **more)


def test_flex_attention_has_gradients_of_captured_tensors():
    q, k, v, slope, table, _ = inputs(2)
    bias, temperature = torch.randn(B, H, T, T, dtype=q.dtype), torch.tensor(0.7, dtype=q.dtype)
    documents = torch.tensor([[0] * 4 + [1] * 5, [0] * 6 + [2] * 3])
    captured = [slope, table, bias.requires_grad_(), temperature.requires_grad_()]
    score = lambda s, b, h, i, j: (torch.where((i - j) % 3 == 0, s * temperature, torch.tanh(s)) + bias[b, h, i, j]  # noqa: E731
                                   - slope.exp()[h] * (i - j).abs() + table[0, h, (i - j).clamp(0, SIZE - 1)])
    mask = lambda b, h, i, j: (j <= i) & ((documents[b, i] == documents[b, j]) | (j == 0))  # noqa: E731
    b, h = torch.arange(B).view(B, 1, 1, 1), torch.arange(H).view(H, 1, 1)
    i, j = torch.arange(T).view(T, 1), torch.arange(T)
    expected = score(q @ k.mT / math.sqrt(E), b, h, i, j).masked_fill(~mask(b, h, i, j), -torch.inf).softmax(-1) @ v
    tensors = [q, k, v, *captured]
    for got, wanted in zip(results(flex(q, k, v, score, mask), tensors), results(expected, tensors)):
        torch.testing.assert_close(got, wanted)


def test_flex_attention_takes_grouped_keys_block_masks_and_returns_the_denominators():
    flex_attention = pytest.importorskip("torch.nn.attention.flex_attention")
    q, k, v = (t.detach().float() for t in inputs(3)[:3])
    k, v = k[:, :2], v[:, :2]
    causal = lambda b, h, i, j: (j <= i) & (i > 1)  # noqa: E731
    block = flex_attention.create_block_mask(causal, B, H, T, T, device="cpu")
    o, lse = hf.flex_attention(q, k, v, None, block, enable_gqa=True, return_lse=True)
    s = q @ k.repeat_interleave(2, 1).mT / math.sqrt(E)
    i, j = torch.arange(T).view(T, 1), torch.arange(T)
    s = s.masked_fill(~causal(0, 0, i, j), -torch.inf)
    torch.testing.assert_close(lse, s.logsumexp(-1))
    torch.testing.assert_close(o, (s.softmax(-1).nan_to_num(0.0)) @ v.repeat_interleave(2, 1))
    assert not o[:, :, :2].any()


def test_what_cannot_be_traced_is_refused_with_its_line():
    q = torch.zeros(B, H, T, E)
    table, large = torch.zeros(H, 3), torch.arange(2**24, 2**24 + T)
    for function, sentence in [
            (lambda s, b, h, i, j: torch.sin(s), "the operation sin is not supported"),
            (lambda s, b, h, i, j: s if i > j else 2 * s, "a branch on a value of a pair"),
            (lambda s, b, h, i, j: s + b, "arithmetic with the batch index"),
            (lambda s, b, h, i, j: s + table[h], "an index that leaves more than one element"),
            (lambda s, b, h, i, j: s + table, "that is not indexed"),
            (lambda s, b, h, i, j: s * float(i), "to a Python number"),
            (lambda s, b, h, i, j: s + ((i - j) & 1), "the bitwise operation and on numbers"),
            (lambda s, b, h, i, j: s + ~torch.bitwise_xor(i, j), "the bitwise operation bitwise_xor on numbers"),
            (lambda s, b, h, i, j: s + (large[i] == large[j]), "integers that float32 cannot represent")]:
        line = function.__code__.co_firstlineno
        assert_refused(lambda: hf.flex_attention(q, q, q, function), f"{sentence}.*test_formula.py, line {line}")
    assert_refused(lambda: hf.flex_attention(q, q[:, :2], q[:, :2]), "set enable_gqa=True")
    assert_refused(lambda: ops.attention(q, q, q, formula="s +"), "formula: column 4: expected a value, got the end")


def test_decoding_equals_the_whole_pass_with_learned_values(tmp_path):
    (tmp_path / "mine.toml").write_text(
        '[model]\nvocabulary_size = 50\nn_layers = 2\nd_model = 32\ncontext_length = 24\n[model.attention]\nn_heads = 4\n'
        'n_kv_heads = 2\nd_head = 8\nposition = "none"\nformula = "s * tanh(decay(j)) - slope * near[h, i - j] + decay(i)"\n'
        'mask = "i - j < 7 or j % 5 == 0"\nnormalise = "none"\nlearned = { decay = { shape = "token, head" }, '
        'slope = { shape = "head", start = 0.5 }, near = { shape = "head, distance", size = 8, start = 0.1 } }\n'
        '[model.mlp]\nd_hidden = 64\n')
    model = headroom_torch.LanguageModel(str(tmp_path / "mine.toml"), seed=1).eval()
    tokens = torch.randint(0, 50, (2, 24), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole, decoder = model(tokens), model.decoder(rows=2)
        torch.testing.assert_close(decoder.read(tokens[:, :5]), whole[:, 4], atol=1e-5, rtol=1e-4)
        for t in range(5, 24):
            torch.testing.assert_close(decoder.read(tokens[:, t:t + 1]), whole[:, t], atol=1e-5, rtol=1e-4)
