"""The KV cache of HeadroomForCausalLM, and the observation of attentions and hidden states."""

from __future__ import annotations

import contextlib
from typing import Iterator, Optional, Sequence

import torch
import transformers
from torch import Tensor, nn

from .huggingface_padding import back, tokens_first
from .models import LanguageModel
from .observing import watching


class HeadroomCache:
    """The KV cache of `rows` sequences."""

    is_compileable = False

    def __init__(self, model: LanguageModel, rows: int):
        self._decoder = model.decoder(rows)
        self._valid = torch.empty(rows, 0, dtype=torch.bool)  # [B, columns read]

    def read(self, tokens: Tensor, valid: Optional[Tensor] = None) -> Tensor:
        """Returns the logits [B, V] after the last of tokens [B, n]; valid [B, n] bool: False for padding."""
        self._valid = torch.cat([self._valid, (torch.ones_like(tokens, dtype=torch.bool) if valid is None else valid).cpu()], 1)
        return self._decoder.read(tokens, valid)

    def read_observed(self, tokens: Tensor, valid: Optional[Tensor], names: Sequence[str]):
        """read() of one token for each row, tokens [B, 1]; also returns the values of these names: attention weights
        [B, H, 1, columns read], 0 for keys that a row does not see, and others [B, 1, d]."""
        rows, valid = tokens.shape[0], torch.ones_like(tokens, dtype=torch.bool) if valid is None else valid
        self._valid = torch.cat([self._valid, valid.cpu()], 1)
        logits, values = None, {}
        for row in range(rows):
            alone = valid & (torch.arange(rows, device=valid.device) == row)[:, None]
            with watching(*names) as seen:
                one = self._decoder.read(tokens, alone)
            logits = one if logits is None else logits + one  # 0 in the other rows
            for name, value in seen.values.items():
                values.setdefault(name, []).append((row, value[0, ..., -1, :]))
        return logits, {name: self._assembled(some, rows, weights=".probs" in name) for name, some in values.items()}

    def _assembled(self, values: list[tuple[int, Tensor]], rows: int, weights: bool) -> Tensor:
        """[B, ..., 1, n] of rows' values [..., n]. Weights belong to the last tokens that the row has read."""
        like = values[0][1]
        n = self._valid.shape[1] if weights else like.shape[-1]
        whole = like.new_zeros(rows, *like.shape[:-1], n)
        for row, value in values:
            columns = self._valid[row].nonzero()[-value.shape[-1]:, 0] if weights else torch.arange(n)
            whole[row][..., columns.to(like.device)] = value
        return whole.unsqueeze(-2)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Returns the number of columns read, padding included."""
        return self._valid.shape[1]

    def reorder_cache(self, rows: Tensor) -> None:
        """Replaces row i by a copy of row rows[i]."""
        self._decoder.reorder(rows)
        self._valid = self._valid[rows.cpu()]


class Look:
    """Collects the attentions and hidden states of a call."""

    def __init__(self, config: transformers.PretrainedConfig, attentions: Optional[bool], hidden_states: Optional[bool]):
        attentions = config.output_attentions if attentions is None else attentions
        hidden_states = config.output_hidden_states if hidden_states is None else hidden_states
        layers = range(config.num_hidden_layers)
        self._weights = [f"layer{i}.attention.probs_composed" for i in layers] if attentions else []
        self._states = ["embedding", *(f"layer{i}.out" for i in layers[:-1]), "norm_f"] if hidden_states else []
        self.names = [*self._weights, *self._states]
        self._values: dict[str, list[Tensor]] = {}

    @contextlib.contextmanager
    def on(self, wanted: bool = True) -> Iterator[None]:
        """Returns a context manager that collects the values of the model calls inside it; does nothing unless `wanted`."""
        if not (wanted and self.names):
            yield
            return
        with watching(*self.names) as seen:
            yield
        self.add(seen.values)

    def add(self, values: dict[str, Tensor]) -> None:
        """Appends the values of more tokens."""
        for name, value in values.items():
            self._values.setdefault(name, []).append(value)

    def results(self, valid: Optional[Tensor]) -> tuple[Optional[tuple[Tensor, ...]], Optional[tuple[Tensor, ...]]]:
        """Returns `attentions` and `hidden_states`. valid [B, T]: False for padding that was moved to the end of its row."""
        for name in self.names:
            if name not in self._values:
                raise ValueError(f"output_attentions: {name.removesuffix('.attention.probs_composed')} has no attention "
                                 f"weights")
        columns = max((value.shape[-1] for name in self._weights for value in self._values[name]), default=0)
        weights = [torch.cat([nn.functional.pad(value, (0, columns - value.shape[-1])) for value in self._values[name]], -2)
                   for name in self._weights]
        states = [torch.cat(self._values[name], -2) for name in self._states]
        if valid is not None:
            order = tokens_first(valid).argsort(1)
            weights = [back(back(weight, order, -2), order, -1) for weight in weights]
            states = [back(state, order, -2) for state in states]
        return tuple(weights) if self._weights else None, tuple(states) if self._states else None
