"""Recorded calls: which kernel each is a call of, and how its arguments are made again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from whet.cli.arguments.locate import file_of, locate, locate_recorded, with_inputs
from whet.cli.arguments.options import option
from whet.cli.arguments.reading import AS_COMPILED, COMPILED, problem_text
from whet.cli.terminal.output import count_text, say, wrap
from whet.core.errors import UsageError
from whet.core.miss import Miss
from whet.core.workload import Workload
from whet.engine.target import Target
from whet.targets.files import RecordedFiles

if TYPE_CHECKING:
    from whet.store import StoreReader
    from whet.targets.triton.offline.kernel import Kernel

RootOption = Annotated[
    list[str] | None,
    option(
        "--root FOLDER",
        "Run recorded files of yours below this folder only (repeatable; default: this "
        "folder, and where Python imports from).",
    ),
]


def recorded_files(roots: Sequence[str] | None) -> RecordedFiles:
    """For a command: what it runs at a record's word is said on stderr."""
    for root in roots or ():
        if not Path(root).is_dir():
            raise UsageError(f"--root {root} is not a folder")

    return RecordedFiles(roots or (), lambda line: say(f"whet: {line}"))


def recorders(store: StoreReader) -> Callable[[Miss], str]:
    """Who recorded a call, where the store knows; else which store has it."""
    own = getattr(store, "layers", (store,))[0]
    asked = getattr(own, "miss_writers", None)
    known = {} if asked is None else asked()

    def said(miss: Miss) -> str:
        writer = known.get(miss)
        place = f"store {store.location}"
        return place if writer is None else f"{writer}, in {place}"

    return said


@dataclass(frozen=True)
class LocatedMiss:
    """What it is a key of, in the file `path`; without, `why` says why that cannot be had."""

    miss: Miss
    found: Target | Kernel | None
    path: Path = Path()
    why: str = ""


class MissLocator:
    """Each kernel is looked for once. `tunable` is what was typed, and then all misses are of it;
    of all else only `files` are run, and `recorder` says who named one."""

    def __init__(
        self,
        tunable: str | None,
        inputs: str | None,
        command: str,
        files: RecordedFiles,
        recorder: Callable[[Miss], str],
    ) -> None:
        if inputs is not None and tunable is None:
            raise UsageError(
                f"--inputs needs a single kernel; name it: whet {command} FILE.py:NAME --missed"
            )
        self._tunable, self._inputs, self._command = tunable, inputs, command
        self._files, self._recorder = files, recorder
        self._known: dict[str, Target | Kernel | str] = {}

    def named(self, misses: Sequence[Miss]) -> list[Miss]:
        """Those of the kernel that was typed; all where none was."""
        if self._tunable is None:
            return list(misses)
        found = self._typed(self._tunable)
        return [miss for miss in misses if miss.workload.kernel == found.name]

    def locate(self, miss: Miss) -> LocatedMiss:
        remedy = f"name it: whet {self._command} FILE.py:NAME --missed"
        if self._tunable is not None:
            found: Target | Kernel | str = self._typed(self._tunable)
        elif miss.workload.kernel.startswith(COMPILED):
            return LocatedMiss(miss, None, why=f"it {AS_COMPILED}")
        elif not miss.where:
            return LocatedMiss(miss, None, why=f"its source file is unknown; {remedy}")
        else:
            found = self._recorded(miss, remedy)
        if isinstance(found, str):
            return LocatedMiss(miss, None, why=found)
        if isinstance(found, Target):
            return LocatedMiss(miss, found)
        return LocatedMiss(miss, found, file_of(found.where or self._tunable or miss.where))

    def _typed(self, text: str) -> Target | Kernel:
        if text not in self._known:
            with redirect_stdout(sys.stderr):  # the file's own prints are not our result
                self._known[text] = with_inputs(locate(text), self._inputs)
        found = self._known[text]
        assert not isinstance(found, str)
        return found

    def _recorded(self, miss: Miss, remedy: str) -> Target | Kernel | str:
        if miss.where not in self._known:
            try:
                with redirect_stdout(sys.stderr):
                    self._known[miss.where] = locate_recorded(
                        miss.where,
                        miss.module,
                        lambda file: self._files.allow(file, self._recorder(miss)),
                    )
            except UsageError as error:
                gone = f" (module {miss.module})" if miss.module else ""
                self._known[miss.where] = f"{error}{gone}; or {remedy}"
        return self._known[miss.where]


@contextmanager
def making_again(
    kernel: Kernel, miss: Miss, *, without_memory: bool = False
) -> Iterator[Mapping[str, Any]]:
    """The key with which the kernel's `inputs` makes the call again: its own, else for as long as
    this lasts one that makes what was recorded. Raises `UsageError` where neither can."""
    from whet.targets.triton.keys import input_key
    from whet.targets.triton.recorded import recorded_inputs

    tuner = kernel.tuner
    own: Callable[..., Any] | None = tuner.whet_inputs
    if own is None:
        tuner.whet_inputs = recorded_inputs(kernel.name, miss, without_memory=without_memory)
        try:
            yield {}
        finally:
            tuner.whet_inputs = None
        return
    key, unknown = input_key(own, miss.arguments)
    if unknown:
        raise UsageError(
            f"the inputs function of kernel '{kernel.name}' needs {', '.join(unknown)}, which "
            "the recorded call does not provide; make them arguments of the kernel, or give them "
            "defaults"
        )
    yield key


MOST_NAMES = 4


def left_lines(left: Iterable[tuple[Workload, str]], width: int, before: str = "") -> list[str]:
    """One paragraph a reason."""
    reasons: dict[str, list[Workload]] = {}
    for workload, why in left:
        reasons.setdefault(why, []).append(workload)
    return [
        line
        for why, several in reasons.items()
        for line in wrap(f"{before}{_named(several)}: {why}", width, indent=len(before) + 2)
    ]


def _named(several: list[Workload]) -> str:
    if len(several) == 1:
        return problem_text(several[0])
    kernels = list(dict.fromkeys(one.kernel for one in several))
    more = f" and {len(kernels) - MOST_NAMES} other kernels" if len(kernels) > MOST_NAMES else ""
    return f"{count_text(len(several), 'key')} of {', '.join(kernels[:MOST_NAMES])}{more}"
