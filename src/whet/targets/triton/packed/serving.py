"""Packed kernels, looked for before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from whet.core.errors import WhetError
from whet.engine.settings import resolve_settings
from whet.store.bundles.bundle import active_bundle
from whet.targets.triton.compiler.request import Request
from whet.targets.triton.packed.binary_cache import BundleCache
from whet.targets.triton.packed.portable import (
    RELATED,
    BinaryCache,
    CacheSlot,
    FolderCache,
    NotPortableError,
    PackedKernel,
    check_packed,
    environment,
    place,
    portable_key,
    toolchain,
)
from whet.targets.triton.warn import say_once

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
    for cache in caches:
        try:
            packed = cache.get(key)
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
    for cache in caches:
        related = (other for other in list(cache.keys()) if other.startswith(key[:RELATED]))
        for other in related:
            try:
                packed = cache.get(other)
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
