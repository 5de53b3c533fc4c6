"""Triton 3.6's C launchers, compiled in the workers that compile the kernels.

Up to 3.6 Triton generates a C module for each signature and has the C compiler build it in the
process that launches, a third of a second each time. Here a worker makes Triton's own launcher
beforehand, so that the module is in Triton's cache under Triton's key when the kernel is loaded.
Later versions have no such module, and nothing here is used.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from whet.targets.triton.compiler.request import Request
from whet.workers.stages import stage

LauncherClass = Callable[[Any, Any], Any]

# A C compiler that takes longer is stuck; the process that launches then builds its own, as it
# would without us.
_LONGEST_WAIT_S = 10.0


def launcher_class() -> LauncherClass | None:
    """What compiles a launcher, as the active driver has it; None where Triton compiles none."""
    from triton.runtime.driver import driver

    launcher: LauncherClass | None = getattr(driver.active, "launcher_cls", None)
    module = sys.modules.get(getattr(launcher, "__module__", None) or "")
    return launcher if hasattr(module, "make_launcher") else None


class LauncherBuild:
    """The launcher of one request, made in a thread while the kernel is compiled.

    One worker at a time has the C compiler build a signature; the others wait for its library and
    find it in the cache. A failure is not ours to report: whoever launches meets it again.
    """

    def __init__(self, launcher: LauncherClass, request: Request) -> None:
        self._launcher = launcher
        self._request = request
        self._thread: threading.Thread | None = None

    @property
    def needs_kernel(self) -> bool:
        """How descriptors are passed is known only when the kernel has been compiled."""
        kinds = self._request.signature.values()
        return any(isinstance(kind, str) and kind.startswith("tensordesc") for kind in kinds)

    def start(self, metadata: Any) -> None:
        self._thread = threading.Thread(target=self._make, args=(metadata,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        if self._thread is not None:
            with stage("launcher"):
                self._thread.join(_LONGEST_WAIT_S)

    def make(self) -> None:
        """Now, in this thread; not for kernels that are needed for it."""
        self._make(_Metadata(self._request.options))

    def _make(self, metadata: Any) -> None:
        from triton.compiler import ASTSource

        request = self._request
        with suppress(Exception), _alone(_lock_path(request)):
            source = ASTSource(request.fn, request.signature, request.constexprs, request.attrs)
            self._launcher(source, metadata)


@contextmanager
def launcher_built(launcher: LauncherClass | None, request: Request) -> Iterator[list[Any]]:
    """Compile the kernel inside, and put it into the list. Whether that goes well or not, the
    launcher is there afterwards: other configs use the same."""
    kernels: list[Any] = []
    if launcher is None:
        yield kernels
        return
    build = LauncherBuild(launcher, request)
    if not build.needs_kernel:
        build.start(_Metadata(request.options))
    try:
        yield kernels
    finally:
        if build.needs_kernel and kernels:
            build.start(kernels[0].metadata)
        build.wait()


class _Metadata:
    """Of a kernel that is not compiled yet: its options. No launcher's source has more of it."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    def __getattr__(self, name: str) -> Any:
        return self._options.get(name)


def _lock_path(request: Request) -> Path:
    from triton import knobs

    text = f"{request.target} {list(request.signature.values())}"
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return Path(knobs.cache.dir) / f"whet-launcher-{digest}.lock"


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """A worker that is killed lets go of the lock. Without its file it locks nobody out: whoever
    comes later finds the library, which is looked for under the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        with suppress(OSError):
            path.unlink()
    finally:
        os.close(descriptor)
