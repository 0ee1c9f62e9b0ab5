"""Gated DeltaNet layers, compared with `transformers` (qwen3_next)."""

import pytest
import torch
from transformers import Qwen3NextConfig
from transformers.models.qwen3_next import modeling_qwen3_next as modeling

import headroom_torch as ht

D = 24


def pair(key_heads, value_heads, d_key, d_value, taps):
    """Their layer and ours with the same random parameters, and the parameters of ours as views of theirs."""
    config = Qwen3NextConfig(hidden_size=D, num_hidden_layers=4, linear_num_key_heads=key_heads, linear_key_head_dim=d_key,
                             linear_num_value_heads=value_heads, linear_value_head_dim=d_value,
                             linear_conv_kernel_dim=taps)
    torch.manual_seed(1)
    theirs = modeling.Qwen3NextGatedDeltaNet(config, layer_idx=0)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    ours = ht.Attention(d_model=D, score="gated_delta", position="none", n_heads=value_heads, d_head=d_key,
                        delta_key_heads=key_heads, delta_d_value=d_value, delta_conv_width=taps, context_length=512)
    return theirs, ours, views(theirs, key_heads, value_heads, d_key, d_value)


def views(layer, key_heads, value_heads, d_key, d_value):
    group = value_heads // key_heads
    q, k, v, z = layer.in_proj_qkvz.weight.view(key_heads, -1, D).split([d_key, d_key, group * d_value, group * d_value], 1)
    b, a = layer.in_proj_ba.weight.view(key_heads, 2 * group, D).split(group, 1)
    conv_q, conv_k, conv_v = layer.conv1d.weight.squeeze(1).split([key_heads * d_key] * 2 + [value_heads * d_value])
    heads = lambda w, n: w.reshape(n, -1, D).permute(2, 0, 1)  # noqa: E731
    return {"w_q": heads(q, key_heads), "w_k": heads(k, key_heads), "w_v": heads(v, value_heads),
            "w_z": heads(z, value_heads), "w_beta": b.reshape(value_heads, D).t(), "w_decay": a.reshape(value_heads, D).t(),
            "conv_q": conv_q.unflatten(0, (key_heads, d_key)), "conv_k": conv_k.unflatten(0, (key_heads, d_key)),
            "conv_v": conv_v.unflatten(0, (value_heads, d_value)), "a_log": layer.A_log, "dt_bias": layer.dt_bias,
            "o_norm": layer.norm.weight, "w_o": layer.out_proj.weight.t().unflatten(0, (value_heads, d_value))}


class Gradients:
    """A layer's gradients under the names of its parameters."""

    def __init__(self, layer):
        self.of = layer

    def __getattr__(self, name):
        inner = getattr(self.of, name)
        return inner.grad if isinstance(inner, torch.Tensor) else Gradients(inner)


class WideTorch:
    """torch, with float64 instead of float32."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.fixture
def in_double(monkeypatch):
    """Their layer converts to float32 inside, which moves results by up to 2e-5 of their size."""
    monkeypatch.setattr(modeling, "torch", WideTorch())
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


def results_of(layer, x, valid, key, weight):
    """The output at tokens that are not padding, and all gradients, by name."""
    layer.zero_grad()
    x = x.clone().requires_grad_(True)
    y = layer(x, **{key: valid}) * (1 if valid is None else valid.unsqueeze(2))
    (y * weight).sum().backward()
    return y.detach(), x.grad


def assert_near(got, expected, bound):
    """Relative to each tensor's largest element; gradients that vanish, to a hundredth of the largest gradient."""
    largest = max(float(value.abs().max()) for value in expected.values())
    for name, value in expected.items():
        size = max(float(value.abs().max()), 0.0 if name == "output" else 0.01 * largest)
        assert got[name].shape == value.shape, name
        assert float((got[name] - value).abs().max()) <= bound * size, name


def ours_on(layer, x, valid, weight):
    y, d_x = results_of(layer, x, valid, "valid_keys", weight)
    return {"output": y, "x": d_x, **{name: p.grad.clone() for name, p in layer.named_parameters()}}


SHAPES = [(2, 4, 16, 8, 4), (3, 3, 8, 8, 2), (1, 2, 5, 7, 3)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 65, 127])
@pytest.mark.parametrize("padded", [False, True])
def test_outputs_and_gradients(in_double, shape, tokens, padded):
    theirs, ours, parts = pair(*shape)
    ours.load_state_dict(parts)
    draw = torch.Generator().manual_seed(tokens)
    x, weight = torch.randn(2, tokens, D, generator=draw), torch.randn(2, tokens, D, generator=draw)
    valid = torch.ones(2, tokens, dtype=torch.bool)
    valid[1, : tokens // 3] = False
    valid = valid if padded else None
    single = ours_on(ours, x, valid, weight)
    exact = ours_on(ours.double(), x.double(), valid, weight.double())
    y, d_x = results_of(theirs.double(), x.double(), valid, "attention_mask", weight.double())
    assert_near(exact, {"output": y, "x": d_x, **views(Gradients(theirs), *shape[:4])}, 1e-7)
    assert_near(single, exact, 1e-4)
