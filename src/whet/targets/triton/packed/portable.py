"""Kernels compiled on one machine and used on another, looked for before anything is compiled.

Triton's own cache key hashes its shared library and names paths of the host, so an aarch64 and an
x86_64 host never share it. Ours depends on nothing of the host. A packed kernel is put into
Triton's cache under the key that Triton has for it here; Triton then finds it as if it had
compiled it before, and runs no stage.
"""

from __future__ import annotations

import hashlib
import json
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from whet.core.errors import WhetError
from whet.engine.log import say_once
from whet.engine.settings import resolve_settings
from whet.store.bundles.bundle import active_bundle
from whet.targets.fingerprint import digest
from whet.targets.triton.packed.architectures import Resources
from whet.targets.triton.packed.binary_cache import (
    BinaryCache,
    BinaryError,
    BundleCache,
    FolderCache,
    PackedKernel,
)
from whet.targets.triton.request import Request
from whet.targets.triton.source import strict_fingerprint

__all__ = [
    "BinaryCache",
    "BinaryError",
    "FolderCache",
    "NotPortableError",
    "PackedKernel",
    "check_packed",
    "pack",
    "place",
    "portable_key",
]

# The stages that are packed: what is loaded, and what whet itself reads (see `effects.py`).
_STAGES = ("ttir", "cubin", "hsaco")

# Triton cuts the names of its files.
LONGEST_NAME = 150

# How much of a key says which kernel it is for which architecture; the rest says all.
RELATED = 24


class NotPortableError(TypeError):
    """A kernel of which nobody can tell, on another machine, whether it is the same."""


def portable_key(request: Request) -> str:
    """Equal on every host for requests that give the same binary, whatever its processor, its
    Python, its paths; differs for everything that may give another one.

    Keys of one kernel for one architecture start with the same `RELATED` digits. Raises
    `NotPortableError` where a kernel or a constant is known by its name only.
    """
    whole = digest(
        kernel_fingerprint(request.fn),
        _architecture(request.target),
        _told(request.signature),
        _told(request.constexprs),
        _told({place: attributes for place, attributes in request.attrs.items() if attributes}),
        _told(_options(request.options)),
        _told(toolchain(request.target)),
        _told(_surroundings()),
    )
    return related_key(request.fn, request.target) + whole


def related_key(jit: Any, target: Any) -> str:
    """How the keys of this kernel for this architecture start."""
    return digest(kernel_fingerprint(jit), _architecture(target))[:RELATED]


def _architecture(target: Any) -> str:
    return f"{target.backend} {target.arch} {target.warp_size}"


def architecture_name(target: Any) -> str:
    return f"sm_{target.arch}" if target.backend == "cuda" else str(target.arch)


def toolchain(target: Any) -> dict[str, str]:
    """Versions that decide what is compiled, without the dates and paths of one build of them."""
    import triton

    return {"triton": triton.__version__, "assembler": _assembler(target)}


@cache
def _assembler(target: Any) -> str:
    from triton.compiler import make_backend

    text = str(make_backend(target).hash())
    release = re.search(r"V(\d+(?:\.\d+)+)", text) if target.backend == "cuda" else None
    return text if release is None else f"ptxas {release[1]}"


def pack(kernel: Any, request: Request, found: Resources, key: str) -> PackedKernel:
    """A `CompiledKernel` that was compiled for this request, ready to travel."""
    given = json.loads(json.dumps(_given(request, kernel.hash), default=vars))
    metadata = {
        "kernel": str(request.fn.__name__),
        "architecture": architecture_name(request.target),
        **toolchain(request.target),
        "environment": environment(),
        "resources": asdict(found),
        "produced": produced(kernel, given),
    }
    files = {stage: as_bytes(kernel.asm[stage]) for stage in _STAGES if stage in kernel.asm}
    return PackedKernel(key, metadata, files)


def place(packed: PackedKernel, request: Request) -> None:
    """Puts it where Triton, asked to compile this request, looks first.

    Raises `BinaryError` for one that was packed by another Triton or is not whole.
    """
    check_packed(packed, request)
    slot = CacheSlot(request)
    metadata = {**_given(request, slot.hash), **packed.metadata["produced"]}
    fill_cache(slot.hash, slot.name, packed.files, json.dumps(metadata, default=vars))


class CacheSlot:
    """Where Triton keeps what it compiles for a request, in this process with its settings."""

    def __init__(self, request: Request) -> None:
        from triton.compiler import make_backend
        from triton.runtime.cache import get_cache_key

        source = request.source()
        backend = make_backend(request.target)
        options = backend.parse_options(dict(request.options))
        text = get_cache_key(source, backend, options, env_vars=environment())
        self.hash = hashlib.sha256((text + _inspection()).encode()).hexdigest()
        self.name = source.name

    @property
    def filled(self) -> bool:
        from triton.runtime.cache import get_cache_manager

        return bool(get_cache_manager(self.hash).get_group(f"{self.name[:LONGEST_NAME]}.json"))


def fill_cache(
    hash: str,
    name: str,
    files: Mapping[str, bytes],
    metadata: str,
    present: Sequence[str] = (),
) -> None:
    """Puts a kernel's files, by stage, into Triton's cache under this key of Triton's. Those of
    the `present` stages that are there already belong to it too."""
    from triton.runtime.cache import get_cache_manager

    manager, start = get_cache_manager(hash), name[:LONGEST_NAME]
    there = {f"{start}.{stage}": manager.get_file(f"{start}.{stage}") for stage in present}
    group = {file: path for file, path in there.items() if path}
    for stage, body in files.items():
        group[f"{start}.{stage}"] = manager.put(body, f"{start}.{stage}")
    described = f"{start}.json"
    group[described] = manager.put(metadata, described, binary=False)
    manager.put_group(described, group)


def check_packed(packed: PackedKernel, request: Request) -> None:
    """Raises `BinaryError` for one that Triton could not load, or that is another's."""
    metadata, here = packed.metadata, toolchain(request.target)
    for tool, version in here.items():
        if metadata.get(tool) != version:
            raise BinaryError(
                f"it was packed with {tool} {metadata.get(tool)}, but this machine has {version}"
            )
    produced = metadata.get("produced")
    if (
        not isinstance(produced, dict)
        or not all(map(_is_field, produced))
        or not isinstance(produced.get("name"), str)
        or not _is_count(produced.get("shared"))
    ):
        raise BinaryError("its metadata was not written by Triton")
    if ("cubin" if request.target.backend == "cuda" else "hsaco") not in packed.files:
        raise BinaryError("it has no binary")


def _is_field(name: str) -> bool:
    """Triton makes a named tuple of them."""
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _given(request: Request, hash: str) -> dict[str, Any]:
    """What Triton's metadata holds before the first stage runs."""
    import triton
    from triton.compiler import make_backend

    options = make_backend(request.target).parse_options(dict(request.options))
    return {
        "hash": hash,
        "target": request.target,
        **options.__dict__,
        **environment(),
        "triton_version": triton.__version__,
    }


def produced(kernel: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the stages have added to the given metadata, or changed in it, of a `CompiledKernel`."""
    group: dict[str, str] = kernel.metadata_group
    path = next(path for name, path in group.items() if name.endswith(".json"))
    written = json.loads(Path(path).read_text())
    return {n: v for n, v in written.items() if n not in given or given[n] != v}


def as_bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else str(body).encode()


def environment() -> dict[str, Any]:
    """Variables that change what Triton compiles, those that are set."""
    from triton._C.libtriton import get_cache_invalidating_env_vars

    variables: dict[str, Any] = get_cache_invalidating_env_vars()
    return variables


def _inspection() -> str:
    """What a user's own look at the stages adds to Triton's key, from 3.7 on."""
    import triton
    from triton import knobs

    hook = knobs.runtime.add_stages_inspection_hook
    old = tuple(int(part) for part in triton.__version__.split(".")[:2]) < (3, 7)
    return "" if hook is None or old else str(hook()[0])


def _surroundings() -> dict[str, Any]:
    return {"environment": environment(), "inspection": _inspection()}


def kernel_fingerprint(jit: Any) -> str:
    """Remembered for as long as Triton's own key of the kernel, which covers what it calls. Raises
    `NotPortableError`."""
    known = getattr(jit, "_whet_fingerprint", None)
    if known is None or known[0] != jit.cache_key:
        try:
            known = jit.cache_key, strict_fingerprint(jit)
        except TypeError as error:
            raise NotPortableError(str(error)) from None
        jit._whet_fingerprint = known
    return str(known[1])


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Libraries lie elsewhere on every host: Triton's own are known by its version, and others
    count by their contents."""
    if options.get("ir_override"):
        raise NotPortableError("an IR file overrides the kernel's own IR")
    told = tuple((name, _library(path)) for name, path in linked_libraries(options))
    return {**options, "extern_libs": told}


def linked_libraries(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and paths."""
    libraries = options.get("extern_libs") or ()
    pairs = libraries.items() if isinstance(libraries, Mapping) else libraries
    return [(str(name), str(path)) for name, path in pairs]


@cache
def _library(path: str) -> str:
    own = place_in_triton(path)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if own is None else f"given {own}"


def place_in_triton(path: str) -> str | None:
    """Where a file is in Triton's package, which lies elsewhere on every machine; None for others'
    files."""
    import triton

    own, real = Path(triton.__file__).resolve().parent, Path(path).resolve()
    return real.relative_to(own).as_posix() if real.is_relative_to(own) else None


def _told(value: Any) -> str:
    """A text that is equal for equal values only, and in every process."""
    if value is None or isinstance(value, bool | int | float | str):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, Mapping):
        items = sorted((_told(name), _told(entry)) for name, entry in value.items())
        return f"{{{', '.join(f'{name}: {entry}' for name, entry in items)}}}"
    if isinstance(value, list | tuple):
        fields = getattr(value, "_fields", "")
        return f"[{fields}{', '.join(map(_told, value))}]"
    if isinstance(value, set | frozenset):
        return f"set({sorted(map(_told, value))})"
    return _told_of_triton(value)


def _told_of_triton(value: Any) -> str:
    kinds = {kind.__name__ for kind in type(value).__mro__}
    if "constexpr" in kinds:
        return f"constexpr({_told(value.value)})"
    if "dtype" in kinds:
        return f"dtype {value}"
    if isinstance(value, Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if "JITCallable" in kinds or "JITFunction" in kinds:
        return f"kernel {kernel_fingerprint(value)}"
    raise NotPortableError(f"a constant of type {type(value).__qualname__} has no stable text form")


# Kernels, by the start of their keys, whose absence from the caches has been looked into.
_explained: set[str] = set()


def active_binary_caches() -> list[BinaryCache]:
    """Where the settings say that packed kernels are, in the order in which they are asked."""
    settings = resolve_settings().settings
    caches: list[BinaryCache] = []
    folder = settings.binaries
    if folder is not None and Path(folder).expanduser().is_dir():
        caches.append(FolderCache(folder))
    elif folder is not None:
        say_once(f"{folder} is not a directory; compiling everything")
    if settings.bundle is not None:
        try:
            bundle = active_bundle(settings.bundle)
        except WhetError as error:
            say_once(f"the bundle will not be used: {error}")
        else:
            if bundle.binary_keys():
                caches.append(BundleCache(bundle))
    return caches


def serve(make_request: Callable[[], Request]) -> None:
    """Puts what Triton is about to compile into its cache, if it is packed. Never raises: a call
    of a kernel must not fail for want of a shortcut."""
    try:
        caches = active_binary_caches()
        if caches:
            request = make_request()
            packed = _found(request, caches)
            if packed is not None:
                place(packed, request)
    except Exception as error:
        say_once(f"packed kernels will not be used: {type(error).__name__}: {error}")


def packed_for(request: Request, caches: Sequence[BinaryCache]) -> PackedKernel | None:
    """The packed kernel for this request; None where Triton's own cache has it already."""
    try:
        return _found(request, caches)
    except Exception as error:
        say_once(f"packed kernels will not be used: {type(error).__name__}: {error}")
        return None


def _found(request: Request, caches: Sequence[BinaryCache]) -> PackedKernel | None:
    from triton import knobs

    if not caches or knobs.compilation.always_compile or CacheSlot(request).filled:
        return None
    name = request.fn.__name__
    try:
        key = portable_key(request)
    except NotPortableError as error:
        say_once(f"{name} is compiled here: packed kernels cannot be matched to it: {error}")
        return None
    for store in caches:
        try:
            packed = store.get(key)
            if packed is not None:
                check_packed(packed, request)
                return packed
        except WhetError as error:
            say_once(f"{name} is compiled here: its packed kernel cannot be used: {error}")
            return None
    if key[:RELATED] not in _explained:
        _explained.add(key[:RELATED])
        _explain(key, request, caches)
    return None


def _explain(key: str, request: Request, caches: Sequence[BinaryCache]) -> None:
    """Says so where the very kernel is there, but was packed with other tools or variables."""
    here = tools_here(request.target)
    others = set()
    for store in caches:
        related = (other for other in list(store.keys()) if other.startswith(key[:RELATED]))
        for other in related:
            try:
                packed = store.get(other)
            except WhetError:
                continue
            if packed is None or all(packed.metadata.get(n) == v for n, v in here.items()):
                return
            others.add(tools_text(packed.metadata))
    if others:
        packed_with, name = " and ".join(sorted(others)), request.fn.__name__
        say_once(
            f"{name} is compiled here: it was packed with {packed_with}, but this machine has "
            f"{tools_text(here)}"
        )


def tools_here(target: Any) -> dict[str, object]:
    """What kernels are compiled with in this process."""
    return {**toolchain(target), "environment": environment()}


def tools_text(versions: Mapping[str, object]) -> str:
    variables: Any = versions.get("environment") or {}
    named = "".join(f" {name}={value}" for name, value in dict(variables).items())
    return f"Triton {versions.get('triton')} ({versions.get('assembler')}){named}"
