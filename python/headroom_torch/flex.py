"""flex_attention: attention whose scores and mask are functions of Python, traced to a formula of the engine."""

from __future__ import annotations

import math
import sys
from typing import Callable, Optional

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ._library import ops

_UNARY = {"neg": "-{}", "abs": "abs({})", "absolute": "abs({})", "exp": "exp({})", "log": "log({})",
          "log1p": "log1p({})", "sqrt": "sqrt({})", "tanh": "tanh({})", "sigmoid": "sigmoid({})", "relu": "relu({})",
          "logsigmoid": "log_sigmoid({})", "log_sigmoid": "log_sigmoid({})", "square": "{} ** 2",
          "rsqrt": "{} ** (-0.5)", "reciprocal": "1 / {}"}
_BINARY = {"add": "{} + {}", "sub": "{} - {}", "subtract": "{} - {}", "mul": "{} * {}", "multiply": "{} * {}",
           "div": "{} / {}", "divide": "{} / {}", "true_divide": "{} / {}", "truediv": "{} / {}",
           "floor_divide": "{} // {}", "floordiv": "{} // {}", "remainder": "{} % {}", "mod": "{} % {}",
           "minimum": "min({}, {})", "maximum": "max({}, {})", "min": "min({}, {})", "max": "max({}, {})"}
_COMPARISONS = {"lt": "{} < {}", "less": "{} < {}", "le": "{} <= {}", "less_equal": "{} <= {}", "gt": "{} > {}",
                "greater": "{} > {}", "ge": "{} >= {}", "greater_equal": "{} >= {}", "eq": "{} == {}",
                "ne": "{} != {}", "not_equal": "{} != {}"}
_LOGICAL = {"logical_and": "{} and {}", "bitwise_and": "{} and {}", "and": "{} and {}", "logical_or": "{} or {}",
            "bitwise_or": "{} or {}", "or": "{} or {}", "logical_xor": "xor", "bitwise_xor": "xor", "xor": "xor"}
_NOT = ("logical_not", "bitwise_not", "invert")
_BITWISE = ("and", "or", "xor", "not", "invert")  # with or without "bitwise_"; logical ones only of truth values
_FRACTIONAL = ("exp", "log", "log1p", "sqrt", "tanh", "sigmoid", "logsigmoid", "log_sigmoid", "rsqrt", "reciprocal",
               "div", "divide", "true_divide", "truediv")


class _Untraceable(ValueError):
    pass


class _Value:
    """A number or a truth value of each pair of a query and a key."""

    def __init__(self, trace, text, boolean=False, integer=False):
        self.trace, self.text, self.boolean, self.integer = trace, text, boolean, integer

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return _any_value((args, kwargs)).trace.call(func.__name__, args, kwargs or {})

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self.trace.call(name, (self, *args), kwargs)

    def __bool__(self):
        self.trace.refuse("a branch on a value of a pair (if, and, or, not)", "use torch.where, &, | and ~")

    def __float__(self):
        self.trace.refuse("the conversion of a value of a pair to a Python number")

    __int__ = __float__

    def __getitem__(self, index):
        self.trace.refuse("indexing a value of a pair")

    __hash__ = None


def _operator(name, reflected):
    def method(self, other=None):
        args = (self,) if other is None else (other, self) if reflected else (self, other)
        return self.trace.call(name, args, {})
    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"):
    setattr(_Value, f"__{_name}__", _operator(_name, False))
    setattr(_Value, f"__r{_name}__", _operator(_name, True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "abs", "invert"):
    setattr(_Value, f"__{_name}__", _operator(_name, False))


def _any_value(nested):
    if isinstance(nested, _Value):
        return nested
    if isinstance(nested, dict):
        nested = nested.values()
    elif not isinstance(nested, (tuple, list)):
        return None
    return next((found for inner in nested if (found := _any_value(inner)) is not None), None)


class _Mode(TorchFunctionMode):
    """Intercepts torch's functions on traced values, such as the indexing of a captured tensor."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        value = _any_value((args, kwargs))
        name = getattr(func, "__name__", str(func))
        return func(*args, **(kwargs or {})) if value is None else value.trace.call(name, args, kwargs or {})


class _Trace:
    """Functions of (b, h, i, j) as texts, and the captured tensors that they index."""

    def __init__(self, batch, heads, dtype):
        self.batch, self.heads, self.dtype = batch, heads, dtype
        self.learned, self.tables, self.known = [], [], {}

    def run(self, function: Callable, name: str, with_score: bool) -> str:
        self.name, self.statements, self.texts = name, [], {}
        self.b, self.h = _Value(self, "b", integer=True), _Value(self, "h", integer=True)
        positions = [self.b, self.h, _Value(self, "i", integer=True), _Value(self, "j", integer=True)]
        with _Mode():
            result = function(*([_Value(self, "s")] if with_score else []), *positions)
            text = self.number(result) if with_score else self.condition(result)
        return "".join(f"{v} = {e}; " for e, v in self.texts.items()) + text

    def refuse(self, what, remedy=""):
        frame, place = sys._getframe(1), ""
        while frame is not None:  # the innermost line outside of this file and torch
            file = frame.f_code.co_filename
            if file != __file__ and not file.startswith(torch.__path__[0]):
                place = f" ({file}, line {frame.f_lineno})"
                break
            frame = frame.f_back
        raise _Untraceable(f"flex_attention: {self.name}: {what} is not supported{place}{'; ' if remedy else ''}{remedy}")

    def emit(self, text, **kind):
        return _Value(self, self.texts.setdefault(text, f"v{len(self.texts)}"), **kind)

    def value(self, x):
        """Returns the text of a value, a Python number or a captured tensor with one element."""
        if isinstance(x, _Value):
            if x is self.b:
                self.refuse("arithmetic with the batch index", "it can only index a captured tensor")
            return x
        if isinstance(x, Tensor):
            if x.numel() != 1:
                self.refuse(f"a captured tensor of shape {list(x.shape)} that is not indexed by b, h, i or j")
            if x.requires_grad or x.device.type != "cpu":
                return self.load(x.reshape(1, 1, 1), "0", x.dtype)
            x = x.item()
        if isinstance(x, bool):
            return self.emit("1 == 1" if x else "1 == 0", boolean=True)
        if not isinstance(x, (int, float)) or math.isnan(x):
            self.refuse(f"a value of type {type(x).__name__}" if not isinstance(x, float) else "NaN")
        return _Value(self, f"({x!r})" if x < 0 else repr(x), integer=isinstance(x, int))

    def number(self, x):
        x = self.value(x)
        return self.emit(f"where({x.text}, 1, 0)").text if x.boolean else x.text

    def condition(self, x):
        x = self.value(x)
        return x.text if x.boolean else self.emit(f"{x.text} != 0", boolean=True).text

    def exact(self, tensor):
        """Returns a captured tensor in the formula's dtype. Refuses integers that would be rounded, such as large ids."""
        numbers = tensor.to(self.dtype)
        checked = not (tensor.dtype.is_floating_point or torch.compiler.is_compiling())
        if checked and not torch.equal(numbers.to(tensor.dtype), tensor):
            self.refuse(f"a captured tensor with integers that {str(self.dtype)[6:]} cannot represent", "use smaller ones")
        return numbers

    def load(self, table, index, dtype):
        """Returns element `index` of a table [B or 1, H or 1, size]."""
        key = (table.data_ptr(), tuple(table.shape), table.stride(), table._version)
        if key not in self.known:
            self.known[key] = (len(self.tables), table)
            self.tables.append(self.exact(table))
        text = f"table{self.known[key][0]}[{index}]"
        if dtype == torch.bool:
            return self.emit(f"{text} != 0", boolean=True)
        return self.emit(text, integer=not dtype.is_floating_point)

    def index(self, tensor, index):
        index = index if isinstance(index, tuple) else (index,)
        if len(index) != tensor.dim() or any(not isinstance(x, (_Value, int, Tensor)) for x in index):
            self.refuse(f"an index that leaves more than one element of a captured tensor {list(tensor.shape)}")
        batch = [axis for axis, x in enumerate(index) if x is self.b]
        head = [axis for axis, x in enumerate(index) if x is self.h]
        if len(batch) > 1 or len(head) > 1:
            self.refuse("an index that names b or h twice")
        rest = [axis for axis in range(len(index)) if axis not in batch + head]
        for axes, size, name in ((batch, self.batch, "b"), (head, self.heads, "h")):
            for axis in axes:
                if tensor.shape[axis] < size:
                    self.refuse(f"a captured tensor {list(tensor.shape)} indexed by {name}, of which there are {size},")
                tensor = tensor.narrow(axis, 0, size)
        if head and not batch and not rest and tensor.dtype != torch.bool:
            key = (tensor.data_ptr(), tensor.stride(), tensor._version)
            if key not in self.known:
                self.known[key] = (len(self.learned), tensor)
                self.learned.append(self.exact(tensor))
            return _Value(self, f"learned{self.known[key][0]}", integer=not tensor.dtype.is_floating_point)
        place = "0"
        for axis in rest:
            n, x = tensor.shape[axis], index[axis]
            if n == 0:
                self.refuse("an index into an empty tensor")
            x = self.number(x + n if isinstance(x, int) and x < 0 else x)
            if len(rest) > 1:
                x = self.emit(f"{place} * {n} + min(max({x}, 0), {n - 1})").text
            place = x
        table = tensor.permute(*batch, *head, *rest)
        table = table.reshape(self.batch if batch else 1, self.heads if head else 1, -1)
        return self.load(table, place, tensor.dtype)

    def call(self, name, args, kwargs):
        name = name.strip("_") if name.startswith("__") else name
        if name == "getitem" and isinstance(args[0], Tensor):
            return self.index(*args)
        if name.startswith("r") and name[1:] in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or"):
            name, args = name[1:], args[::-1]
        rounding = kwargs.pop("rounding_mode", None)
        if name in ("div", "divide") and rounding == "floor":
            name = "floordiv"
        integer = all(self.value(x).integer for x in args if isinstance(x, (_Value, Tensor))) and not any(
            isinstance(x, float) for x in args) and name not in _FRACTIONAL
        if name in ("to", "type", "float", "double", "half", "bfloat16", "int", "long", "detach"):
            to_integer = name in ("int", "long") or any(isinstance(a, torch.dtype) and not a.is_floating_point
                                                        for a in (*args[1:], *kwargs.values()))
            if name != "detach" and (integer or not to_integer):
                value = self.value(args[0])
                return _Value(self, self.number(value), integer=integer and to_integer)
        elif name in ("clamp", "clip"):
            return self.clamp(*args, integer=integer, **kwargs)
        elif name in ("clamp_min", "clamp_max"):
            return self.emit(_BINARY["max" if name == "clamp_min" else "min"].format(*map(self.number, args)),
                             integer=integer)
        elif not kwargs and rounding is None:
            value = self.elementwise(name, args, integer)
            if value is not None:
                return value
        self.refuse(f"the operation {name}" + (f" with {', '.join(kwargs)}" if kwargs else ""))

    def clamp(self, x, min=None, max=None, integer=False):
        text = self.number(x)
        text = text if min is None else self.emit(f"max({text}, {self.number(min)})").text
        return self.emit(text if max is None else f"min({text}, {self.number(max)})", integer=integer)

    def elementwise(self, name, args, integer):
        if name.removeprefix("bitwise_") in _BITWISE and not all(self.value(x).boolean for x in args):
            self.refuse(f"the bitwise operation {name} on numbers", "use comparisons, // and %")
        if name in _UNARY and len(args) == 1:
            return self.emit(_UNARY[name].format(self.number(args[0])), integer=integer)
        if name == "softplus" and len(args) == 1:
            return self.emit(f"softplus({self.number(args[0])})")
        if name in _BINARY and len(args) == 2:
            return self.emit(_BINARY[name].format(*map(self.number, args)), integer=integer)
        if name == "pow" and len(args) == 2 and isinstance(args[1], (int, float)):
            return self.emit("{} ** {}".format(*map(self.number, args)), integer=integer and args[1] >= 0)
        if name in _COMPARISONS and len(args) == 2:
            return self.emit(_COMPARISONS[name].format(*map(self.number, args)), boolean=True)
        if name in _LOGICAL and len(args) == 2:
            a, b = map(self.condition, args)
            if _LOGICAL[name] == "xor":
                return self.emit(f"({a} or {b}) and not ({a} and {b})", boolean=True)
            return self.emit(f"({a}) {_LOGICAL[name][3:-3]} ({b})", boolean=True)
        if name in _NOT and len(args) == 1:
            return self.emit(f"not ({self.condition(args[0])})", boolean=True)
        if name == "where" and len(args) == 3:
            if all(self.value(x).boolean for x in args[1:]):
                c, a, b = map(self.condition, args)
                return self.emit(f"(({c}) and ({a})) or (not ({c}) and ({b}))", boolean=True)
            c, a, b = self.condition(args[0]), self.number(args[1]), self.number(args[2])
            return self.emit(f"where({c}, {a}, {b})", integer=integer)
        return None


def flex_attention(query: Tensor, key: Tensor, value: Tensor, score_mod: Optional[Callable] = None, block_mask=None,
                   scale: Optional[float] = None, enable_gqa: bool = False, return_lse: bool = False, *,
                   mask_mod: Optional[Callable] = None, implementation: str = "automatic"):
    """Attention with a function of the scores and a mask, as torch.nn.attention.flex_attention.flex_attention; on the CPU
    it is fused forward and backward, in float32 and bfloat16. Returns [B, H, T, w].

    query [B, H, T, e], key [B, H, S, e], value [B, H, S, w]; with `enable_gqa` key and value may have fewer heads.
    score_mod(s, b, h, i, j): the new score of the scaled product s of query i and key j.
    mask_mod(b, h, i, j): whether query i sees key j. block_mask: the same function, or torch's BlockMask, whose mask_mod is
    used. A query without a visible key gives 0.
    scale: 1/sqrt(e) if not given. return_lse: also returns the logarithm of the softmax's denominators [B, H, T], without a
    derivative.

    The functions are traced once per call with +, -, *, /, //, %, comparisons, &, |, ^ and ~ of truth values, torch.where,
    minimum, maximum, clamp, abs, exp, log, log1p, sqrt, square, tanh, sigmoid, relu, logsigmoid, softplus and powers with a
    constant. Captured tensors may be indexed by b, h and integer expressions of h, i and j, and have gradients; an index outside
    a tensor is clamped to it. Their integers must be exact in float32, or in float64 for a float64 query.
    Anything else raises ValueError with the operation and its line.
    """
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise ValueError("flex_attention: query, key and value must have 4 dimensions")
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise ValueError(f"flex_attention: query has {query.shape[1]} heads and key {key.shape[1]}; set enable_gqa=True")
    if block_mask is not None and mask_mod is not None:
        raise ValueError("flex_attention: give block_mask or mask_mod, not both")
    mask_mod = mask_mod or getattr(block_mask, "mask_mod", block_mask)
    trace = _Trace(query.shape[0], query.shape[1], query.dtype if query.dtype == torch.float64 else torch.float32)
    formula = trace.run(score_mod, "score_mod", True) if score_mod is not None else ""
    mask = trace.run(mask_mod, "mask_mod", False) if mask_mod is not None else ""
    arguments = dict(scale=1.0 / math.sqrt(query.shape[-1]) if scale is None else scale, causal=False, formula=formula,
                     formula_mask=mask, formula_queries_last=False, formula_learned=trace.learned,
                     formula_tables=trace.tables)
    if not return_lse:
        return ops.attention(query, key, value, implementation=implementation, **arguments)
    if query.device.type != "cpu" or query.dtype not in (torch.float32, torch.bfloat16) or implementation == "reference":
        raise ValueError("flex_attention: return_lse needs the fused kernels: float32 or bfloat16 on the CPU")
    o, log_sum = ops.attention_fused(query, key, value, **arguments)
    return o, log_sum.masked_fill(log_sum == math.inf, -math.inf)
