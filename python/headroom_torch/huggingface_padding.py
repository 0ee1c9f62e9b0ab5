"""Padding of a batch, for models that read it at the end of a row, where the causal mask hides it."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor


def require_shape(name: str, value: Optional[Tensor], rows: int, columns: int, fewest: Optional[int] = None) -> None:
    """Raises ValueError unless value is [rows, columns], or has at least `fewest` columns."""
    fits = value is None or value.dim() == 2 and value.shape[0] == rows and (
        value.shape[1] == columns or fewest is not None and value.shape[1] >= fewest)
    if not fits:
        raise ValueError(f"HeadroomForCausalLM: {name} must be [{rows}, {columns}], got {list(value.shape)}")


def tokens_or_embeddings(given: Tensor) -> dict[str, Optional[Tensor]]:
    return dict(tokens=given) if given.dim() == 2 else dict(tokens=None, embeddings=given)


def gathered(value: Tensor, order: Tensor) -> Tensor:
    """Returns value [B, T, ...] with axis 1 reordered by `order` [B, T]."""
    return value.gather(1, order.reshape([*order.shape] + [1] * (value.dim() - 2)).expand([*value.shape]))


def tokens_first(valid: Tensor) -> Tensor:
    """Returns indices [B, T]: each row's tokens, then its padding."""
    return valid.logical_not().sort(dim=1, stable=True).indices


def back(value: Tensor, places: Tensor, axis: int) -> Tensor:
    """Returns value [B, ...] with `axis` reordered by places [B, T]; the axis has size T, or T - 1 in a training loss."""
    places = places[:, :value.shape[axis]].clamp_max(value.shape[axis] - 1)
    shape = [1] * value.dim()
    shape[0], shape[axis] = places.shape
    return value.gather(axis, places.reshape(shape).expand([*value.shape]))
