"""Models of Hugging Face's folders into checkpoints, and back."""

from __future__ import annotations

import os
from typing import Optional, Union

from ._library import ops

__all__ = ["convert"]

Path = Union[str, os.PathLike]


def convert(source: Path, target: Path, *, tokenizer: Optional[Path] = None) -> str:
    """What `headroom import` and `headroom checkpoint export --format huggingface` do; the result is the model_type.

    source: a folder with config.json, safetensors and the tokenizer's files of a GPT-2, GPT-NeoX (Pythia) or LLaMA kind
    of model; target: the checkpoint that becomes of it, with the same logits, for LanguageModel.from_checkpoint(). Or
    source: a checkpoint or run folder of a dense language model; target: such a folder.

    tokenizer: another file than the folder's. What the other side has no equivalent for is a ValueError that names it.
    """
    return ops.convert(os.fspath(source), os.fspath(target), "" if tokenizer is None else os.fspath(tokenizer))
