"""HeadroomTokenizer, and saving and loading the tokenizer of a model's folder."""

from __future__ import annotations

import os
from pathlib import Path as Folder
from typing import Iterator, Optional, Sequence

import transformers

from ._library import ops
from .models import LanguageModel, Path
from .tokenizer import Tokenizer


CODE = "modeling_headroom"  # the module in a saved folder
_CODE_TEXT = '''"""The classes of this folder's model, for transformers with trust_remote_code=True."""

try:
    from headroom_torch.huggingface import HeadroomConfig, HeadroomForCausalLM, HeadroomTokenizer  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(f"this model needs the Python package headroom_torch; install its wheel ({error})") from error
'''


def save_code(folder: Path) -> None:
    """Writes the module through which `transformers` finds the classes of a saved folder."""
    (Folder(folder) / f"{CODE}.py").write_text(_CODE_TEXT)


class HeadroomTokenizer(transformers.PreTrainedTokenizer):
    """SentencePiece and words, with the ids of headroom_torch.Tokenizer. The name of a token is the text that it adds, or its
    id as <7> if that text is empty, not UTF-8 or another token's."""

    vocab_files_names = {"headroom_file": "tokenizer.headroom"}
    model_input_names = ["input_ids", "attention_mask"]
    _auto_map = {"AutoTokenizer": [f"{CODE}.HeadroomTokenizer", None]}

    def __init__(self, headroom_file: Path, **others):
        self._engine = Tokenizer(headroom_file)
        self._tokens = list(_token_texts(self._engine))
        self._ids = {token: i for i, token in enumerate(self._tokens)}
        # Padding is masked, so any token will do. The token's name is not matched in texts.
        others.setdefault("pad_token", next((t for i, t in enumerate(self._tokens) if t == f"<{i}>"), self._tokens[0]))
        others.setdefault("split_special_tokens", True)
        super().__init__(headroom_file=os.fspath(headroom_file), **others)

    @classmethod
    def register_for_auto_class(cls, auto_class="AutoTokenizer") -> None:
        """Does nothing: save_pretrained() writes the code that a folder needs."""

    @property
    def vocab_size(self) -> int:
        return len(self._tokens)

    def get_vocab(self) -> dict[str, int]:
        return {**self._ids, **self._added_tokens_encoder}

    def _tokenize(self, text: str, **others) -> list[str]:
        return [self._tokens[i] for i in self._engine.encode(text).tolist()]

    def _convert_token_to_id(self, token: str) -> Optional[int]:
        return self._ids.get(token)

    def _convert_id_to_token(self, index: int) -> str:
        return self._tokens[index]

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        return self._engine.decode([self._ids[token] for token in tokens])

    def save_vocabulary(self, save_directory: Path, filename_prefix: Optional[str] = None) -> tuple[str]:
        name = self.vocab_files_names["headroom_file"]
        path = os.path.join(save_directory, f"{filename_prefix}-{name}" if filename_prefix else name)
        self._engine.save(path)
        return (path,)


def _token_texts(tokenizer: Tokenizer) -> Iterator[str]:
    """Returns the unique name of each token: the text that it adds, or its id."""
    before = tokenizer.encode("a").tolist()
    known, n = set(), len(tokenizer.decode(before))
    for i in range(tokenizer.vocabulary_size):
        text = tokenizer.decode([*before, i])[n:]
        if not text or "\ufffd" in text or text in known:
            text = f"<{i}>"
        while text in known:
            text = f"<{text}>"
        known.add(text)
        yield text


def save_tokenizer(model: LanguageModel, folder: Path, model_max_length: int) -> None:
    """Writes the model's tokenizer for `transformers` and for the commands of `headroom`."""
    folder, tokenizer = Folder(folder), model.tokenizer
    if tokenizer is None:
        return
    (folder / "tokenizer.json").unlink(missing_ok=True)
    path = folder / HeadroomTokenizer.vocab_files_names["headroom_file"]
    tokenizer.save(path)  # for the commands of `headroom`
    if tokenizer.kind in ("bytes", "bpe"):
        ops.export_tokenizer(tokenizer._engine, model_max_length, str(folder), model._special)
    if not (folder / "tokenizer.json").exists():
        HeadroomTokenizer(path, model_max_length=model_max_length).save_pretrained(folder)


def load_tokenizer(model: LanguageModel, folder: Path) -> None:
    """Sets the model's tokenizer to the one in a folder that save_tokenizer() wrote."""
    if (file := Folder(folder) / HeadroomTokenizer.vocab_files_names["headroom_file"]).exists():
        model.tokenizer = Tokenizer(file)
