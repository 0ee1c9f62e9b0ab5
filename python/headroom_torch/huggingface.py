"""Language models for `transformers`, which this module alone needs: importing it registers them.

    import headroom_torch.huggingface as hf

    hf.HeadroomForCausalLM.from_checkpoint("runs/mine").save_pretrained("mine_hf")
    model = transformers.AutoModelForCausalLM.from_pretrained("mine_hf")      # wherever this module is imported
    model.generate(ids, max_new_tokens=50)                                    # with the engine's cache

Any language model of the engine, dense or not. Those that `transformers` knows itself are better off with
headroom_torch.convert().
"""

from __future__ import annotations

import json
from typing import Optional, Union

import torch
import transformers
from torch import Tensor
from transformers.modeling_outputs import CausalLMOutputWithPast

from ._library import ops
from .models import LanguageModel, Path
from .modules import _describe

__all__ = ["HeadroomConfig", "HeadroomForCausalLM"]

# What `transformers` calls it, and the engine.
_NAMES = {"vocab_size": "vocabulary_size", "hidden_size": "d_model", "num_hidden_layers": "n_layers",
          "num_attention_heads": "attention.n_heads", "max_position_embeddings": "context_length"}

# What it calls a cache: "cache" from 5.24 on.
_CACHE = next(name for name in ("cache", "past_key_values") if name in CausalLMOutputWithPast.__dataclass_fields__)


class HeadroomConfig(transformers.PretrainedConfig):
    """settings: the model's options that differ from the defaults, ["model.n_layers=2", ...]."""

    model_type = "headroom"

    def __init__(self, settings: tuple[str, ...] = (), **others):
        super().__init__(**others)
        self.settings = list(settings)
        options = json.loads(ops.options_of(self.description))
        if options["model.kind"] != LanguageModel.KIND:
            raise ValueError(f"HeadroomConfig: settings must be those of a language model, got {options['model.kind']}")
        for theirs, ours in _NAMES.items():
            setattr(self, theirs, json.loads(options[f"model.{ours}"]))

    @property
    def description(self) -> str:
        return _describe("model", "HeadroomConfig", None, self.settings)


class HeadroomCache:
    """What is kept of the texts read so far, a row each."""

    is_compileable = False

    def __init__(self, model: LanguageModel, rows: int):
        self._decoder = model.decoder(rows)
        self._length = 0

    def read(self, tokens: Tensor, valid: Optional[Tensor] = None) -> Tensor:
        """Logits [B, V] after the last of tokens [B, n]; valid [B, n] bool: False for padding."""
        self._length += tokens.shape[1]
        return self._decoder.read(tokens, valid)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns read, padding included."""
        return self._length

    def reorder_cache(self, rows: Tensor) -> None:
        """Row i continues row rows[i]."""
        self._decoder.reorder(rows)


class HeadroomForCausalLM(transformers.PreTrainedModel, transformers.GenerationMixin):
    """A LanguageModel, as `model`, with the interface of `transformers`. attention_mask says which tokens are padding, on
    either side of a row: nothing sees it, and positions do not count it."""

    config_class = HeadroomConfig
    base_model_prefix = ""
    main_input_name = "input_ids"

    def __init__(self, config: HeadroomConfig):
        super().__init__(config)
        self.model = LanguageModel._begun(config.description)
        self.post_init()

    @classmethod
    def from_checkpoint(cls, path: Path) -> "HeadroomForCausalLM":
        """The language model of a checkpoint or run folder; save_pretrained() writes its tokenizer as well."""
        model = LanguageModel.from_checkpoint(path)
        with torch.device("meta"):
            made = cls(HeadroomConfig(model.options))
        made.model = model
        return made.eval()

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # forward() makes its own

    def _init_weights(self, module) -> None:
        """Initialised by the engine."""

    def forward(self, input_ids: Tensor, attention_mask: Optional[Tensor] = None,
                past_key_values: Optional[HeadroomCache] = None, labels: Optional[Tensor] = None,
                use_cache: Optional[bool] = None, logits_to_keep: int = 0, return_dict: Optional[bool] = None,
                cache: Optional[HeadroomCache] = None):
        """Logits [B, T, V] of input_ids [B, T]; with `labels` (input_ids themselves, -100 where none counts) also the
        loss, which the balance losses are part of, and in training no logits.

        cache, or past_key_values: what an earlier call with use_cache=True gave under the name that this version of
        `transformers` has for it; input_ids continue from there, without derivatives.
        logits_to_keep=1: of each row's last token only.
        attention_mask [B, T], or [B, all that was read and T]: 0 for padding, whose logits mean nothing.
        """
        loss, logits = None, None
        cache = past_key_values if cache is None else cache
        valid = None if attention_mask is None else attention_mask[:, -input_ids.shape[1]:].bool()
        if valid is not None and bool(valid.all()):
            valid = None
        if labels is not None:
            loss = self._loss(input_ids, labels, valid)
        if use_cache or cache is not None:
            cache = HeadroomCache(self.model, input_ids.shape[0]) if cache is None else cache
            n = input_ids.shape[1]
            ends = [(0, n)] if logits_to_keep == 1 else [(i, i + 1) for i in range(n)]
            logits = torch.stack([cache.read(input_ids[:, begin:end], None if valid is None else valid[:, begin:end])
                                  for begin, end in ends], 1)
        elif loss is None or not self.training:
            logits = self._logits(input_ids, valid)
        if logits is not None:
            logits = logits[:, -logits_to_keep:]
        output = CausalLMOutputWithPast(loss=loss, logits=logits, **{_CACHE: cache})
        return output if return_dict in (None, True) else output.to_tuple()

    # Nothing sees what comes after it: padding is moved to the end of its row.
    def _logits(self, tokens: Tensor, valid: Optional[Tensor]) -> Tensor:
        if valid is None:
            return _first(self.model(tokens))
        order = valid.logical_not().sort(dim=1, stable=True).indices
        logits = _first(self.model(tokens.gather(1, order)))
        return logits.gather(1, order.argsort(1).unsqueeze(2).expand_as(logits))

    def _loss(self, tokens: Tensor, labels: Tensor, valid: Optional[Tensor]) -> Tensor:
        if valid is not None:
            order = valid.logical_not().sort(dim=1, stable=True).indices
            tokens, labels = tokens.gather(1, order), labels.masked_fill(~valid, -100).gather(1, order)
        return _first(self.model.loss(tokens[:, :-1], labels[:, 1:]))

    def save_pretrained(self, save_directory: Path, **options) -> None:
        super().save_pretrained(save_directory, **options)
        if self.model.tokenizer is not None:
            ops.export_tokenizer(self.model.tokenizer._engine, self.config.max_position_embeddings, str(save_directory))


def _first(result: Union[Tensor, tuple]) -> Tensor:
    """Models with memory also give what they remember."""
    return result[0] if isinstance(result, tuple) else result


transformers.AutoConfig.register("headroom", HeadroomConfig)
transformers.AutoModelForCausalLM.register(HeadroomConfig, HeadroomForCausalLM)
