"""What a compiler is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class DeviceLimits:
    """What one block may use; None is unknown, and then not checked early."""

    shared_bytes: int | None = None
    threads: int | None = None
    tensor_memory: int | None = None


@dataclass(frozen=True)
class Request:
    """What `JITFunction` would hand to its compiler for one config of one call."""

    fn: Any
    signature: dict[str, Any]
    constexprs: dict[Any, Any]
    attrs: dict[Any, Any]
    options: dict[str, Any]
    target: Any
    limits: DeviceLimits

    def source(self) -> Any:
        """What Triton compiles."""
        from triton.compiler import ASTSource

        return ASTSource(self.fn, self.signature, self.constexprs, self.attrs)


@dataclass(frozen=True)
class IrRequest:
    """The same for a file of Triton's IR, of which nobody knows the Python."""

    path: Path
    options: Mapping[str, Any]
    target: Any
    limits: DeviceLimits

    def source(self) -> Any:
        return str(self.path)
