"""Builds one config into a shared object. Runs in a pool worker, in that worker's own folder."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from whet.builds.job import Built
from whet.core.errors import ConfigFailure, host_failure
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.workers.stages import stage

ALLOCATORS = ("malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign")


@dataclass(frozen=True)
class CSource:
    """A C text, the shim to link it with, and where its local headers are looked for."""

    text: str
    shim: str
    folder: str | None = None
    include: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    compiler: str = "cc"


def compile_shared(source: CSource, arguments: Sequence[str]) -> Built:
    """Compiles and links `source` with the compiler arguments of one config."""
    Path("kernel.c").write_text(source.text)
    include = [f"-I{path}" for path in (source.folder, *source.include) if path]
    with stage("compile"):
        run_compiler(
            [source.compiler, *arguments, "-fPIC", *include, "-c", "kernel.c", "-o", "kernel.o"]
        )
    # -fopenmp and the like must also reach the linker.
    flags = [flag for flag in arguments if flag.startswith("-f")]
    return link_shared(source.compiler, source.shim, [*flags, *_libraries(source.libraries)])


def link_shared(compiler: str, shim: str, arguments: Sequence[str]) -> Built:
    """Links `kernel.o` of this folder with the shim."""
    with stage("link"):
        Path("shim.o").write_bytes(_shim_object(compiler, shim))
        wrap = [f"-Wl,--wrap={name}" for name in ALLOCATORS] if sys.platform == "linux" else []
        command = [compiler, "-shared", "shim.o", "kernel.o", *wrap, *arguments]
        run_compiler([*command, "-o", "kernel.so"])
    binary = Path("kernel.so").read_bytes()
    return Built(
        binary,
        FrozenMap({"bytes": len(binary), "sha256": hashlib.sha256(binary).hexdigest()[:16]}),
    )


def _libraries(names: Sequence[str]) -> list[str]:
    return [f"-l{name}" for name in names]


@cache
def _shim_object(compiler: str, text: str) -> bytes:
    """The same for every config, so each worker compiles it once."""
    Path("shim.c").write_text(text)
    run_compiler([compiler, "-O1", "-fPIC", "-c", "shim.c", "-o", "shim.o"])
    return Path("shim.o").read_bytes()


def shim(function: str, signature: Sequence[str]) -> str:
    """C beside the kernel: a call loop without Python in it, and allocators that tell of failure.

    The loop matters for short kernels, where a call through ctypes costs as much as the kernel. The
    allocators tell a kernel that ran out of memory from one that is merely broken. It is a file of
    its own, so that no compiler can see through the call and drop repetitions.
    """
    parameters = [f"{kind} a{i}" for i, kind in enumerate(signature)]
    names = ", ".join(f"a{i}" for i in range(len(parameters)))
    return (
        "#include <stddef.h>\n#include <stdint.h>\n"
        f"extern void {function}({', '.join(parameters) or 'void'});\n"
        f"void whet_repeat({', '.join(['long whet_n', *parameters])})\n"
        f"{{ for (long whet_i = 0; whet_i < whet_n; whet_i++) {function}({names}); }}\n"
        + (_ALLOCATION_WATCH if sys.platform == "linux" else "")
    )


# The line goes out at once: the kernel may well crash on the null pointer it is about to get.
_ALLOCATION_WATCH = """\
#include <stdio.h>
#include <unistd.h>
uint64_t whet_refused_bytes = 0;
static void whet_refused(size_t bytes)
{
    char line[64];
    int length = snprintf(line, sizeof line, "whet: cannot allocate memory: %zu bytes\\n", bytes);
    whet_refused_bytes = bytes;
    if (write(2, line, (size_t)length) < 0) return;
}
void *__real_malloc(size_t);
void *__wrap_malloc(size_t n)
{ void *p = __real_malloc(n); if (!p && n) whet_refused(n); return p; }
void *__real_calloc(size_t, size_t);
void *__wrap_calloc(size_t m, size_t n)
{ void *p = __real_calloc(m, n); if (!p && m && n) whet_refused(m * n); return p; }
void *__real_realloc(void *, size_t);
void *__wrap_realloc(void *q, size_t n)
{ void *p = __real_realloc(q, n); if (!p && n) whet_refused(n); return p; }
void *__real_aligned_alloc(size_t, size_t);
void *__wrap_aligned_alloc(size_t a, size_t n)
{ void *p = __real_aligned_alloc(a, n); if (!p && n) whet_refused(n); return p; }
int __real_posix_memalign(void **, size_t, size_t);
int __wrap_posix_memalign(void **p, size_t a, size_t n)
{ int e = __real_posix_memalign(p, a, n); if (e && n) whet_refused(n); return e; }
"""

# A linker names what is missing before it says that it failed.
_ERROR = re.compile(r"error|undefined reference", re.IGNORECASE)
_OUT_OF_MEMORY = re.compile(
    r"out of memory|cannot allocate|memory exhausted|virtual memory|bad_alloc", re.IGNORECASE
)


def run_compiler(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        return
    text = (done.stderr or done.stdout).strip()
    short = host_failure(command[0], text)
    if short is not None:
        raise short
    if done.returncode < 0:
        text = f"{command[0]} was killed by signal {-done.returncode}\n{text}"
    status = Status.RESOURCES if _OUT_OF_MEMORY.search(text) else Status.BUILD_ERROR
    raise ConfigFailure(status, _errors_first(text) or f"{command[0]} failed without any output")


def _errors_first(text: str) -> str:
    """What a compiler says, with the first error on top and at most a screenful of it."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if _ERROR.search(line)), 0)
    return "\n".join(lines[start : start + 30])


@cache
def compiler_version(compiler: str) -> str | None:
    """The first line of `--version`, or None where there is no such compiler."""
    path = shutil.which(compiler)
    if path is None:
        return None
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0].strip() if done.stdout else compiler
