"""Whole models as torch.nn.Modules."""

from __future__ import annotations

import json
import os
import re
from typing import Optional, Union

import torch
from torch import Tensor

from ._library import ops
from .decoding import Decoder, ModuleDecoder, draw
from .modules import Block, Layer, _describe, _settings, has_hooks, in_parts, initial_values
from .observing import observed, run, show, watched
from .tokenizer import Tokenizer

__all__ = ["Classifier", "EncoderDecoder", "LanguageModel", "MaskedLanguageModel", "VisionTransformer"]


Path = Union[str, os.PathLike]


class _Model(Layer):
    KIND = ""
    tokenizer: Optional[Tokenizer] = None  # of the checkpoint that the model was opened from
    step = 0                               # and the steps of training that it had
    _config = ""                           # and everything that it was trained by

    def __init__(self, source: Optional[str] = None, *, seed: Optional[int] = None, device=None, dtype=None, **options):
        """`source`: a TOML file or a recipe's name, the keywords go on top. Without `seed` the initial values follow
        torch's generator; with it they are those of `headroom train` with that seed."""
        settings = _settings("model.", {**options, "kind": self.KIND})
        description = _describe("model", type(self).__name__, source, settings)
        super().__init__(description, initial_values(description, seed, device, dtype))

    def _begin(self, description, values):
        super()._begin(description, values)
        self._balances = ops.balances(description)

    @classmethod
    def _begun(cls, description: str):
        """The model so described, with initial values that follow torch's generator."""
        return cls._made(description, initial_values(description))

    @classmethod
    def from_checkpoint(cls, path: Path, *, device=None, dtype=None):
        """The model of a checkpoint, or of the latest one of a run folder, as after eval().

        It has the checkpoint's `tokenizer` and `step`.
        """
        kind, description, values, config, step, tokenizer = ops.read_checkpoint(os.fspath(path))
        if kind != cls.KIND:
            raise ValueError(f"{cls.__name__}.from_checkpoint: {path} holds a model of kind {kind}, not {cls.KIND}")
        model = cls._made(description, [value.to(device=device, dtype=dtype) for value in values])
        model._config, model.step = config, step
        model.tokenizer = None if tokenizer is None else Tokenizer._of(tokenizer)
        return model.eval()

    def save_checkpoint(self, path: Path, *, tokenizer: Union[Tokenizer, Path, None] = None,
                        step: Optional[int] = None) -> None:
        """Writes a file that `headroom evaluate`, `generate` and from_checkpoint() read, parameters in float32.

        tokenizer: a Tokenizer, or a file or folder that holds one; without it: the model's own. Models that choose a class
        have none. The config is that of the checkpoint the model came from, if any, with the model as it is here. Sharded
        parameters (FSDP2) are gathered: every rank calls this, and the first one writes.
        """
        if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
            tokenizer = Tokenizer(tokenizer)
        tokenizer = tokenizer or self.tokenizer
        values = [t.detach() for t in self._tensors()]
        if any(hasattr(t, "full_tensor") for t in values):
            values = [t.full_tensor() if hasattr(t, "full_tensor") else t for t in values]
            if torch.distributed.get_rank() != 0:
                return
        ops.write_checkpoint(os.fspath(path), self.description, values, self._config,
                             self.step if step is None else step, tokenizer and tokenizer._engine)

    def _batch(self, loss: bool, label_smoothing: float = 0.0, implementation: str = "automatic", **inputs) -> Tensor:
        given = {name: tensor for name, tensor in inputs.items() if tensor is not None}

        def call(tensors, description, loss):
            return ops.model(tensors, list(given.values()), description, ",".join(given), loss=loss,
                             label_smoothing=label_smoothing, training=self.training, implementation=implementation)[0]

        if in_parts(self):
            return self._by_parts(call, loss, implementation, given)
        whole = lambda: call(self._tensors(), self.description, loss)  # noqa: E731
        return run("", whole) if observed() else whole()

    # The same model without blocks says what the first of each stack reads, and is given what the last one made of it.
    def _by_parts(self, call, loss: bool, implementation: str, inputs: dict[str, Tensor]) -> Tensor:
        ends = _describe("ends", type(self).__name__, None, self.options)
        tensors = [tensor for name, tensor in zip(self._names, self._tensors()) if not re.search(r"\blayer\d+\.", name)]
        read = ["embedding", "encoder.embedding", "decoder.embedding"]
        made, losses = [], []
        for name, h in watched(lambda: call(tensors, ends, False), read)[1]:
            if observed():
                show(name, h)
            scope = name.removesuffix("embedding")
            masks = self._masks(scope, len(made), inputs)
            if scope == "decoder.":
                masks["source"] = made[0][1]
            for block in self._stack(scope):
                result = block(h, balance=loss and self._balances, **masks, **_unless_automatic(implementation))
                h, *rest = result if isinstance(result, tuple) else (result,)
                losses += rest
            if scope + "norm_f" in self._parts:
                name, h = scope + "norm_f", self.get_submodule(scope + "norm_f")(h)
                if observed():
                    show(name, h)
            made.append((name, h))
        return sum(losses, watched(lambda: call(tensors, ends, loss), [], given=tuple(made))[0])

    def _masks(self, scope: str, number: int, inputs: dict[str, Tensor]) -> dict[str, Optional[Tensor]]:
        """What the blocks of a stack are told of padding; number: how many stacks came before."""
        return {}

    def _stack(self, scope: str = "") -> list[Block]:
        return [self.get_submodule(name) for name in self._parts if re.fullmatch(re.escape(scope) + r"layer\d+", name)]


def _unless_automatic(implementation: str) -> dict[str, str]:
    return {} if implementation == "automatic" else {"implementation": implementation}


class LanguageModel(_Model):
    """The causal language model: embedding, blocks, final norm, output head; with Transformer-XL memory where
    memory_length says so.

        LanguageModel("switchhead/wt103_47m")       # a recipe's name, or a TOML file
        LanguageModel(vocabulary_size=8000, n_layers=2, d_model=128, attention=dict(projection="experts"))

    Keywords are the keys of [model], tables as dicts. Sub-modules layer0, layer1, ... are Blocks, before `norm_f` and
    `head`.
    """

    KIND = "language_model"

    def _begin(self, description, values):
        super()._begin(description, values)
        self._remembers = self._options["model.memory_length"] > 0
        self._embedding = _describe("embedding", type(self).__name__, None, self.options)
        self._embedding_names = [p["name"] for p in json.loads(ops.parameters_of(self._embedding))]
        self._blocks = [name for name in self._parts if name.startswith("layer")]

    @property
    def blocks(self) -> list[Block]:
        return [self._modules[name] for name in self._blocks]

    def _embed(self, tokens: Tensor, implementation: str) -> Tensor:
        tensors = [self.get_parameter(name) for name in self._embedding_names]
        call = lambda: ops.layer(tokens, tensors, self._embedding, training=self.training,  # noqa: E731
                                 implementation=implementation)[0]
        return run("", call) if observed() else call()

    def _hidden(self, tokens, memory, balance, implementation):
        h, kept, losses = self._embed(tokens, implementation), [], []
        for i, block in enumerate(self.blocks):
            result = block(h, memory=memory[i] if memory else None, remember=self._remembers,
                           balance=balance and self._balances, implementation=implementation)
            h, *rest = result if isinstance(result, tuple) else (result,)
            if self._remembers:
                kept.append(rest.pop(0))
            losses += rest
        h = self.norm_f(h)
        if observed():
            show("norm_f", h)
        return h, kept, losses

    def _scores(self, h: Tensor, implementation: str, targets: Optional[Tensor] = None) -> Tensor:
        shared = self.embed if self._options["model.tied_embeddings"] else None
        return self.head(h, shared, targets=targets, implementation=implementation)

    def forward(self, tokens: Tensor, memory: Optional[list[Tensor]] = None, *, implementation: str = "automatic"):
        """Logits [B, T, V] of the token after each of `tokens` [B, T] int64, T up to context_length.

        In a model with memory_length the result is (logits, memory): hand the memory to the call for the next chunk.
        """
        h, kept, _ = self._hidden(tokens, memory, False, implementation)
        logits = self._scores(h, implementation)
        return (logits, kept) if self._remembers else logits

    def loss(self, tokens: Tensor, targets: Tensor, memory: Optional[list[Tensor]] = None, *,
             implementation: str = "automatic"):
        """Mean cross-entropy in nats of `targets` [B, T], those below 0 not counting, and the balance losses with their
        coefficients; without the B x T x V logits. In a model with memory_length the result is (loss, memory).
        """
        h, kept, losses = self._hidden(tokens, memory, True, implementation)
        loss = sum(losses, self._scores(h, implementation, targets))
        return (loss, kept) if self._remembers else loss

    def decoder(self, rows: int = 1) -> Union[Decoder, ModuleDecoder]:
        """An empty cache for reading `rows` texts token by token, with the parameters as they are now. Where the model or
        a part of it has hooks, or was replaced by another module, it calls the modules instead, with the same results:
        they read the chunk again for each token."""
        return ModuleDecoder(self, rows) if has_hooks(self) or in_parts(self) else Decoder(self, rows)

    @torch.no_grad()
    def generate(self, tokens: Tensor, count: int, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
                 generator: Optional[torch.Generator] = None) -> Tensor:
        """`tokens` [B, T] int64 and `count` more [B, T + count], drawn one by one with the cache.

        temperature 0: always the likeliest; top_k: only so many of the likeliest (0: all); top_p: the fewest likeliest
        that reach this probability together.
        """
        if count < 0 or temperature < 0 or top_k < 0 or not 0 < top_p <= 1:
            raise ValueError(f"generate: count, temperature and top_k must be at least 0 and top_p in (0, 1], got {count}, "
                             f"{temperature}, {top_k} and {top_p}")
        decoder, pending = self.decoder(tokens.shape[0]), tokens
        for _ in range(count):
            pending = draw(decoder.read(pending), temperature, top_k, top_p, generator)
            tokens = torch.cat([tokens, pending], 1)
        return tokens


class MaskedLanguageModel(_Model):
    """An encoder that tells hidden tokens from those on both sides."""

    KIND = "masked_language_model"

    def forward(self, tokens: Tensor, valid: Optional[Tensor] = None, *, implementation: str = "automatic") -> Tensor:
        """Logits [B, T, V] of `tokens` [B, T] int64; valid [B, T] bool: False for padding."""
        return self._batch(False, implementation=implementation, tokens=tokens, valid=valid)

    def loss(self, tokens: Tensor, hidden: Tensor, valid: Optional[Tensor] = None, *,
             implementation: str = "automatic") -> Tensor:
        """Mean cross-entropy in nats; hidden [B, T] int64: what stood at the hidden places, below 0 elsewhere."""
        return self._batch(True, implementation=implementation, tokens=tokens, hidden=hidden, valid=valid)

    def _masks(self, scope, number, inputs):
        return dict(valid_keys=inputs.get("valid"))


class EncoderDecoder(_Model):
    """Reads one sequence and writes another."""

    KIND = "encoder_decoder"

    def forward(self, source: Tensor, target: Tensor, valid_source: Optional[Tensor] = None,
                valid_target: Optional[Tensor] = None, *, implementation: str = "automatic") -> Tensor:
        """Logits [B, T, V] of the token after each of `target` [B, T]; source [B, S]; valid_*: bool, False for padding."""
        return self._batch(False, implementation=implementation, source=source, target=target,
                           valid_source=valid_source, valid_target=valid_target)

    def loss(self, source: Tensor, target: Tensor, next: Tensor, valid_source: Optional[Tensor] = None,
             valid_target: Optional[Tensor] = None, *, label_smoothing: float = 0.0,
             implementation: str = "automatic") -> Tensor:
        """Mean cross-entropy in nats; next [B, T]: the token after each of the target's, below 0 where none counts."""
        return self._batch(True, label_smoothing, implementation, source=source, target=target, next=next,
                           valid_source=valid_source, valid_target=valid_target)

    def _masks(self, scope, number, inputs):
        if scope == "encoder.":
            return dict(valid_keys=inputs.get("valid_source"))
        return dict(valid_keys=inputs.get("valid_target"), valid_source=inputs.get("valid_source"))


class Classifier(_Model):
    """Puts a text, or a pair of texts, into a class."""

    KIND = "classifier"

    def forward(self, tokens: Tensor, second: Optional[Tensor] = None, *, implementation: str = "automatic") -> Tensor:
        """Logits [B, n_classes] of tokens [B, T] (paired: and second [B, T]); padding_token is padding."""
        return self._batch(False, implementation=implementation, tokens=tokens, second=second)

    def loss(self, tokens: Tensor, label: Tensor, second: Optional[Tensor] = None, *, label_smoothing: float = 0.0,
             implementation: str = "automatic") -> Tensor:
        """Mean cross-entropy in nats of label [B] int64."""
        return self._batch(True, label_smoothing, implementation, tokens=tokens, second=second, label=label)

    def _masks(self, scope, number, inputs):
        return dict(valid_keys=inputs["second" if number else "tokens"] != self._options["model.padding_token"])


class VisionTransformer(_Model):
    """Puts pictures into classes."""

    KIND = "vision"

    def forward(self, images: Tensor, *, implementation: str = "automatic") -> Tensor:
        """Logits [B, n_classes] of images [B, image_channels, image_size, image_size]."""
        return self._batch(False, implementation=implementation, images=images)

    def loss(self, images: Tensor, label: Tensor, *, label_smoothing: float = 0.0,
             implementation: str = "automatic") -> Tensor:
        """Mean cross-entropy in nats of label [B] int64."""
        return self._batch(True, label_smoothing, implementation, images=images, label=label)
