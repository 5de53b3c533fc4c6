"""The kernels of this process, by name."""

from __future__ import annotations

from typing import Any

from whet.targets.triton.jit.constants import NotReproducibleError, kernel_name
from whet.targets.triton.live import instances, with_subclasses


class LiveKernels:
    """Every `JITFunction` that exists now. Only the garbage collector knows all of them: those of
    closures, and those that were made before anybody listened."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[Any]] = {}
        self._by_function: dict[str, list[Any]] = {}
        for jit in _live():
            name = kernel_name(jit)
            self._by_name.setdefault(name, []).append(jit)
            self._by_function.setdefault(name.partition(":")[2], []).append(jit)

    def named(self, name: str) -> list[Any]:
        """Those of this module and function; where there are none, of any module: a script is
        `__main__` here and may be imported elsewhere. Whether it is the same kernel is decided by
        its source, not by its name."""
        return self._by_name.get(name) or self._by_function.get(name.partition(":")[2], [])

    def one(self, name: str) -> Any:
        """For a kernel that is a constant of another one."""
        found = self.named(name)
        if not found:
            raise NotReproducibleError(f"kernel {name} does not exist in this process")
        return found[-1]


def _live() -> list[Any]:
    from triton.runtime.jit import JITFunction

    return instances(set(with_subclasses(JITFunction)), "params")
