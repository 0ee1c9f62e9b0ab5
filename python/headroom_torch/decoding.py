"""Token-by-token decoding with a KV cache, and sampling."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Optional

import torch
from torch import Tensor

from .observing import observed, run

__all__ = ["Decoder"]


def draw(logits: Tensor, temperature: float, top_k: int, top_p: float, generator) -> Tensor:
    """One token for each row of logits [B, V], int64 [B, 1].

    temperature 0 is greedy. top_k > 0 keeps the k most likely tokens; top_p keeps the fewest most likely tokens that reach
    this probability.
    """
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    logits = logits.double() / max(temperature, 1e-300)  # without overflow
    logits, order = logits.sort(dim=-1, descending=True, stable=True)  # of equal ones, the smaller id first
    if top_k:
        logits[:, top_k:] = -torch.inf
    p = logits.softmax(-1)
    p = p.masked_fill(p.cumsum(-1) - p >= top_p, 0)
    return order.gather(-1, torch.multinomial(p, 1, generator=generator))


class Decoder:
    """The decoding state (KV cache) of `rows` sequences of a language model; made by LanguageModel.decoder().

    Results equal a full forward pass over consecutive chunks of context_length with carried memory. Without memory, a full
    context slides: its last half is read again as the start of a new one. Rows are independent and may differ in length.
    The parameters are shared with the model.
    """

    def __init__(self, model, rows: int):
        tensors = [tensor.detach() for tensor in model._tensors()]
        self._decoder = torch.classes.headroom.Decoder(model.description, tensors, rows)

    def read(self, tokens: Tensor, valid: Optional[Tensor] = None) -> Tensor:
        """Reads `tokens` [B, n] int64, n >= 1. Returns the logits [B, V] after the last token of each row.

        valid [B, n] bool: False for padding, on either side, which is skipped. A row of padding alone gets zeros.
        Raises ValueError for other shapes or types.
        """
        call = lambda: self._decoder.read(tokens, valid)  # noqa: E731
        if not observed():
            return call()
        _require_one_row(tokens, valid)
        return run("", call)

    def reorder(self, rows: Tensor) -> None:
        """Replaces row i by a copy of row rows[i]; rows [B'] may repeat or omit rows, and sets their number to B'."""
        self._decoder.reorder(rows.tolist())

    def restart(self) -> None:
        """Discards all tokens that were read."""
        self._decoder.restart()


def _require_one_row(tokens: Tensor, valid: Optional[Tensor]) -> None:
    rows = tokens.shape[0] if valid is None else int(valid.any(1).sum())
    if rows > 1:
        raise ValueError(f"observe: a decoder must read one row at a time, got {rows}")


@contextlib.contextmanager
def _evaluating(model: torch.nn.Module):
    """Sets all modules to evaluation mode, as in Decoder, which has no dropout; restores each module's mode afterwards."""
    training = [module for module in model.modules() if module.training]
    try:
        model.eval()
        yield
    finally:
        for module in training:
            module.training = True


@dataclasses.dataclass
class _Chunk:
    """Holds the tokens [n] of a row's current chunk, and the memory before them."""

    tokens: Tensor
    memory: Optional[list[Tensor]] = None


class ModuleDecoder:
    """A Decoder that calls the model's modules, so that their hooks run. It reads the whole chunk again for each token."""

    def __init__(self, model, rows: int):
        self._model, self._count = model, rows
        self.restart()

    @torch.no_grad()
    def read(self, tokens: Tensor, valid: Optional[Tensor] = None) -> Tensor:
        """See Decoder.read()."""
        with _evaluating(self._model):
            return self._read(tokens, valid)

    def _read(self, tokens: Tensor, valid: Optional[Tensor]) -> Tensor:
        if tokens.dim() != 2 or tokens.shape[0] != len(self._rows) or tokens.shape[1] < 1 or tokens.dtype != torch.int64:
            raise ValueError(f"decoding: tokens must be int64 [{len(self._rows)}, 1 or more], got {tokens.dtype} "
                             f"{list(tokens.shape)}")
        texts = [row if valid is None else row[valid[i]] for i, row in enumerate(tokens)]
        reading = [i for i, text in enumerate(texts) if text.numel()]
        if observed():
            _require_one_row(tokens, valid)
        for i in reading:
            self._extend(self._rows[i], texts[i])
        logits = tokens.new_zeros(tokens.shape[0], self._model._options["model.vocabulary_size"],
                                  dtype=self._model.norm_f.scale.dtype)
        same_lengths = {(len(row.tokens), row.memory and row.memory[0].shape) for row in (self._rows[i] for i in reading)}
        for some in [reading] if len(same_lengths) == 1 else [[i] for i in reading]:
            logits[some] = self._last([self._rows[i] for i in some]).to(logits.dtype)
        return logits

    def _extend(self, row: _Chunk, text: Tensor) -> None:
        length = self._model._options["model.context_length"]
        while text.numel():
            if len(row.tokens) == length:  # like Decoder: carried as memory, or the last half is read again
                if self._model._remembers:
                    row.memory = self._model(row.tokens[None], row.memory)[1]
                row.tokens = row.tokens[length if self._model._remembers else length - length // 2:]
            room = length - len(row.tokens)
            row.tokens, text = torch.cat([row.tokens, text[:room]]), text[room:]

    def _last(self, rows: list[_Chunk]) -> Tensor:
        memory = rows[0].memory and [torch.cat(layer) for layer in zip(*(row.memory for row in rows))]
        result = self._model(torch.stack([row.tokens for row in rows]), memory)
        return (result[0] if isinstance(result, tuple) else result)[:, -1]

    def reorder(self, rows: Tensor) -> None:
        """See Decoder.reorder()."""
        for row in rows.tolist():
            if not 0 <= row < len(self._rows):
                raise ValueError(f"decoding: rows must be in [0, {len(self._rows)}), got {row}")
        self._rows = [dataclasses.replace(self._rows[row]) for row in rows.tolist()]
        self._count = len(self._rows)

    def restart(self) -> None:
        """See Decoder.restart()."""
        nothing = torch.empty(0, dtype=torch.int64, device=self._model.norm_f.scale.device)
        self._rows = [_Chunk(nothing) for _ in range(self._count)]
