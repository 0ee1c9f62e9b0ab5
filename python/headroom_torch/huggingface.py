"""Headroom language models for the package `transformers`; importing this module registers them.

    import headroom_torch.huggingface as hf

    hf.HeadroomForCausalLM.from_checkpoint("runs/mine").save_pretrained("mine_hf")
    model = transformers.AutoModelForCausalLM.from_pretrained("mine_hf")      # if this module has been imported
    model.generate(ids, max_new_tokens=50)                                    # with the engine's KV cache

A program that does not import this module passes trust_remote_code=True: the folder has a file that imports it.

All language models are supported. For architectures that `transformers` implements itself, prefer headroom_torch.convert().
AutoTokenizer loads the folder's tokenizer: a tokenizer.json if the package `tokenizers` has an equivalent, otherwise a
HeadroomTokenizer.
"""

from __future__ import annotations

import json
from typing import Optional, Union

import torch
import transformers
from torch import Tensor, nn
from transformers.modeling_outputs import CausalLMOutputWithPast

from ._library import ops
from .huggingface_cache import HeadroomCache, Look
from .huggingface_padding import gathered, require_shape, tokens_first, tokens_or_embeddings
from .huggingface_tokenizer import CODE, HeadroomTokenizer, load_tokenizer, save_code, save_tokenizer
from .models import LanguageModel, Path
from .modules import _describe, has_hooks

__all__ = ["HeadroomConfig", "HeadroomForCausalLM", "HeadroomTokenizer"]

# Names in `transformers` and in the engine.
_NAMES = {"vocab_size": "vocabulary_size", "hidden_size": "d_model", "num_hidden_layers": "n_layers",
          "num_attention_heads": "attention.n_heads", "max_position_embeddings": "context_length"}

# Special tokens that every config of `transformers` names; None: it has none.
_SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")

# These positions count from the start of a text; the others are only distances.
_ABSOLUTE = ("learned", "sinusoidal")

# Outputs hold the cache under this name: "cache" from 5.24 on.
_CACHE = next(name for name in ("cache", "past_key_values") if name in CausalLMOutputWithPast.__dataclass_fields__)


class HeadroomConfig(transformers.PretrainedConfig):
    """settings: model options that differ from the defaults, ["model.n_layers=2", ...]. Raises ValueError for other kinds
    of models than language models."""

    model_type = "headroom"

    def __init__(self, settings: tuple[str, ...] = (), **others):
        super().__init__(**{**dict.fromkeys(_SPECIAL), **others})
        self.settings = list(settings)
        self.auto_map = {"AutoConfig": f"{CODE}.HeadroomConfig", "AutoModelForCausalLM": f"{CODE}.HeadroomForCausalLM"}
        options = json.loads(ops.options_of(self.description))
        if options["model.kind"] != LanguageModel.KIND:
            raise ValueError(f"HeadroomConfig: settings: model.kind must be {LanguageModel.KIND}, got {options['model.kind']}")
        for theirs, ours in _NAMES.items():
            setattr(self, theirs, json.loads(options[f"model.{ours}"]))

    @classmethod
    def register_for_auto_class(cls, auto_class="AutoConfig") -> None:
        """Does nothing: save_pretrained() writes the code that a folder needs."""

    @property
    def description(self) -> str:
        return _describe("model", "HeadroomConfig", None, self.settings)


class HeadroomForCausalLM(transformers.PreTrainedModel, transformers.GenerationMixin):
    """A LanguageModel (attribute `model`) with the interface of `transformers`. attention_mask marks padding, on either side
    of a row; padding is masked, and positions do not count it."""

    config_class = HeadroomConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True  # the Trainer passes num_items_in_batch
    gradient_checkpointing = False

    def __init__(self, config: HeadroomConfig):
        super().__init__(config)
        self.model = LanguageModel._begun(config.description)
        self.post_init()

    @classmethod
    def from_pretrained(cls, folder: Path, *inputs, **options) -> "HeadroomForCausalLM":
        """Returns the model of a folder that save_pretrained() wrote, with its tokenizer."""
        loaded = super().from_pretrained(folder, *inputs, **options)
        model = loaded[0] if isinstance(loaded, tuple) else loaded  # with output_loading_info
        load_tokenizer(model.model, folder)
        return loaded

    @classmethod
    def from_checkpoint(cls, path: Path) -> "HeadroomForCausalLM":
        """Opens the language model of a checkpoint or run folder; save_pretrained() also writes its tokenizer."""
        model = LanguageModel.from_checkpoint(path)
        special = json.loads(model._special or "{}")
        ids = {**special.get("config", {}), **special.get("generation", {})}
        with torch.device("meta"):
            made = cls(HeadroomConfig(model.options, **ids))
        made.model = model
        return made.eval()

    @classmethod
    def register_for_auto_class(cls, auto_class="AutoModel") -> None:
        """Does nothing: save_pretrained() writes the code that a folder needs."""

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # forward() makes its own

    def _init_weights(self, module) -> None:
        """Does nothing: the engine initialises the parameters."""

    def get_input_embeddings(self) -> nn.Embedding:
        """Returns a module of the embedding matrix, which the model calls if it has hooks."""
        module = self.__dict__.get("_input_embeddings")
        if module is None or module.weight is not self.model.embed:
            with torch.device("meta"):
                module = nn.Embedding(*self.model.embed.shape)
            module.weight = self.model.embed
            self.__dict__["_input_embeddings"] = module  # not a sub-module: the matrix is a parameter of the model
        return module

    def set_input_embeddings(self, module: nn.Module) -> None:
        if module.weight.shape != self.model.embed.shape:
            raise ValueError(f"set_input_embeddings: weight must be {list(self.model.embed.shape)}, got "
                             f"{list(module.weight.shape)}; resize_token_embeddings() changes the vocabulary")
        self.model.embed = module.weight

    def get_output_embeddings(self) -> None:
        """Returns None, because the output layer is a matrix and not a module."""

    def resize_token_embeddings(self, new_num_tokens: Optional[int] = None, pad_to_multiple_of: Optional[int] = None,
                                mean_resizing: bool = True) -> nn.Embedding:
        """Gives the model another vocabulary size. New rows of the embedding and the output layer are the mean of the old ones
        or, with mean_resizing=False, initialised as in a new model. Raises ValueError for an adaptive softmax."""
        old, config = self.model, self.config
        size = config.vocab_size if new_num_tokens is None else new_num_tokens
        if pad_to_multiple_of:
            size = -(-size // pad_to_multiple_of) * pad_to_multiple_of
        if size != config.vocab_size:
            if old._options["model.adaptive_cutoffs"]:
                raise ValueError("resize_token_embeddings: model.adaptive_cutoffs: an adaptive softmax cannot be resized")
            config.settings = [*(s for s in config.settings if not s.startswith("model.vocabulary_size=")),
                               f"model.vocabulary_size={size}"]
            model = LanguageModel._begun(config.description).to(old.embed.device, old.embed.dtype).train(old.training)
            model.tokenizer, model.step, model._config, model._special = old.tokenizer, old.step, old._config, old._special
            before = dict(old.named_parameters())
            with torch.no_grad():
                for name, new in model.named_parameters():
                    _resize(before[name], new, mean_resizing)
                    new.requires_grad_(before[name].requires_grad)
                for old_buffer, new in zip(old.buffers(), model.buffers(), strict=True):
                    new.copy_(old_buffer)
            self.model, config.vocab_size = model, size
        return self.get_input_embeddings()

    def forward(self, input_ids: Optional[Tensor] = None, attention_mask: Optional[Tensor] = None,
                past_key_values: Optional[HeadroomCache] = None, labels: Optional[Tensor] = None,
                use_cache: Optional[bool] = None, logits_to_keep: int = 0, return_dict: Optional[bool] = None,
                cache: Optional[HeadroomCache] = None, output_attentions: Optional[bool] = None,
                output_hidden_states: Optional[bool] = None, inputs_embeds: Optional[Tensor] = None,
                position_ids: Optional[Tensor] = None, num_items_in_batch: Union[Tensor, int, None] = None):
        """Logits [B, T, V] of input_ids [B, T] int64. With `labels` (input_ids, or -100 for tokens that do not count) also the
        loss including balance losses, and in training no logits.

        num_items_in_batch: number of labels in all micro-batches of a step. The losses of the micro-batches then add up to
        the loss of the whole batch.
        inputs_embeds [B, T, d]: their embeddings by get_input_embeddings(), instead of input_ids; not with a cache.
        position_ids [B, T]: must count the tokens of each row without gaps, as the model does by itself. With learned or
        sinusoidal positions they must count from the start of the row. Raises ValueError for any others.
        cache or past_key_values (the name depends on the version of `transformers`): from an earlier call with
        use_cache=True, which input_ids continue, without derivatives.
        logits_to_keep=1: logits of each row's last token only; n: of the last n columns.
        attention_mask [B, T], or [B, tokens read before + T]: 0 for padding, whose logits are meaningless.

        output_attentions: `attentions` has each layer's weights [B, n_heads, T, S] after composition; S is T, with a cache all
        tokens read. Raises ValueError if a layer has no weights (linear attention).
        output_hidden_states: `hidden_states` has the first layer's input, the output of all layers but the last, and the
        final norm's output, [B, T, d] each.
        """
        cache = past_key_values if cache is None else cache
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("HeadroomForCausalLM: either input_ids or inputs_embeds must be given, got "
                             f"{'neither' if input_ids is None else 'both'}")
        if input_ids is not None and input_ids.dim() != 2:
            raise ValueError(f"HeadroomForCausalLM: input_ids must be [B, T], got {list(input_ids.shape)}")
        if inputs_embeds is not None and inputs_embeds.dim() != 3:
            raise ValueError(f"HeadroomForCausalLM: inputs_embeds must be [B, T, d], got {list(inputs_embeds.shape)}")
        rows, length = (input_ids if inputs_embeds is None else inputs_embeds).shape[:2]
        require_shape("labels", labels, rows, length)
        require_shape("position_ids", position_ids, rows, length)
        require_shape("attention_mask", attention_mask, rows, length + (cache.get_seq_length() if cache else 0), length)
        valid = None if attention_mask is None else attention_mask[:, -length:].bool()
        if position_ids is not None:
            self._check_positions(position_ids, valid, cache)
        if inputs_embeds is None and has_hooks(self.get_input_embeddings()) and not (use_cache or cache is not None):
            inputs_embeds, input_ids = self.get_input_embeddings()(input_ids), None
        if input_ids is None and (use_cache or cache is not None):
            raise ValueError("HeadroomForCausalLM: inputs_embeds cannot be read with a cache, got use_cache=True; pass "
                             "use_cache=False, or input_ids")
        given = input_ids if inputs_embeds is None else inputs_embeds
        self.model._checkpoint = self._gradient_checkpointing_func if self.gradient_checkpointing else None
        if valid is not None and bool(valid.all()):
            valid = None
        look = Look(self.config, output_attentions, output_hidden_states)
        loss, logits = None, None
        if labels is not None:
            with look.on(self.training and not use_cache and cache is None):  # the only forward pass of this call
                loss = self._loss(given, labels, valid, num_items_in_batch)
        if use_cache or cache is not None:
            cache = HeadroomCache(self.model, input_ids.shape[0]) if cache is None else cache
            logits = self._read(cache, input_ids, valid, logits_to_keep, look)
        elif loss is None or not self.training:
            with look.on():
                logits = self._logits(given, valid)
        if logits is not None:
            if logits_to_keep == 1 and valid is not None and logits.shape[1] == valid.shape[1]:
                last = (valid * torch.arange(valid.shape[1], device=valid.device)).argmax(1)  # before padding on the right
                logits = logits.take_along_dim(last[:, None, None], 1)
            logits = logits[:, -logits_to_keep:]
        attentions, hidden_states = look.results(None if cache is not None else valid)
        output = CausalLMOutputWithPast(loss=loss, logits=logits, attentions=attentions, hidden_states=hidden_states,
                                        **{_CACHE: cache})
        return output if return_dict in (None, True) else output.to_tuple()

    def _read(self, cache: HeadroomCache, tokens: Tensor, valid: Optional[Tensor], keep: int, look: Look) -> Tensor:
        n, logits = tokens.shape[1], []
        for begin, end in [(0, n)] if keep == 1 and not look.names else [(i, i + 1) for i in range(n)]:
            some, some_valid = tokens[:, begin:end], None if valid is None else valid[:, begin:end]
            if look.names:
                one, values = cache.read_observed(some, some_valid, look.names)
                look.add(values)
            else:
                one = cache.read(some, some_valid)
            logits.append(one)
        return torch.stack(logits, 1)

    def _check_positions(self, places: Tensor, valid: Optional[Tensor], cache: Optional[HeadroomCache]) -> None:
        valid = torch.ones_like(places, dtype=torch.bool) if valid is None else valid
        shift = places - (valid.cumsum(1) - 1)  # of every token, the same along a row
        first = shift.gather(1, valid.int().argmax(1, keepdim=True))
        absolute = self.model._options["model.attention.position"] in _ABSOLUTE
        start = cache._valid.sum(1, keepdim=True).to(places.device) if cache else torch.zeros_like(first)
        if bool(((shift != first) & valid).any()) or absolute and bool((first != start)[valid.any(1)].any()):
            raise ValueError("HeadroomForCausalLM: position_ids must count the tokens of each row from "
                             f"{'0' if absolute else 'any number'} without gaps, got {places.tolist()}")

    # `given` holds tokens [B, T] or embeddings [B, T, d]. Padding is moved to the end of its row, where the causal mask hides it.
    def _logits(self, given: Tensor, valid: Optional[Tensor]) -> Tensor:
        if valid is None:
            return _first(self.model(**tokens_or_embeddings(given)))
        order = tokens_first(valid)
        logits = _first(self.model(**tokens_or_embeddings(gathered(given, order))))
        return gathered(logits, order.argsort(1))

    def _loss(self, given: Tensor, labels: Tensor, valid: Optional[Tensor], in_batch: Union[Tensor, int, None]) -> Tensor:
        counted = {}
        if valid is not None:
            order = tokens_first(valid)
            given, labels = gathered(given, order), labels.masked_fill(~valid, -100).gather(1, order)
            # A row's last token predicts nothing, so the balance losses do not count it, whether or not padding follows.
            counted = dict(valid=valid.gather(1, order)[:, 1:]) if self.model._balances else {}
        targets = labels[:, 1:]
        loss = _first(self.model.loss(**tokens_or_embeddings(given[:, :-1]), targets=targets, **counted))
        return loss if in_batch is None else loss * (targets >= 0).sum() / torch.as_tensor(in_batch, device=loss.device)

    def save_pretrained(self, save_directory: Path, **options) -> None:
        super().save_pretrained(save_directory, **options)
        save_code(save_directory)
        save_tokenizer(self.model, save_directory, self.config.max_position_embeddings)


def _resize(old: Tensor, new: Tensor, mean: bool) -> None:
    """Copies a parameter to a parameter whose vocabulary dimension may be longer or shorter."""
    for axis in (axis for axis in range(old.dim()) if old.shape[axis] != new.shape[axis]):
        if mean:
            new.copy_(old.mean(axis, keepdim=True).expand_as(new))
        kept = min(old.shape[axis], new.shape[axis])
        old, new = old.narrow(axis, 0, kept), new.narrow(axis, 0, kept)
    new.copy_(old)


def _first(result: Union[Tensor, tuple]) -> Tensor:
    """Returns the result without the memory that some models add."""
    return result[0] if isinstance(result, tuple) else result


transformers.AutoConfig.register("headroom", HeadroomConfig)
transformers.AutoModelForCausalLM.register(HeadroomConfig, HeadroomForCausalLM)
transformers.AutoTokenizer.register(HeadroomConfig, HeadroomTokenizer)
