"""Headroom in Python: layers, models and operators for Transformers that need fewer attention heads."""

from . import _library, functional
from ._version import version as __version__
from .decoding import Decoder
from .models import Classifier, EncoderDecoder, LanguageModel, MaskedLanguageModel, VisionTransformer, convert
from .modules import MLP, Attention, Block, Norm
from .observing import observe
from .tokenizer import Tokenizer

__all__ = ["MLP", "Attention", "Block", "Classifier", "Decoder", "EncoderDecoder", "LanguageModel",
           "MaskedLanguageModel", "Norm", "Tokenizer", "VisionTransformer", "convert", "functional", "observe"]
