"""Observing the intermediate values of a forward pass by name."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from typing import Callable, Iterator

import torch
from torch import Tensor

from ._library import ops

__all__ = ["observe"]


class _Observation:
    def __init__(self, patterns: tuple[str, ...]):
        self.patterns = patterns
        self.values: dict[str, Tensor] = {}
        self._expressions = [re.compile("[^.]*".join(map(re.escape, pattern.split("*")))) for pattern in patterns]

    def show(self, name: str, value: Tensor) -> None:
        if any(expression.fullmatch(name) for expression in self._expressions):
            self.values[name] = value

    def missing(self) -> list[str]:
        return [pattern for pattern, expression in zip(self.patterns, self._expressions)
                if not any(map(expression.fullmatch, self.values))]


# Active observations by thread, the innermost last.
_observations: dict[int, list[_Observation]] = {}


@contextmanager
def watching(*patterns: str) -> Iterator[_Observation]:
    """observe() without an error for missing values."""
    if not _untraced:
        _untraced.update({function: torch.compiler.disable(function) for function in (_show, _run)})
    observation, thread = _Observation(patterns), threading.get_ident()
    _observations.setdefault(thread, []).append(observation)
    try:
        yield observation
    finally:
        _observations[thread].pop()
        if not _observations[thread]:
            del _observations[thread]


@contextmanager
def observe(*patterns: str) -> Iterator[dict[str, Tensor]]:
    """A context manager that collects intermediate values of the layers and models that are called inside it:

        with headroom_torch.observe("layer*.attention.probs", "norm_f") as values:
            model(tokens)
        values["layer0.attention.probs"]        # [B, n_heads, T, S]

    A * matches anything but dots. If a name occurs several times, the last value is kept. The values are part of the
    autograd graph. Raises ValueError if a pattern matches no value.

    Names begin with the layer: "layer3.", in an EncoderDecoder "encoder.layer3." or "decoder.layer3."; without a prefix for
    a Block, Attention or MLP that is called on its own. B batch, T queries, S keys, d d_model, H heads, G key/value heads,
    e d_head, E experts, K routed experts:

        embedding, layer3.out, norm_f                 [B, T, d]
        layer3.attention.  (layer3.cross.: of cross-attention)
          q; k, v                                     [B, H, T, e]; [B, G, S, e]
          scores, scores_composed                     [B, H, T, S] before the mask; before and after composition
          probs, probs_composed                       [B, H, T, S] the weights, likewise; of differential heads, q, scores and
                                                      probs have 2 H matrices, probs_composed the H differences
          o                                           [B, H, T, e] head outputs
          out                                         [B, T, d]
          select_in.score, .index, .weight            [B S, H, E], [B S, H, K], [B S, H, K]: routing of keys and values;
                                                      select_out.: of queries and outputs
          select.score, .index, .weight               [B T, 1, E], [B T, 1, K], [B T, 1, K]: routing to heads
        layer3.ffn.select.score, .index, .weight      routing of an MLP of experts, likewise
        layer3.ffn.x, .out                            [B, T, d] its input and output

    Scores and probabilities need the reference implementation, which stores every pair; linear attention has no scores. With
    a Decoder each call must read one row. Not for compiled models.
    """
    with watching(*patterns) as observation:
        yield observation.values
    if missing := observation.missing():
        raise ValueError(f"observe: no computed value matches {' or '.join(map(repr, missing))}")


def observed() -> bool:
    return bool(_observations) and threading.get_ident() in _observations


def _show(name: str, value: Tensor) -> None:
    for observation in _observations[threading.get_ident()]:
        observation.show(name, value)


def _run(scope: str, call: Callable):
    result, values = watched(call, [p for o in _observations[threading.get_ident()] for p in o.patterns], scope)
    for name, value in values:
        _show(name, value)
    return result


# The functions above, kept out of compiled graphs. Filled by the first observation, because torch.compiler.disable()
# imports torch's compiler, which takes as long as importing torch.
_untraced: dict[Callable, Callable] = {}


def show(name: str, value: Tensor) -> None:
    """Records a value computed in Python, while observed()."""
    _untraced[_show](name, value)


def run(scope: str, call: Callable):
    """Returns call(), which must call the engine once. While observed(), records its values, with names that begin with `scope`."""
    return _untraced[_run](scope, call)


def watched(call: Callable, patterns: list[str], scope: str = "", given: tuple[tuple[str, Tensor], ...] = ()):
    """The result of call(), which must call the engine once, and its values [(name, value)] that match the patterns. `given`
    replaces values of these names, in their order."""
    ops.start_watch(patterns, scope, [name for name, _ in given], [value for _, value in given])
    shown: tuple = ([], [])
    try:
        result = call()
    finally:
        shown = ops.end_watch()
    return result, list(zip(*shown))
