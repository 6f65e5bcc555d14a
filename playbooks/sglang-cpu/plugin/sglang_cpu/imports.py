"""Acts on modules right after they are imported for the first time."""

from __future__ import annotations

from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    Act = Callable[[ModuleType], None]


class AfterImport(MetaPathFinder):
    """Finds the modules that something is to be done to, and leaves all others to those that come after."""

    def __init__(self, acts: Mapping[str, Act]) -> None:
        self._acts = acts

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module as Python would find it, with a loader that acts on it."""
        act = self._acts.get(fullname)
        spec = PathFinder.find_spec(fullname, path, target) if act else None
        if act and spec and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader, act)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, loader: SourceFileLoader, act: Act) -> None:
        super().__init__(loader.name, loader.path)
        self._act = act

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        self._act(module)
