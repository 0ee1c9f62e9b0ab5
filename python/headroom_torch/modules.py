"""Layers as torch.nn.Modules that own parameters and nothing else: what they compute is the engine's."""

from __future__ import annotations

import json
from typing import Any, Optional

import torch
from torch import Tensor, nn

from ._library import ops

__all__ = ["Attention", "Block", "MLP"]


def _settings(prefix: str, options: dict[str, Any]) -> list[str]:
    """Keywords as the engine's key=value; a dict is a table."""
    settings = []
    for key, value in options.items():
        if isinstance(value, dict):
            settings += _settings(f"{prefix}{key}.", value)
        else:
            settings.append(f"{prefix}{key}={json.dumps(value)}")
    return settings


class _Scope(nn.Module):
    """A name in front of parameters: `norm_1` of `norm_1.scale`."""


class Layer(nn.Module):
    """The base of all: a description of the layer, and its parameters under the names of Headroom's checkpoints."""

    def __init__(self, description: str, values: list[Tensor]):
        super().__init__()
        self.description = description
        parameters = json.loads(ops.parameters_of(description))
        self._names = [p["name"] for p in parameters]
        self._fill({p["name"]: (value, p["buffer"]) for p, value in zip(parameters, values)})

    @classmethod
    def _made(cls, description: str, values: list[Tensor]):
        module = cls.__new__(cls)
        Layer.__init__(module, description, values)
        return module

    def _fill(self, values: dict[str, tuple[Tensor, bool]]) -> None:
        for name, (value, buffer) in values.items():
            *path, leaf = name.split(".")
            owner = self
            for step in path:
                if step not in owner._modules:
                    owner.add_module(step, _Scope())
                owner = owner._modules[step]
            if buffer:
                owner.register_buffer(leaf, value)
            else:
                owner.register_parameter(leaf, nn.Parameter(value))

    def _tensors(self) -> list[Tensor]:
        """In the order that the engine takes them in."""
        tensors = []
        for name in self._names:
            tensor = self
            for step in name.split("."):
                tensor = getattr(tensor, step)
            tensors.append(tensor)
        return tensors

    def _run(self, x: Tensor, implementation: str, balance: bool = False, **inputs) -> list[Tensor]:
        return ops.layer(x, self._tensors(), self.description, training=self.training, balance=balance,
                         implementation=implementation, **inputs)

    @property
    def options(self) -> list[str]:
        """What differs from the defaults: ["model.n_layers=2", ...]."""
        return json.loads(self.description)["settings"]

    def extra_repr(self) -> str:
        return ", ".join(setting.removeprefix("model.") for setting in self.options)


def initial_values(description: str, seed: Optional[int] = None, device=None, dtype=None) -> list[Tensor]:
    """As training would begin with them; without a seed it follows torch's generator."""
    device, dtype = torch.device(device or torch.get_default_device()), dtype or torch.get_default_dtype()
    if device.type == "meta":
        return [torch.empty(p["shape"], device=device, dtype=dtype) for p in json.loads(ops.parameters_of(description))]
    seed = int(torch.randint(2**62, (), device="cpu")) if seed is None else seed
    with torch.device("cpu"):
        values = ops.initial_parameters(description, seed)
    return [value.to(device=device, dtype=dtype) for value in values]


def _describe(kind: str, origin: str, source: Optional[str], settings: list[str], causal=True, cross=False,
              layer=0) -> str:
    return ops.describe_layer(kind, origin, "" if source is None else str(source), settings, causal, cross, layer)


# Keys of [model] that say where an attention layer or an MLP stands.
_PLACE = ("d_model", "n_layers", "context_length", "memory_length", "dropout", "vocabulary_size")


def _of_part(table: str, options: dict[str, Any]) -> list[str]:
    place = {key: options[key] for key in _PLACE if key in options}
    rest = {key: value for key, value in options.items() if key not in place}
    return _settings("model.", place) + _settings(f"model.{table}.", rest)


class Attention(Layer):
    """One attention layer: projection x score x composition x position x mask.

        Attention(d_model=64, n_heads=2, d_head=16, projection="experts", experts=["v", "o"], n_experts=4, top_k=2)
        Attention("switchhead/wt103_47m")           # a recipe's, or that of a TOML file
        Attention("my.toml", layer=3, n_heads=4)    # of its fourth layer, with other options on top

    Keywords are the keys of [model.attention], and d_model, n_layers (which the initial values depend on),
    context_length, memory_length of [model], with the same defaults and refusals (ValueError). causal=False: every query
    sees every key. cross=True: keys and values come from another sequence. device, dtype: of the parameters.
    """

    def __init__(self, source: Optional[str] = None, *, causal: bool = True, cross: bool = False, layer: int = 0,
                 device=None, dtype=None, **options):
        description = _describe("attention", "Attention", source, _of_part("attention", options), causal and not cross,
                                cross, layer)
        super().__init__(description, initial_values(description, None, device, dtype))

    def forward(self, x: Tensor, source: Optional[Tensor] = None, *, source_value: Optional[Tensor] = None,
                memory: Optional[Tensor] = None, valid_keys: Optional[Tensor] = None,
                valid_queries: Optional[Tensor] = None, balance: bool = False, implementation: str = "automatic"):
        """[B, T, d_model] to the same shape.

        source [B, S, d_model] (cross=True only): what keys, and values without `source_value`, are made of. memory [B, M,
        d_model]: tokens before x, which are seen. valid_keys [B, M + T] or [B, S], valid_queries [B, T], bool: False for
        padding. With balance=True the result is (y, loss): the sum of the routing losses with their coefficients.
        """
        results = self._run(x, implementation, balance, source=source, source_value=source_value, memory=memory,
                            valid_keys=valid_keys, valid_queries=valid_queries)
        return tuple(results) if balance else results[0]


class MLP(Layer):
    """The feed-forward half of a block: dense, gated (SwiGLU) or a mixture of experts (sigma-MoE).

        MLP(d_model=64, kind="experts", d_hidden=32, n_experts=8, top_k=2)

    Keywords are the keys of [model.mlp], and d_model, n_layers, dropout (of the hidden layer) of [model].
    """

    def __init__(self, source: Optional[str] = None, *, device=None, dtype=None, **options):
        description = _describe("mlp", "MLP", source, _of_part("mlp", options))
        super().__init__(description, initial_values(description, None, device, dtype))

    def forward(self, x: Tensor, *, balance: bool = False, implementation: str = "automatic"):
        """[B, T, d_model] to the same shape; with balance=True also its balance loss."""
        results = self._run(x, implementation, balance)
        return tuple(results) if balance else results[0]


class Block(Layer):
    """One layer of a Transformer: attention and MLP around their norms and residuals.

        Block(d_model=64, norm="rms", attention=dict(n_heads=2, d_head=16), mlp=dict(kind="gated", d_hidden=172))

    Keywords are the keys of [model], those of the tables [model.attention] and [model.mlp] as dicts. cross=True adds
    attention to another sequence.
    """

    def __init__(self, source: Optional[str] = None, *, causal: bool = True, cross: bool = False, layer: int = 0,
                 device=None, dtype=None, **options):
        description = _describe("block", "Block", source, _settings("model.", options), causal, cross, layer)
        super().__init__(description, initial_values(description, None, device, dtype))

    def forward(self, x: Tensor, source: Optional[Tensor] = None, *, memory: Optional[Tensor] = None,
                valid_keys: Optional[Tensor] = None, remember: bool = False, balance: bool = False,
                implementation: str = "automatic"):
        """[B, T, d_model] to the same shape; arguments as of Attention. memory [B, M, d_model] are earlier inputs of this
        block: remember=True adds what it keeps for the next chunk to the results, (y, memory), before any balance loss.
        """
        results = self._run(x, implementation, balance, source=source, memory=memory, valid_keys=valid_keys,
                            remember=remember)
        return tuple(results) if balance or remember else results[0]
