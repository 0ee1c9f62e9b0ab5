"""Tokenizers."""

from __future__ import annotations

import os
from typing import Sequence, Union

import torch
from torch import Tensor

from ._library import ops

__all__ = ["Tokenizer"]


class Tokenizer:
    """Encodes text as token ids and back: SentencePiece, byte-level BPE, words or bytes, with the same ids as `headroom`.

        Tokenizer("gpt2/")              # a file or folder of `headroom tokenizer` or Hugging Face, a .model, or a run
        Tokenizer.bytes()               # one id for each byte
        model.tokenizer                 # of a model opened from a checkpoint, or None
    """

    def __init__(self, path: Union[str, os.PathLike]):
        self._engine = ops.load_tokenizer(os.fspath(path))

    @classmethod
    def bytes(cls) -> "Tokenizer":
        return cls._of(ops.restore_tokenizer("bytes", torch.empty(0, dtype=torch.uint8)))

    @classmethod
    def for_translation(cls, sources: "Tokenizer", targets: "Tokenizer") -> "Tokenizer":
        """Returns the tokenizer `targets` with `sources` as its for_sources, for an EncoderDecoder with source_vocabulary_size."""
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
        """Kind, size and first digits of a checksum. Tokenizers with the same name give the same ids."""
        return self._engine.name()

    @property
    def vocabulary_size(self) -> int:
        return self._engine.vocabulary_size()

    @property
    def for_sources(self) -> "Tokenizer":
        """The tokenizer of source sentences; the tokenizer itself unless it was made by for_translation()."""
        return Tokenizer._of(self._engine.for_sources())

    @property
    def serialised(self):
        """Returns the SentencePiece model, list of words or tokenizer.json, as bytes."""
        return self._engine.serialised().numpy().tobytes()

    def encode(self, text: str) -> Tensor:
        """Returns the ids of `text`, int64 [n]. Raises ValueError for characters that the tokenizer or UTF-8 cannot represent."""
        str.encode(text)  # raises for lone surrogates, for which torch blames the type
        return self._engine.encode(text)

    def decode(self, ids: Union[Tensor, Sequence[int]]) -> str:
        """Returns the text of integer ids [n]; invalid UTF-8 becomes U+FFFD."""
        ids = torch.as_tensor(ids)
        if ids.numel() == 0 or not (ids.is_floating_point() or ids.is_complex()):
            ids = ids.to(torch.int64)
        return self._engine.decode(ids).numpy().tobytes().decode(errors="replace")

    def save(self, path: Union[str, os.PathLike]) -> None:
        """Writes a file that commands and configs accept as a tokenizer."""
        self._engine.save(os.fspath(path))

    def __repr__(self) -> str:
        return f"Tokenizer({self.name})"
