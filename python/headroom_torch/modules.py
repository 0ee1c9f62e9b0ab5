"""Layers as torch.nn.Modules. The modules own the parameters; the engine computes."""

from __future__ import annotations

import functools
import json
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from ._library import ops
from .observing import observed, run, show

__all__ = ["Attention", "Block", "MLP", "Norm"]


def _toml(key: str, value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(key, inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(key, inner) for inner in value) + "]"
    if hasattr(value, "tolist"):  # of numpy or torch
        return _toml(key, value.tolist())
    try:
        return json.dumps(value)
    except TypeError:
        raise ValueError(f"{key}: must be a number, a string, true or false, a list or a table, got {value!r}") from None


def _settings(prefix: str, options: dict[str, Any]) -> list[str]:
    """Returns keywords as settings of the engine, "key=value"; a dict is a TOML table. `learned` holds user-defined names."""
    settings = []
    for key, value in options.items():
        if isinstance(value, dict) and key != "learned":
            settings += _settings(f"{prefix}{key}.", value)
        else:
            settings.append(f"{prefix}{key}={_toml(f'{prefix}{key}', value)}")
    return settings


class _Scope(nn.Module):
    """Stands for a prefix of parameter names: `encoder` in `encoder.layer0`."""


class Layer(nn.Module):
    """The base class of layers and models: a description and parameters, named as in Headroom's checkpoints. The layers of
    a block or a model are sub-modules."""

    def __init__(self, description: str, values: list[Tensor]):
        super().__init__()
        names = [(p["name"], p["buffer"]) for p in json.loads(ops.parameters_of(description))]
        self._begin(description, {name: (value, buffer) for (name, buffer), value in zip(names, values, strict=True)})

    @classmethod
    def _made(cls, description: str, values: list[Tensor]):
        module = cls.__new__(cls)
        Layer.__init__(module, description, values)
        return module

    def _begin(self, description: str, values: dict[str, tuple[Tensor, bool]]) -> None:
        self.description = description
        self._names = list(values)  # in creation order
        self._parts: dict[str, str] = {}
        rest = dict(values)
        for part in json.loads(ops.children_of(description)):
            self._parts[part["name"]] = part["layer"]
            self._add(part["name"], _part_of(part, rest))
        self._options = all_options(description) if self._parts else {}
        for name, (value, buffer) in rest.items():
            self._add(name, value if buffer else nn.Parameter(value), buffer)
        self._placed("")

    def _add(self, name: str, what, buffer: bool = False) -> None:
        *path, leaf = name.split(".")
        owner = self
        for step in path:
            if step not in owner._modules:
                owner._modules[step] = _Scope()
            owner = owner._modules[step]
        if buffer:
            owner.register_buffer(leaf, what)
        elif isinstance(what, nn.Parameter):
            owner._parameters[leaf] = what  # a scope may have the same name: "v" and "v.a"
        else:
            setattr(owner, leaf, what)

    def _placed(self, scope: str) -> None:
        """Sets the prefix of the names of observed values: "layer3.attention."."""
        self._scope = scope
        for name in self._parts:
            self.get_submodule(name)._placed(f"{scope}{name}.")

    def _tensors(self, names: Optional[list[str]] = None) -> list[Tensor]:
        """Returns parameters and buffers, by default all, read as attributes, which functional_call() and prune replace."""
        tensors = []
        for name in self._names if names is None else names:
            owner = self
            *path, leaf = name.split(".")
            for step in path:
                owner = owner._modules[step]
            tensors.append(getattr(owner, leaf))
        return tensors

    def _run(self, x: Tensor, implementation: str, balance: bool = False, tensors: Optional[list[Tensor]] = None,
             **inputs) -> list[Tensor]:
        require_tensor(self, x)
        tensors = self._tensors() if tensors is None else tensors
        call = lambda: ops.layer(x, tensors, self.description, training=self.training, balance=balance,  # noqa: E731
                                 implementation=implementation, **inputs)
        return run(self._scope, call) if observed() else call()

    def _result(self, results: list[Tensor], balance: bool, losses: Optional[list[Tensor]]):
        """Returns forward()'s result. losses: a list that collects a block's balance losses, so that hooks get only the output."""
        if losses is not None:
            losses.append(results.pop())
        return tuple(results) if balance else results[0]

    @property
    def options(self) -> list[str]:
        """Returns the options that differ from the defaults: ["model.n_layers=2", ...]."""
        return json.loads(self.description)["settings"]

    @property
    def d_model(self) -> int:
        return all_options(self.description)["model.d_model"]

    TABLE = ""  # whose keys belong to this layer alone: "model.mlp."

    def extra_repr(self) -> str:
        """Returns the options that differ from the defaults; for a sub-layer, only the keys of its own table."""
        shown = [setting for setting in self.options if not self._scope or self.TABLE and setting.startswith(self.TABLE)]
        return ", ".join(setting.removeprefix(self.TABLE).removeprefix("model.") for setting in shown)


def require_tensor(layer: Layer, x) -> None:
    if not hasattr(x, "__torch_function__"):  # which torch.fx's Proxy has as well
        raise ValueError(f"{type(layer).__name__}: the input must be a tensor, got {' '.join(repr(x).split())[:80]}")


def _part_of(part: dict[str, str], values: dict[str, tuple[Tensor, bool]]) -> Layer:
    """Returns the sub-layer `part`; removes its values from `values`."""
    module = _CLASSES[part["kind"]].__new__(_CLASSES[part["kind"]])
    nn.Module.__init__(module)
    named = [(p["name"], f"{part['name']}.{p['name']}") for p in json.loads(ops.parameters_of(part["layer"]))]
    module._begin(part["layer"], {name: values.pop(whole) for name, whole in named if whole in values})
    return module


def has_hooks(module: nn.Module) -> bool:
    """Returns whether calling the module does more than its forward()."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
                or module._backward_pre_hooks or "forward" in module.__dict__)


def in_parts(layer: Layer) -> bool:
    """Returns whether sub-layers must be called one by one instead of by one operator, because one has hooks or was replaced."""
    if _has_any_global_hook():
        return True
    for name, description in layer._parts.items():
        part = layer.get_submodule(name)
        if not isinstance(part, Layer) or part.description != description or has_hooks(part) or in_parts(part):
            return True
    return False


def initial_values(description: str, seed: Optional[int] = None, device=None, dtype=None) -> list[Tensor]:
    """Returns initial values, as in training; without a seed they depend on torch's global generator."""
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


# These keys of [model] are keywords of an attention layer or an MLP.
_PLACE = ("d_model", "n_layers", "context_length", "memory_length", "vocabulary_size")


def _of_part(table: str, options: dict[str, Any]) -> list[str]:
    keys = (*_PLACE, "dropout") if table == "mlp" else _PLACE
    place = {key: options[key] for key in keys if key in options}
    rest = {key: value for key, value in options.items() if key not in place}
    return _settings("model.", place) + _settings(f"model.{table}.", rest)


class Attention(Layer):
    """One attention layer: projection x score x composition x position x output gate, and a mask.

        Attention(d_model=64, n_heads=2, d_head=16, projection="experts", experts=["v", "o"], n_experts=4, top_k=2)
        Attention("switchhead/wt103_47m")           # of a recipe or a TOML file
        Attention("my.toml", layer=3, n_heads=4)    # of its fourth layer, with n_heads changed

    Keywords are the keys of [model.attention], and d_model, n_layers (for the initial values), context_length and
    memory_length of [model], with the same defaults; ValueError for options that the engine refuses. causal=False: every
    query sees every key. cross=True: keys and values come from another sequence. device, dtype: of the parameters.
    """

    TABLE = "model.attention."

    def __init__(self, source: Optional[str] = None, *, causal: bool = True, cross: bool = False, layer: int = 0,
                 device=None, dtype=None, **options):
        description = _describe("attention", "Attention", source, _of_part("attention", options), causal and not cross,
                                cross, layer)
        super().__init__(description, initial_values(description, None, device, dtype))

    def forward(self, x: Tensor, source: Optional[Tensor] = None, *, source_value: Optional[Tensor] = None,
                memory: Optional[Tensor] = None, valid_keys: Optional[Tensor] = None,
                valid_queries: Optional[Tensor] = None, attn_mask: Optional[Tensor] = None, balance: bool = False,
                implementation: str = "automatic", _losses: Optional[list[Tensor]] = None):
        """x [B, T, d_model] to y of the same shape, in the parameters' type or autocast's.

        source [B, S, d_model] (cross=True only): the sequence of the keys, and of the values unless `source_value`
        [B, S, d_model] is given. memory [B, M, d_model]: tokens before x, as keys and values only. valid_keys [B, M + T] or
        [B, S] and valid_queries [B, T], bool: False for padding. attn_mask [B or 1, 1, 1, S] bool: valid_keys in the shape of
        torch's scaled_dot_product_attention; masks that depend on the head or the query are refused. balance=True: the result is (y, loss), where loss is the
        sum of the balance losses with their coefficients. implementation: "reference" computes in plain tensor operations,
        "fused" raises ValueError where there is no fused version, "automatic" is fused where it can be. Raises ValueError for
        other shapes or types.
        """
        if attn_mask is not None:
            valid_keys = _keys_of(attn_mask, x, valid_keys)
        results = self._run(x, implementation, balance or _losses is not None, source=source, source_value=source_value,
                            memory=memory, valid_keys=valid_keys, valid_queries=valid_queries)
        return self._result(results, balance, _losses)


def _keys_of(mask: Tensor, x: Tensor, valid_keys: Optional[Tensor]) -> Tensor:
    """Returns the keys [B, S] that a mask in the shape of attention weights shows to all heads and queries."""
    if valid_keys is not None:
        raise ValueError("Attention: attn_mask and valid_keys exclude each other")
    if mask.dtype != torch.bool or mask.dim() != 4 or mask.shape[1:3] != (1, 1):
        raise ValueError("Attention: attn_mask must be bool [B, 1, 1, S], the same for all heads and queries, got "
                         f"{str(mask.dtype).removeprefix('torch.')} {list(mask.shape)}; other masks are options of the layer "
                         "(causal, window, mask), or an argument of functional.flex_attention (mask_mod)")
    return mask[:, 0, 0].expand(x.shape[0], -1)


class MLP(Layer):
    """The feed-forward half of a block: dense, gated (SwiGLU) or a mixture of experts (sigma-MoE).

        MLP(d_model=64, kind="experts", d_hidden=32, n_experts=8, top_k=2)

    Keywords are the keys of [model.mlp], and d_model, n_layers and dropout (of the hidden layer) of [model]. Experts:
    SwitchHead, section 2.3. layer: the index of the layer in a model whose layers differ.
    """

    TABLE = "model.mlp."

    def __init__(self, source: Optional[str] = None, *, layer: int = 0, device=None, dtype=None, **options):
        description = _describe("mlp", "MLP", source, _of_part("mlp", options), layer=layer)
        super().__init__(description, initial_values(description, None, device, dtype))

    def forward(self, x: Tensor, *, routed_by: Optional[Tensor] = None, valid: Optional[Tensor] = None,
                balance: bool = False, implementation: str = "automatic", _losses: Optional[list[Tensor]] = None):
        """x [B, T, d_model] to y of the same shape; with balance=True (y, loss), loss being the balance loss.

        routed_by [B, T, d_model]: input of the router, instead of x. valid [B, T] bool: False for padding,
        which is not routed.
        """
        results = self._run(x, implementation, balance or _losses is not None, routed_by=routed_by, valid_queries=valid)
        return self._result(results, balance, _losses)


class Norm(Layer):
    """Layer norm or RMS norm over the last axis.

        Norm(d_model=64, norm="rms")

    Keywords are keys of [model]: d_model, norm and norm_epsilon.
    """

    def __init__(self, source: Optional[str] = None, *, device=None, dtype=None, **options):
        description = _describe("norm", "Norm", source, _settings("model.", options))
        super().__init__(description, initial_values(description, None, device, dtype))

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, d_model] to the same shape."""
        return self._run(x, "automatic")[0]


class Head(Layer):
    """The output layer of a language model."""

    def forward(self, x: Tensor, embed: Optional[Tensor] = None, *, targets: Optional[Tensor] = None,
                each: bool = False, implementation: str = "automatic") -> Tensor:
        """x [B, T, d_model] to logits [B, T, V], or with targets [B, T] int64 to their mean cross-entropy in nats; each: to
        the cross-entropy of each that is not negative [N]. embed [V, d_model]: the embedding matrix, if it is tied."""
        tensors = self._tensors() if embed is None else [embed, *self._tensors()]
        return self._run(x, implementation, tensors=tensors, targets=targets, each=each)[0]


class Block(Layer):
    """One layer of a Transformer: attention and MLP around their norms and residuals.

        Block(d_model=64, norm="rms", attention=dict(n_heads=2, d_head=16), mlp=dict(kind="gated", d_hidden=172))

    Keywords are the keys of [model], with the tables [model.attention] and [model.mlp] as dicts. cross=True adds
    attention to another sequence.

    Sub-modules: `norm_1`, `attention`, `norm_2` and `ffn`, with cross=True also `norm_cross` and `cross`; with
    output_norms also `norm_1_out`, `norm_2_out` and `norm_cross_out`; without attention or MLP, that half is missing.
    One operator computes all of them; if one has hooks or was replaced, each is called instead, with the same results.
    """

    def __init__(self, source: Optional[str] = None, *, causal: bool = True, cross: bool = False, layer: int = 0,
                 device=None, dtype=None, **options):
        description = _describe("block", "Block", source, _settings("model.", options), causal, cross, layer)
        super().__init__(description, initial_values(description, None, device, dtype))

    def forward(self, x: Tensor, source: Optional[Tensor] = None, *, memory: Optional[Tensor] = None,
                valid_keys: Optional[Tensor] = None, valid_source: Optional[Tensor] = None, remember: bool = False,
                balance: bool = False, implementation: str = "automatic"):
        """x [B, T, d_model] to y of the same shape; arguments as for Attention, and valid_source [B, S] bool.

        memory [B, M, d_model]: earlier inputs of this block. remember=True: the result is (y, memory) with the memory for the
        next chunk, followed by the balance loss with balance=True.
        """
        inputs = dict(source=source, memory=memory, valid_keys=valid_keys, valid_source=valid_source)
        if in_parts(self):
            results = self._by_parts(x, remember, balance, implementation, **inputs)
        else:
            results = self._run(x, implementation, balance, remember=remember, **inputs)
        return tuple(results) if balance or remember else results[0]

    def _by_parts(self, x, remember, balance, implementation, source, memory, valid_keys, valid_source) -> list[Tensor]:
        options = self._options
        losses: list[Tensor] = []

        def call(part, norm, h, *others, **inputs):
            inputs = {name: value for name, value in inputs.items() if value is not None}
            if implementation != "automatic":
                inputs["implementation"] = implementation
            if balance and isinstance(part, Layer):
                inputs["_losses"] = losses
            output = part(h, *others, **inputs)
            if options["model.output_norms"]:
                output = getattr(self, norm)(output)
            return nn.functional.dropout(output, options["model.dropout"], self.training)

        queries = None if valid_keys is None else valid_keys[:, -x.shape[1]:]
        attend = lambda h, m, v=None: call(self.attention, "norm_1_out", h, memory=m, source_value=v,  # noqa: E731
                                           valid_keys=valid_keys, valid_queries=queries)
        across = lambda h: call(self.cross, "norm_cross_out", h, source, valid_keys=valid_source, valid_queries=queries)  # noqa: E731
        feed = lambda h, **inputs: call(self.ffn, "norm_2_out", h, **inputs,  # noqa: E731
                                        valid=queries if isinstance(self.ffn, Layer) else None)
        attends, crosses, feeds = ("attention" in self._parts, "cross" in self._parts, "ffn" in self._parts)
        h = x
        if options["model.norm_position"] == "post":
            if attends:
                h = self.norm_1(h + attend(h, memory))
            if crosses:
                h = self.norm_cross(h + across(h))
            if feeds:
                h = self.norm_2(h + feed(h))
        elif options["model.norm_position"] == "peri":
            values = x if memory is None else torch.cat([memory, x], 1)
            if attends:
                h = h + attend(self.norm_1(h), None if memory is None else self.norm_1.forward(memory), values)
            h = h + feed(h, routed_by=self.norm_2(h))
        else:
            read = (lambda h: x) if options["model.arrangement"] == "parallel" else (lambda h: h)
            if attends:  # the memory does not run the norm's hooks
                h = h + attend(self.norm_1(h), None if memory is None else self.norm_1.forward(memory))
            if crosses:
                h = h + across(self.norm_cross(read(h)))
            if feeds:
                h = h + feed(self.norm_2(read(h)))
        if observed():
            show(f"{self._scope}out", h)
        kept = [ops.remembered(memory, x, options["model.memory_length"])] if remember else []
        return [h, *kept, *([sum(losses)] if balance else [])]


@functools.lru_cache(maxsize=256)
def all_options(description: str) -> dict[str, Any]:
    """Returns all options of the layer's model: "model.n_layers" -> value."""
    return {key: _value(text) for key, text in json.loads(ops.options_of(description)).items()}


def _value(text: str):
    """Returns a TOML value in Python; text that is not JSON is returned as it is."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


_CLASSES = {"attention": Attention, "mlp": MLP, "norm": Norm, "head": Head, "block": Block}
