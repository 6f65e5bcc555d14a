"""torchvision beside a torch for the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from types import ModuleType

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_library = torch.library.Library("torchvision", "FRAGMENT")
"""What it defines is gone once it is collected."""


def describe(extension: ModuleType) -> bool:
    """Define the two operators that torchvision describes without asking whether they are there.

    Args:
        extension: `torchvision.extension`, which has just tried to load the compiled part.

    Returns:
        Whether that was needed: a compiled part that was loaded defines them itself.
    """
    if extension._has_ops():  # noqa: SLF001 - torchvision asks itself in the same way
        return False
    for schema in _SCHEMAS:
        _library.define(schema)
    return True
