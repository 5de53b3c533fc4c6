"""`whet run`: a script of the user's, unchanged, with whet in place of `triton.autotune`."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from whet.cli.arguments.environment import pass_on
from whet.cli.arguments.options import JobsOption, L2BytesOption, L2Option, StoreOption
from whet.core.errors import UsageError, no_triton

EXAMPLES = """\b
Examples:
  whet run train.py --epochs 3       like python train.py --epochs 3
  whet run -m package.train          like python -m package.train
  whet run --report train.py         also list every autotuner and its cost
  whet run --store s.db -- train.py  whet's own options come first
"""

ARGUMENTS_ARE_THE_SCRIPTS = {"allow_interspersed_args": False}


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

    from whet.cli.terminal.output import print_lines
    from whet.cli.text.installed import report
    from whet.targets.triton.install import installed

    print_lines(report(installed(), knobs.runtime.interpret))


def run(
    script: Annotated[
        str,
        typer.Argument(
            metavar="SCRIPT.py", help="The script, or the module with -m.", show_default=False
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGS", help="Arguments for the script.", show_default=False),
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="Run a module, like python -m.")] = False,
    report: Annotated[
        bool, typer.Option("--report", help="List every autotuner and its cost at the end.")
    ] = False,
    record: Annotated[
        bool,
        typer.Option("--record", help="Tune nothing; record keys for 'whet tune --missed'."),
    ] = False,
    store: StoreOption = None,
    jobs: JobsOption = None,
    l2: L2Option = None,
    l2_bytes: L2BytesOption = None,
) -> Script:
    """Run a script and tune every Triton autotuner in it with whet."""
    mode = "record" if record else None
    pass_on(store, jobs=jobs, l2=l2, l2_bytes=l2_bytes, mode=mode)
    if not module:
        _check_file(Path(script))
    _install()
    folder = os.getcwd() if module else str(Path(script).resolve().parent)
    if not sys.flags.safe_path:
        sys.path.insert(0, folder)
    if module:
        _check_module(script)
    sys.argv = [script, *(arguments or ())]
    return Script(script, module, report)


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


def _install() -> None:
    try:
        from whet.targets.triton.install import install

        install()
    except ImportError as error:
        raise UsageError(no_triton(error) or f"cannot import Triton ({error})") from None
