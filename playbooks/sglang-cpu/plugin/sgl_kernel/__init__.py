"""Stands in for sglang's compiled kernels, whose wheels are for GPUs: it can be imported, and does nothing.

Where the real package has not registered its operators with torch, sglang takes torch's own.
"""

from collections.abc import Callable

__version__ = "0"


def __getattr__(name: str) -> Callable[..., None]:
    """A kernel that is asked for by name: it exists, and must not be called."""
    if name.startswith("__"):
        raise AttributeError(name)

    def absent(*_args: object, **_named: object) -> None:
        raise NotImplementedError(f"sgl_kernel.{name}: this environment has no compiled kernels")

    return absent
