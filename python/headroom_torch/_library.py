"""Loads the engine, a library whose operators are `torch.ops.headroom`."""

import ctypes
import os
import warnings
from pathlib import Path

with warnings.catch_warnings():  # NumPy is optional
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")
    import torch

from . import _version

FOLDER = Path(__file__).resolve().parent


def _minor(version):
    return ".".join(version.split(".")[:2])


def load():
    if _minor(torch.__version__) != _minor(_version.torch):
        raise ImportError(
            f"headroom_torch: was built with torch {_version.torch}, but torch {torch.__version__} is installed; "
            f"install torch=={_minor(_version.torch)}.*, or rebuild headroom-torch")
    # SentencePiece and torch's c10 both define FLAGS_minloglevel, of different types: bound to c10's, SentencePiece's
    # initialisation overwrites a mutex next to it, and torch.jit waits for that forever.
    bundled = sorted((FOLDER.parent / "headroom_torch.libs").glob("libsentencepiece[-.]*"))
    ctypes.CDLL(str(bundled[0]) if bundled else "libsentencepiece.so.0", os.RTLD_NOW | os.RTLD_DEEPBIND)
    torch.ops.load_library(str(FOLDER / "libheadroom_torch.so"))
    torch.ops.headroom.set_home_folder(str(FOLDER))
    return torch.ops.headroom


ops = load()
