"""`whet run`: a script of the user's, unchanged, with whet in place of `triton.autotune`."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from whet.cli.arguments.locate import install_whet
from whet.cli.arguments.options import (
    JobsOption,
    L2BytesOption,
    L2Option,
    StoreOption,
    argument,
    option,
    pass_on,
)
from whet.cli.terminal.output import (
    count_text,
    flexible,
    page,
    print_lines,
    right,
    seconds_text,
    shorten,
    table,
    wrap,
)
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.targets.triton.live import InstalledKernel


@dataclass(frozen=True)
class Script:
    """What is left to do once the command line has been read: the script's own run."""

    name: str
    is_module: bool
    report: bool = False

    def run(self) -> None:
        """As `__main__`; whatever it raises, an exit included, is the script's own affair."""
        try:
            names = self._run()  # held: the script's own kernels go with it
        finally:
            if self.report:
                _report()
        del names

    def _run(self) -> dict[str, Any]:
        if self.is_module:
            if importlib.util.find_spec(self.name) is None:  # imports packages above it, as -m does
                print(f"whet: no such module: {self.name}", file=sys.stderr)
                raise SystemExit(UsageError.exit_code)
            return runpy.run_module(self.name, run_name="__main__", alter_sys=True)
        return runpy.run_path(self.name, run_name="__main__")


def _report() -> None:
    from triton import knobs

    from whet.targets.triton.install import installed

    print_lines(report(installed(), knobs.runtime.interpret))


def run(
    script: Annotated[str, argument("SCRIPT.py", "The script, or the module with -m.")],
    arguments: Annotated[list[str] | None, argument("ARGS", "Arguments for the script.")] = None,
    module: Annotated[bool, option("-m", "Run a module, like python -m.")] = False,
    report: Annotated[
        bool, option("--report", "List every autotuner and its cost at the end.")
    ] = False,
    record: Annotated[
        bool, option("--record", "Tune nothing; record keys for 'whet tune --missed'.")
    ] = False,
    inductor: Annotated[
        bool, option("--inductor", "Choose kernels for torch.compile as well.")
    ] = False,
    store: StoreOption = None,
    jobs: JobsOption = None,
    l2: L2Option = None,
    l2_bytes: L2BytesOption = None,
) -> Callable[[], None]:
    """Run a script and tune every Triton autotuner in it with whet.

    Examples:
      whet run train.py --epochs 3       like python train.py --epochs 3
      whet run -m package.train          like python -m package.train
      whet run --report train.py         also list every autotuner and its cost
      whet run --inductor train.py       also choose kernels for torch.compile
      whet run --store s.db -- train.py  whet's own options come first
    """
    mode = "record" if record else None
    pass_on(store, jobs=jobs, l2=l2, l2_bytes=l2_bytes, mode=mode)
    if not module:
        _check_file(Path(script))
    install_whet(inductor or None)
    folder = os.getcwd() if module else str(Path(script).resolve().parent)
    if not sys.flags.safe_path:
        sys.path.insert(0, folder)
    if module:
        _check_module(script)
    sys.argv = [script, *(arguments or ())]
    return Script(script, module, report).run


def _check_file(path: Path) -> None:
    if os.path.isdir(path):  # not Path.is_dir, which raises for a name that is too long
        raise UsageError(f"{path} is a directory; name a script in it")
    if not os.path.isfile(path):
        raise UsageError(f"no such script: {path}")


def _check_module(name: str) -> None:
    # Only its first part: looking for more would import packages, and that is for the run.
    top = name.partition(".")[0]
    if not top or importlib.util.find_spec(top) is None:
        raise UsageError(f"no such module: {name}")


_LAYOUT = (flexible("kernel"), right("line"), flexible("tuned by"), right("keys"), right("spent"))


def report(kernels: Sequence[InstalledKernel], interpreted: bool = False) -> list[str]:
    """Those that were called, beneath their files, and then the others. `interpreted` are kernels
    that Triton ran as Python, of which none is tuned."""
    if not kernels:
        return ["no kernel was autotuned"]
    called = [one for one in kernels if one.called]
    lines = [*_called(called, interpreted), ""] if called else []
    for by, others in _grouped([one for one in kernels if not one.called], _by):
        lines.append(f"not called ({by}):")
        for file, ones in _grouped(others, _file):
            named = ", ".join(f"{one.kernel}:{_line(one)}" for one in ones)
            lines += wrap(f"  {file}: {named}", page(), indent=4)
        lines.append("")
    for reason in sorted({_left(one) for one in kernels if one.how == "left alone"}):
        lines += wrap(reason, page(), indent=2)
    return [*lines, *wrap(_summary(kernels, interpreted), page(), indent=2)]


def _called(kernels: Sequence[InstalledKernel], interpreted: bool) -> list[str]:
    head, *body = table(_LAYOUT, [_row(one, interpreted) for one in kernels], page())
    rows = dict(zip(map(id, kernels), body, strict=True))
    lines = [head]
    for file, ones in _grouped(kernels, _file):
        lines += [shorten(file, page()), *(rows[id(one)] for one in ones)]
    return lines


def _row(one: InstalledKernel, interpreted: bool) -> tuple[str, ...]:
    spent = seconds_text(one.seconds) if one.seconds else "–"
    by = "–" if interpreted else _by(one)
    return f"  {one.kernel}", _line(one), by, str(one.keys), spent


def _grouped(
    kernels: Sequence[InstalledKernel], key: Callable[[InstalledKernel], str]
) -> list[tuple[str, list[InstalledKernel]]]:
    """In the order in which the groups are met."""
    groups: dict[str, list[InstalledKernel]] = {}
    for one in kernels:
        groups.setdefault(key(one), []).append(one)
    return list(groups.items())


def _by(one: InstalledKernel) -> str:
    return {"subclass": f"whet in {_class(one)}", "left alone": _class(one)}.get(one.how, "whet")


def _left(one: InstalledKernel) -> str:
    return f"left alone: kernels of {_class(one)}, because {one.reason}"


def _line(one: InstalledKernel) -> str:
    return one.place.rpartition(":")[2]


def _class(one: InstalledKernel) -> str:
    return one.kind.rpartition(".")[2]


def _file(one: InstalledKernel) -> str:
    """As short as an import would find it."""
    place = one.place.rpartition(":")[0]
    folders = [os.path.join(os.path.abspath(folder), "") for folder in sys.path]
    above = max((folder for folder in folders if place.startswith(folder)), key=len, default="")
    return place[len(above) :]


def _summary(kernels: Sequence[InstalledKernel], interpreted: bool) -> str:
    if interpreted:
        return (
            f"{count_text(len(kernels), 'autotuner')}; TRITON_INTERPRET is set, so kernels run as "
            "Python on the CPU, each with its first config, and none is tuned or compiled"
        )
    how = Counter(one.how for one in kernels)
    ours = len(kernels) - how["left alone"]
    called = [one for one in kernels if one.called]
    said = f"{count_text(len(kernels), 'autotuner')}, {ours} tuned by whet"
    if how["left alone"]:
        said += f" and {how['left alone']} left alone"
    if not called:
        return f"{said}; none was called"
    spent = seconds_text(sum(one.seconds for one in called))
    keys = count_text(sum(one.keys for one in called), "key")
    return f"{said}; {len(called)} called with {keys}, {spent} spent on tuning"
