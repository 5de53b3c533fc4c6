"""CUDA's driver library without a device, for what calls it by ctypes.

    library = built(folder)          # libcuda.so.1, compiled against CUDA's own header
    with in_place(library): …        # this process calls it

Another process finds it by `LD_LIBRARY_PATH`. Calls are written to the file FAKE_CUDA_LOG, those of
every process with its number.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# The driver's, and that of its compiler.
LIBRARIES = ("libcuda.so.1", "libnvidia-ptxjitcompiler.so.1")


def header_folder() -> Path | None:
    """Where Triton keeps `cuda.h`; None without Triton or a C compiler."""
    found = importlib.util.find_spec("triton")
    if found is None or not found.submodule_search_locations or shutil.which("cc") is None:
        return None
    folder = Path(found.submodule_search_locations[0]) / "backends" / "nvidia" / "include"
    return folder if (folder / "cuda.h").exists() else None


def built(folder: Path) -> Path:
    headers, library = header_folder(), folder / "libcuda.so.1"
    assert headers is not None
    source = Path(__file__).with_name("fake_cuda.c")
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-I{headers}"]
    subprocess.run([*command, "-o", str(library), str(source)], check=True)
    return library


@contextmanager
def in_place(library: Path) -> Iterator[None]:
    """Everything of ours that loads the driver's library loads this one until the block ends."""
    from whet.measure.gpu import driver as cuda_driver
    from whet.targets.triton.isolated import ipc_arguments
    from whet.workers import stages

    real = ctypes.CDLL

    class Fake(real):  # type: ignore[misc, valid-type]
        def __init__(self, name: str | None, *rest: object, **options: object) -> None:
            super().__init__(str(library) if name in LIBRARIES else name, *rest, **options)

    cached = (
        cuda_driver.library,
        cuda_driver.driver_on,
        cuda_driver.compiles_ptx,
        ipc_arguments._library,
    )
    ctypes.CDLL = Fake  # type: ignore[misc]
    for one in cached:
        one.cache_clear()
    try:
        yield
    finally:
        ctypes.CDLL = real  # type: ignore[misc]
        stages.take()  # what opening a device took is no later task's
        for one in cached:
            one.cache_clear()
