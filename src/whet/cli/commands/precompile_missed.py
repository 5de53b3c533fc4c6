"""`whet precompile --missed`: what recorded calls would compile, without the GPU they ran on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from whet.cli.terminal.output import say
from whet.core.errors import UsageError, WhetError

if TYPE_CHECKING:
    from whet.cli.arguments.missed import LocatedMiss
    from whet.cli.text.precompile import NotCompiled
    from whet.core.miss import Miss
    from whet.store import Store
    from whet.targets.files import RecordedFiles
    from whet.targets.triton.offline.precompile import Order
    from whet.targets.triton.packed.architectures import Architecture


def architectures_of(arch: Sequence[str]) -> list[Architecture]:
    """What `--arch` names; empty where it was not given."""
    from whet.targets.triton.packed.architectures import architectures

    found = architectures(name for given in arch for name in given.split(",") if name.strip())
    for one in found:
        if one.doubt:
            say(f"whet: note: {one.doubt}")
    return found


def ordered_missed(
    tunable: str | None,
    inputs: str | None,
    given: Sequence[Architecture],
    which: Any,
    store: str | None,
    files: RecordedFiles,
) -> tuple[str, list[Order], list[NotCompiled]]:
    """The name of what is compiled, the orders, and the keys without any. All kernels are loaded
    once for each architecture, since their configs may depend on what they find."""
    from whet.store import open_if_there
    from whet.targets.triton.offline.tuning import check_compiles

    check_compiles()
    found: dict[tuple[str, str], Order] = {}
    left: dict[str, NotCompiled] = {}
    with open_if_there(store, direct=True) as opened:
        misses = opened.missed(tuned=True)
        if not misses:
            raise UsageError(
                f"no recorded calls in {opened.location}; record some: whet run --record SCRIPT.py"
            )
        for architecture, several in _by_architecture(misses, given).items():
            for order, why in _orders(tunable, inputs, architecture, several, which, opened, files):
                if why is not None:
                    left.setdefault(why.workload.id, why)
                elif order is not None:
                    known = found.setdefault((order.kernel, order.identity), order)
                    keys = dict.fromkeys(map(_hashable, (*known.keys, *order.keys)))
                    found[order.kernel, order.identity] = replace(
                        known, keys=tuple(map(dict, keys))
                    )
    kernels = {order.kernel for order in found.values()}
    return (
        ", ".join(sorted(kernels)) or "the recorded calls",
        list(found.values()),
        [*left.values()],
    )


def _hashable(key: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(key.items())


def _by_architecture(
    misses: Sequence[Miss], given: Sequence[Architecture]
) -> dict[Architecture, list[Miss]]:
    from whet.targets.triton.packed.architectures import architecture

    if given:
        return {one: list(misses) for one in given}
    found: dict[Architecture, list[Miss]] = {}
    for miss in misses:
        found.setdefault(architecture(miss.workload.device.architecture), []).append(miss)
    return found


def _orders(
    tunable: str | None,
    inputs: str | None,
    architecture: Architecture,
    misses: Sequence[Miss],
    which: Any,
    store: Store,
    files: RecordedFiles,
) -> list[tuple[Order | None, NotCompiled | None]]:
    from whet.cli.arguments.missed import MissLocator, recorders
    from whet.cli.text.precompile import NotCompiled
    from whet.targets.files import imported_anew
    from whet.targets.triton.offline.precompile import loading

    locator = MissLocator(tunable, inputs, "precompile", files, recorders(store))
    done: list[tuple[Order | None, NotCompiled | None]] = []
    with imported_anew():
        with loading(architecture):
            located = [locator.locate(miss) for miss in locator.named(misses)]
        for one in located:
            try:
                done += [(order, None) for order in _of_call(one, architecture, which, store)]
            except WhetError as error:
                done.append((None, NotCompiled(one.miss.workload, str(error))))
    return done


def _of_call(one: LocatedMiss, architecture: Architecture, which: Any, store: Store) -> list[Order]:
    from whet.cli.arguments.missed import making_again
    from whet.engine.target import Target
    from whet.targets.files import guarded
    from whet.targets.triton.offline.precompile import orders

    found = one.found
    if found is None:
        raise UsageError(one.why)
    if isinstance(found, Target):
        raise UsageError("it is not a Triton kernel; only Triton kernels can be precompiled")
    with making_again(found, one.miss, without_memory=True) as key:
        made = guarded(one.path, lambda: orders(found, [architecture], [key], which, store))
    shown = {name: value for name, value in one.miss.workload.key.items() if "." not in name}
    return [replace(order, keys=(shown,), kernel=found.name) for order in made]
