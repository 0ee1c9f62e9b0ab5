"""Tokenizers as checkpoints hold them."""

from __future__ import annotations

import os
from typing import Sequence, Union

import torch
from torch import Tensor

from ._library import ops

__all__ = ["Tokenizer"]


class Tokenizer:
    """Text to ids and back: SentencePiece, byte-level BPE, words or bytes, with the ids that `headroom` gives.

        Tokenizer("gpt2/")              # a folder or file as `headroom tokenizer` and Hugging Face have them, or a .model
        Tokenizer.bytes()               # an id a byte
        model.tokenizer                 # of a model that was opened from a checkpoint, or None
    """

    def __init__(self, path: Union[str, os.PathLike]):
        self._engine = ops.load_tokenizer(os.fspath(path))

    @classmethod
    def bytes(cls) -> "Tokenizer":
        return cls._of(ops.restore_tokenizer("bytes", torch.empty(0, dtype=torch.uint8)))

    @classmethod
    def for_translation(cls, sources: "Tokenizer", targets: "Tokenizer") -> "Tokenizer":
        """Two as one, for an EncoderDecoder with a source_vocabulary_size: `targets`, with `sources` as its for_sources."""
        return cls._of(ops.two_tokenizers(sources._engine, targets._engine))

    @classmethod
    def _of(cls, engine) -> "Tokenizer":
        tokenizer = cls.__new__(cls)
        tokenizer._engine = engine
        return tokenizer

    @property
    def kind(self) -> str:
        return self._engine.kind()

    @property
    def name(self) -> str:
        """Kind, size and the beginning of a checksum: two tokenizers of one name give the same ids."""
        return self._engine.name()

    @property
    def vocabulary_size(self) -> int:
        return self._engine.vocabulary_size()

    @property
    def for_sources(self) -> "Tokenizer":
        """What the sentences to be translated are encoded with: itself, but where the sides have a tokenizer each."""
        return Tokenizer._of(self._engine.for_sources())

    @property
    def serialised(self):
        """The SentencePiece model, the list of words, the tokenizer.json, as bytes."""
        return self._engine.serialised().numpy().tobytes()

    def encode(self, text: str) -> Tensor:
        """int64 [n]."""
        return self._engine.encode(text)

    def decode(self, ids: Union[Tensor, Sequence[int]]) -> str:
        """The text of ids [n]; what is no UTF-8 becomes U+FFFD."""
        return self._engine.decode(torch.as_tensor(ids, dtype=torch.int64)).numpy().tobytes().decode(errors="replace")

    def save(self, path: Union[str, os.PathLike]) -> None:
        """As one file, which commands and configs take for a tokenizer."""
        self._engine.save(os.fspath(path))

    def __repr__(self) -> str:
        return f"Tokenizer({self.name})"
