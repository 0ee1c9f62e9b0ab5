"""Loads the engine, a library whose operators are `torch.ops.headroom`."""

from pathlib import Path

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
    torch.ops.load_library(str(FOLDER / "libheadroom_torch.so"))
    torch.ops.headroom.set_home_folder(str(FOLDER))
    return torch.ops.headroom


ops = load()
