"""Models as torch.nn.Modules, and conversion of Hugging Face models."""

from __future__ import annotations

import functools
import json
import os
import re
from typing import Iterator, Optional, Union

import torch
from torch import Tensor

from ._library import ops
from .decoding import Decoder, ModuleDecoder, draw
from .modules import Block, Layer, _describe, _settings, has_hooks, in_parts, initial_values, require_tensor
from .observing import observed, run, show, watched
from .tokenizer import Tokenizer

__all__ = ["Classifier", "EncoderDecoder", "LanguageModel", "MaskedLanguageModel", "VisionTransformer", "convert"]


Path = Union[str, os.PathLike]


def convert(source: Path, target: Path, *, tokenizer: Optional[Path] = None) -> str:
    """Converts a Hugging Face folder to a checkpoint, or a checkpoint to a Hugging Face folder. Returns the model_type.

    Import, if `source` is a folder with config.json, safetensors and tokenizer files of a GPT-2, GPT-NeoX (Pythia) or
    LLaMA-like model: `target` becomes a checkpoint with the same logits, for LanguageModel.from_checkpoint(). `tokenizer`:
    a file to use instead of the folder's.

    Export, if `source` is a checkpoint or run folder of a dense language model: `target` becomes such a folder.

    Raises ValueError naming the setting, tensor or option that has no equivalent. Equals `headroom import` and `headroom
    checkpoint export --format huggingface`.
    """
    return ops.convert(os.fspath(source), os.fspath(target), "" if tokenizer is None else os.fspath(tokenizer))


class _Model(Layer):
    KIND = ""
    # Set by from_checkpoint():
    tokenizer: Optional[Tokenizer] = None
    step = 0      # of training
    _config = ""  # TOML
    _special = ""  # special tokens of the model that it was imported from, JSON

    def __init__(self, source: Optional[str] = None, *, seed: Optional[int] = None, device=None, dtype=None, **options):
        """`source`: a TOML file or the name of a recipe; keywords override its keys.

        With `seed` the initial values are those of `headroom train` with that seed, otherwise they depend on torch's global
        generator. `device`, `dtype`: of the parameters. Raises ValueError for options that the engine refuses.
        """
        settings = _settings("model.", {**options, "kind": self.KIND})
        description = _describe("model", type(self).__name__, source, settings)
        super().__init__(description, initial_values(description, seed, device, dtype))

    def _begin(self, description, values):
        super()._begin(description, values)
        self._balances = ops.balances(description)

    @classmethod
    def _begun(cls, description: str):
        """Returns a model of this description, initialised from torch's global generator."""
        return cls._made(description, initial_values(description))

    @classmethod
    def from_checkpoint(cls, path: Path, *, device=None, dtype=None):
        """Opens the model of a checkpoint, or of the latest checkpoint of a run folder, in eval mode.

        The model has the checkpoint's `tokenizer` and `step`. Raises ValueError if there is no readable checkpoint, or one
        of another kind of model.
        """
        kind, description, values, config, step, tokenizer, special = ops.read_checkpoint(os.fspath(path))
        if kind != cls.KIND:
            raise ValueError(f"{cls.__name__}.from_checkpoint: {path} must hold a {cls.KIND}, got a {kind}")
        model = cls._made(description, [value.to(device=device, dtype=dtype) for value in values])
        model._config, model.step, model._special = config, step, special
        model.tokenizer = None if tokenizer is None else Tokenizer._of(tokenizer)
        return model.eval()

    def save_checkpoint(self, path: Path, *, tokenizer: Union[Tokenizer, Path, None] = None,
                        step: Optional[int] = None) -> None:
        """Writes a checkpoint for from_checkpoint() and the command `headroom`, with parameters in float32.

        tokenizer: a Tokenizer, or a file or folder with one; by default the model's own. Classifiers have none. The config is
        taken from the checkpoint that the model was opened from, if any, with this model's options. Sharded parameters (FSDP2)
        are gathered: all ranks must call this, and rank 0 writes. Raises ValueError if the tokenizer does not match,
        or if `path` is a checkpoint that training can resume from.
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
                             self.step if step is None else step, tokenizer and tokenizer._engine, self._special)

    def _batch(self, loss: bool, label_smoothing: float = 0.0, implementation: str = "automatic", **inputs) -> Tensor:
        given = {name: tensor for name, tensor in inputs.items() if tensor is not None}
        for name, x in given.items():
            require_tensor(self, x)
            if name in ("tokens", "second", "source", "target") and isinstance(x, Tensor):
                if x.dim() != 2 or x.is_floating_point():
                    raise ValueError(f"{type(self).__name__}: {name} must be int64 [B, T], got {x.dtype} {list(x.shape)}")

        def call(tensors, description, loss):
            return ops.model(tensors, list(given.values()), description, ",".join(given), loss=loss,
                             label_smoothing=label_smoothing, training=self.training, implementation=implementation)[0]

        if in_parts(self):
            return self._by_parts(call, loss, implementation, given)
        whole = lambda: call(self._tensors(), self.description, loss)  # noqa: E731
        return run("", whole) if observed() else whole()

    # A copy of the model without blocks ("ends") computes each stack's input, and gets the output of its last block.
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
            for block in self._repeated(self._stack(scope), scope):
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
        """Returns the mask arguments of the blocks of a stack; number: the index of the stack."""
        return {}

    def _stack(self, scope: str = "") -> list[Block]:
        return [self.get_submodule(name) for name in self._parts if re.fullmatch(re.escape(scope) + r"layer\d+", name)]

    def _repeated(self, blocks: list[Block], scope: str = "") -> Iterator[Block]:
        """Returns the blocks of all layers; with n_groups, each of `blocks` is several layers."""
        if not self._options["model.n_groups"]:
            yield from blocks
            return
        for layer in range(self._options["model.n_layers"]):
            block = blocks[layer % len(blocks)]
            block._placed(f"{scope}layer{layer}.")
            yield block


@functools.lru_cache(maxsize=64)
def _embedding_of(description: str, vocabulary_size: int) -> str:
    """Returns the embedding of a model with another vocabulary."""
    settings = json.loads(description)["settings"]
    return _describe("embedding", "LanguageModel", None,
                     [*settings, f"model.vocabulary_size={vocabulary_size}", "model.adaptive_cutoffs=[]"])


def _mask_of_keys(valid: Optional[Tensor], memory: Optional[Tensor]) -> dict[str, Tensor]:
    """Returns the mask argument of a block whose tokens are `valid` [B, T]; all of its memory [B, M, d] is valid."""
    if valid is None or memory is None:
        return {} if valid is None else dict(valid_keys=valid)
    return dict(valid_keys=torch.cat([valid.new_ones(memory.shape[:2]), valid], 1))


def _unless_automatic(implementation: str) -> dict[str, str]:
    return {} if implementation == "automatic" else {"implementation": implementation}


class LanguageModel(_Model):
    """The causal language model: embedding, blocks, final norm, output head; with memory_length also Transformer-XL memory
    (Dai et al., section 3.2).

        LanguageModel("switchhead/wt103_47m")       # a recipe's name, or a TOML file
        LanguageModel(vocabulary_size=8000, n_layers=2, d_model=128, attention=dict(projection="experts"))

    Keywords are the keys of [model], with tables as dicts. Sub-modules: Blocks `layer0`, `layer1`, ... (with n_groups, one
    per set of parameters), then `norm_f` and `head`.
    """

    KIND = "language_model"
    _checkpoint = None  # torch.utils.checkpoint.checkpoint, to recompute blocks in backward passes

    def _begin(self, description, values):
        super()._begin(description, values)
        self._remembers = self._options["model.memory_length"] > 0
        self._embedding = _describe("embedding", type(self).__name__, None, self.options)
        self._embedding_names = [p["name"] for p in json.loads(ops.parameters_of(self._embedding))]
        self._blocks = [name for name in self._parts if name.startswith("layer")]

    @property
    def blocks(self) -> list[Block]:
        """Returns the modules layer0, layer1, ...; assigning a list of the same length replaces them."""
        return [self._modules[name] for name in self._blocks]

    def __setattr__(self, name, value):
        if name == "blocks":
            for layer, block in zip(self._blocks, value, strict=True):
                setattr(self, layer, block)
        else:
            super().__setattr__(name, value)

    def _embed(self, tokens: Optional[Tensor], embeddings: Optional[Tensor], implementation: str) -> Tensor:
        if embeddings is None:
            require_tensor(self, tokens)
        tensors, description = self._tensors(self._embedding_names), self._embedding
        if embeddings is not None:  # the rows of another matrix, read in order
            if tokens is not None or embeddings.dim() != 3:
                raise ValueError(f"{type(self).__name__}: embeddings must be [B, T, d_model], without tokens, got "
                                 f"{list(embeddings.shape)}")
            tokens = torch.arange(embeddings.shape[0] * embeddings.shape[1], device=embeddings.device)
            description = _embedding_of(description, len(tokens))
            tokens, tensors[0] = tokens.view(embeddings.shape[:2]), embeddings.flatten(0, 1)
        call = lambda: ops.layer(tokens, tensors, description, training=self.training,  # noqa: E731
                                 implementation=implementation)[0]
        return run("", call) if observed() else call()

    def _hidden(self, tokens, memory, balance, implementation, embeddings, valid=None):
        h, kept, losses = self._embed(tokens, embeddings, implementation), [], []
        if memory and len(memory) != self._options["model.n_layers"]:
            raise ValueError(f"{type(self).__name__}: memory must be one tensor for each of {self._options['model.n_layers']} "
                             f"layers, got {len(memory)}")
        for i, block in enumerate(self._repeated(self.blocks)):
            call = functools.partial(block, memory=memory[i] if memory else None, remember=self._remembers,
                                     balance=balance and self._balances, implementation=implementation,
                                     **_mask_of_keys(valid, memory[i] if memory else None))
            result = self._checkpoint(call, h) if self._checkpoint and self.training else call(h)
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

    def forward(self, tokens: Optional[Tensor] = None, memory: Optional[list[Tensor]] = None, *,
                embeddings: Optional[Tensor] = None, implementation: str = "automatic"):
        """Logits [B, T, V] of the token after each of `tokens` [B, T] int64, T up to context_length.

        embeddings [B, T, d_model]: instead of tokens, their rows of the embedding matrix `embed`. With memory_length the
        result is (logits, memory), where memory is the argument for the next chunk: one tensor [B, M, d_model] per layer.
        """
        h, kept, _ = self._hidden(tokens, memory, False, implementation, embeddings)
        logits = self._scores(h, implementation)
        return (logits, kept) if self._remembers else logits

    def loss(self, tokens: Optional[Tensor], targets: Tensor, memory: Optional[list[Tensor]] = None, *,
             embeddings: Optional[Tensor] = None, valid: Optional[Tensor] = None, implementation: str = "automatic"):
        """Mean cross-entropy of `targets` [B, T] int64 in nats (targets below 0 do not count) plus balance losses with their
        coefficients: a scalar. The B x T x V logits are not stored. With memory_length the result is (loss, memory).

        valid [B, T] bool: False for padding, which does not count in the balance losses.
        """
        h, kept, losses = self._hidden(tokens, memory, True, implementation, embeddings, valid)
        loss = sum(losses, self._scores(h, implementation, targets))
        return (loss, kept) if self._remembers else loss

    def decoder(self, rows: int = 1) -> Union[Decoder, ModuleDecoder]:
        """An empty decoding state for `rows` sequences; the model's parameters must not change while it is used.

        If the model or one of its sub-modules has hooks or was replaced, the decoder calls the modules instead: the results
        are the same, but each token reads the whole chunk again.
        """
        return ModuleDecoder(self, rows) if has_hooks(self) or in_parts(self) else Decoder(self, rows)

    @torch.no_grad()
    def generate(self, tokens: Tensor, count: int, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
                 generator: Optional[torch.Generator] = None) -> Tensor:
        """Continues `tokens` [B, T] int64 by `count` sampled tokens; returns int64 [B, T + count].

        temperature 0: greedy. top_k: sample from the k most likely tokens; 0: all. top_p: sample from the fewest most likely
        tokens that reach this probability.
        """
        if count < 0 or not temperature >= 0 or top_k < 0 or not 0 < top_p <= 1:
            raise ValueError(f"generate: count, temperature and top_k must be at least 0 and top_p in (0, 1], got {count}, "
                             f"{temperature}, {top_k} and {top_p}")
        if not isinstance(tokens, Tensor) or tokens.dim() != 2 or tokens.dtype != torch.int64:
            got = f"{tokens.dtype} {list(tokens.shape)}" if isinstance(tokens, Tensor) else " ".join(repr(tokens).split())[:80]
            raise ValueError(f"generate: tokens must be int64 [B, T], got {got}; a text becomes that by "
                             f"model.tokenizer.encode(text)[None]")
        if tokens.shape[0] == 0:
            return tokens.new_empty(0, tokens.shape[1] + count)
        decoder, pending = self.decoder(tokens.shape[0]), tokens
        for _ in range(count):
            pending = draw(decoder.read(pending), temperature, top_k, top_p, generator)
            tokens = torch.cat([tokens, pending], 1)
        return tokens


class MaskedLanguageModel(_Model):
    """An encoder that predicts hidden tokens from both sides (RoBERTa; MoA's masked language models)."""

    KIND = "masked_language_model"

    def forward(self, tokens: Tensor, valid: Optional[Tensor] = None, *, implementation: str = "automatic") -> Tensor:
        """Logits [B, T, V] of `tokens` [B, T] int64, T up to context_length; valid [B, T] bool: False for padding."""
        return self._batch(False, implementation=implementation, tokens=tokens, valid=valid)

    def loss(self, tokens: Tensor, hidden: Tensor, valid: Optional[Tensor] = None, *,
             implementation: str = "automatic") -> Tensor:
        """Mean cross-entropy in nats plus balance losses, a scalar; hidden [B, T] int64: the original tokens at hidden places,
        below 0 elsewhere."""
        return self._batch(True, implementation=implementation, tokens=tokens, hidden=hidden, valid=valid)

    def _masks(self, scope, number, inputs):
        return dict(valid_keys=inputs.get("valid"))


class EncoderDecoder(_Model):
    """The encoder-decoder Transformer, for translation."""

    KIND = "encoder_decoder"

    def forward(self, source: Tensor, target: Tensor, valid_source: Optional[Tensor] = None,
                valid_target: Optional[Tensor] = None, *, implementation: str = "automatic") -> Tensor:
        """Logits [B, T, V] of the token after each of `target` [B, T] int64, given source [B, S] int64.

        valid_source [B, S], valid_target [B, T] bool: False for padding.
        """
        return self._batch(False, implementation=implementation, source=source, target=target,
                           valid_source=valid_source, valid_target=valid_target)

    def loss(self, source: Tensor, target: Tensor, next: Tensor, valid_source: Optional[Tensor] = None,
             valid_target: Optional[Tensor] = None, *, label_smoothing: float = 0.0,
             implementation: str = "automatic") -> Tensor:
        """Mean cross-entropy in nats plus balance losses, a scalar; next [B, T] int64: the token after each target token,
        below 0: does not count."""
        return self._batch(True, label_smoothing, implementation, source=source, target=target, next=next,
                           valid_source=valid_source, valid_target=valid_target)

    def _masks(self, scope, number, inputs):
        if scope == "encoder.":
            return dict(valid_keys=inputs.get("valid_source"))
        return dict(valid_keys=inputs.get("valid_target"), valid_source=inputs.get("valid_source"))


class Classifier(_Model):
    """Classifies a sequence, or a pair of sequences (Transformer-MGK's Long Range Arena models)."""

    KIND = "classifier"

    def forward(self, tokens: Tensor, second: Optional[Tensor] = None, *, implementation: str = "automatic") -> Tensor:
        """Logits [B, n_classes] of tokens [B, T] int64 and, if paired, second [B, T]; padding_token marks padding."""
        return self._batch(False, implementation=implementation, tokens=tokens, second=second)

    def loss(self, tokens: Tensor, label: Tensor, second: Optional[Tensor] = None, *, label_smoothing: float = 0.0,
             implementation: str = "automatic") -> Tensor:
        """Mean cross-entropy of label [B] int64 in nats plus balance losses, a scalar."""
        return self._batch(True, label_smoothing, implementation, tokens=tokens, second=second, label=label)

    def _masks(self, scope, number, inputs):
        return dict(valid_keys=inputs["second" if number else "tokens"] != self._options["model.padding_token"])


class VisionTransformer(_Model):
    """Classifies images (ViT, DCViT)."""

    KIND = "vision"

    def forward(self, images: Tensor, *, implementation: str = "automatic") -> Tensor:
        """Logits [B, n_classes] of images [B, image_channels, image_size, image_size], floating-point."""
        return self._batch(False, implementation=implementation, images=images)

    def loss(self, images: Tensor, label: Tensor, *, label_smoothing: float = 0.0,
             implementation: str = "automatic") -> Tensor:
        """Mean cross-entropy of label [B] int64 in nats plus balance losses, a scalar."""
        return self._batch(True, label_smoothing, implementation, images=images, label=label)
