"""The commands, their order, and what becomes of what they raise."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer

from whet._version import __version__
from whet.cli import INTERRUPTED
from whet.cli.terminal.encoding import speak_readably
from whet.cli.terminal.help import CommandPlace, CommandsPlace, command_group, help_without_command
from whet.cli.terminal.output import printable
from whet.core.errors import UsageError, WhetError, at_command_line, no_triton

_ABOUT = """Find the fastest configuration of a kernel, store it, and show why.

A tunable is a Python object in your file, made with whet.function(…) or
whet.native(…), or a Triton kernel decorated with whet.autotune(…). Results are
stored, so nothing is built or measured twice.
"""

_EXAMPLES = """
Examples:
  whet demo                             tune a matrix product on this machine
  whet tune kernel.py:blur              tune the object 'blur' in kernel.py
  whet tune kernel.py:blur --budget 30s stop after 30 seconds
  whet run train.py                     run a script; whet tunes its kernels
  whet warmup train.py:step             tune all kernels of step() at once
  whet best blur                        show the best config found
  whet show cost blur                   show where the tuning time went
  whet explore                          look at results in the browser
"""

_STORE = (
    CommandPlace("stats", "store:stats", "Count or list what is stored, or check it for damage."),
    CommandPlace("gc", "store_gc:gc", "Remove results."),
    CommandPlace("merge", "store:merge", "Add results from other stores, or from bundles."),
    CommandPlace("diff", "store_diff:diff", "Compare the picks of two stores."),
    CommandPlace("init", "store:init", "Create or upgrade a store, and say who may use it."),
    CommandPlace("promote", "store:promote", "Let production use the current results."),
    CommandPlace("key", "store:key", "Create a key that signs results, or revoke one."),
)
_STORE_EXAMPLES = """
Examples:
  whet store stats
  whet store gc --older-than 90d --dry-run
  whet store merge colleague.db
  whet store diff before.db after.db
"""
_LOCK = (
    CommandPlace("update", "lock:update", "Write the store's best configs to the lock file."),
    CommandPlace("check", "lock:check", "Find entries that were changed by hand or fit no kernel."),
    CommandPlace("merge", "lock:merge", "Merge two lock files and show conflicts."),
)
_LOCK_EXAMPLES = """
Examples:
  whet lock update                      write whet.lock from the store
  whet lock update --dry-run            what has changed in the store since
  whet lock check train.py              does it fit the kernels of train.py?
  WHET_LOCK=whet.lock WHET_MODE=require python train.py
"""
_SERVING = (
    CommandPlace("shapes", "serving:show_shapes", "Show which tables a model needs."),
    CommandPlace("check", "serving:check_files", "Check tables, without a GPU."),
    CommandPlace("install", "serving:install", "Put tables where the engine looks for them."),
)
_SERVING_EXAMPLES = """
Examples:
  whet serving shapes Qwen3-30B-A3B --tp 2 --device NVIDIA_H200
  whet serving shapes Qwen3-30B-A3B --tp 2 --missing
  whet serving check 'E=8,N=7168,device_name=NVIDIA_H200.json'
  whet serving install 'E=8,N=7168,device_name=NVIDIA_H200.json' --out tables
"""
_LAB = (
    CommandPlace("searches", "lab:searches", "Compare strategies by score."),
    CommandPlace("replay", "lab:replay", "Run strategies and compare what they find."),
    CommandPlace("pareto", "lab:pareto", "Simulate the trade-off between tuning time and speed."),
    CommandPlace("record", "lab:record", "Write stored measurements to a table."),
)
_LAB_EXAMPLES = """
Examples:
  whet lab searches h200-gemm-576 --workloads 2
  whet lab replay h200-gemm-576 --workloads 4 --search auto,random
  whet lab record matmul --out matmul-H200.whet.json.gz
"""

TUNE, LOOK, KEEP, CHECK, LAB = "Tune", "Look", "Keep and ship", "Check", "Laboratory"
COMMANDS = (
    CommandPlace("tune", "tune:tune", "Find the fastest config of a tunable.", TUNE),
    CommandPlace(
        "run",
        "run:run",
        "Run a script and tune every Triton autotuner in it.",
        TUNE,
        interspersed=False,
    ),
    CommandPlace("warmup", "warmup:warmup", "Tune all Triton kernels of a program at once.", TUNE),
    CommandPlace(
        "precompile", "precompile:precompile", "Compile a kernel for GPUs, without one.", TUNE
    ),
    CommandPlace("ask", "ask:ask", "Ask which configs to try next, from any program.", TUNE),
    CommandPlace("tell", "ask:tell", "Report what came of configs that were asked for.", TUNE),
    CommandPlace("demo", "demo:demo", "Tune a matrix product on this machine.", TUNE),
    CommandPlace("best", "best:best", "Show the best known config.", LOOK),
    CommandPlace("show", "show:show", "Show a kernel, its trials, space, history or cost.", LOOK),
    CommandPlace("explore", "explore:explore", "Look at results in the browser.", LOOK),
    CommandPlace("mcp", "mcp:mcp", "Serve results to agents (Model Context Protocol).", LOOK),
    CommandPlace("jit", "jit:jit", "Show what Triton compiled for a program, and why.", LOOK),
    CommandPlace("schedule", "schedule:schedule", "Look at the schedule of an MLIR program.", LOOK),
    CommandsPlace(
        "store", "Count, remove, merge or compare stored results.", _STORE_EXAMPLES, _STORE, KEEP
    ),
    CommandPlace("pack", "pack:pack", "Write results to a single file, a bundle.", KEEP),
    CommandsPlace(
        "lock",
        "Write, check and merge the lock file, which fixes every choice.",
        _LOCK_EXAMPLES,
        _LOCK,
        KEEP,
    ),
    CommandPlace("export", "export:export", "Export results for vLLM, SGLang, Triton…", KEEP),
    CommandsPlace("serving", "Tuned tables of vLLM and SGLang.", _SERVING_EXAMPLES, _SERVING, KEEP),
    CommandPlace("import", "import_:import_results", "Import results from other tuners.", KEEP),
    CommandPlace("verify", "verify:verify", "Measure stored picks again on this machine.", CHECK),
    CommandPlace("bench", "bench:run_bench", "Time functions, side by side.", CHECK),
    CommandPlace("doctor", "doctor:doctor", "Find out why torch.compile is not faster.", CHECK),
    CommandPlace("settings", "settings:settings", "Show or check settings and policy.", CHECK),
    CommandsPlace("lab", "Study search strategies on recorded tables.", _LAB_EXAMPLES, _LAB, LAB),
)

# What commands were called before, and what to type now.
FORMER = {
    "cluster": "whet store stats --ray ADDRESS",
    "trials": "whet show trials",
    "space": "whet show space",
    "history": "whet show history",
    "cost": "whet show cost",
    "report": "whet explore --out FILE.html",
    "diff": "whet store diff",
    "schedule suggest": "whet schedule --suggest",
    "schedule show": "whet schedule",
    "schedule compare": "whet schedule",
    "jit ls": "whet jit",
    "jit explain": "whet jit",
    "jit diff": "whet jit",
    "jit add": "whet jit --add",
    "replay": "whet lab replay",
    "compare-searches": "whet lab searches",
    "pareto": "whet lab pareto",
    "record": "whet lab record",
    "unpack": "whet store merge",
    "store ls": "whet store stats --list",
    "store check": "whet store stats --check",
    "store migrate": "whet store init --upgrade",
    "store grant": "whet store init",
    "store keygen": "whet store key --new",
    "store revoke": "whet store key --revoke",
    "policy": "whet settings --check",
    "policy check": "whet settings --check",
    "lock diff": "whet lock update --dry-run",
}
# So many words follow the first two: a kernel may have the name of a former command.
_FOLLOWING = {"jit diff": 2, "jit add": 2, "jit explain": 1}

# Typer's usage errors derive from click's, which newer releases carry inside themselves; their
# common base can be had from either only this way.
_UsageMistake = cast("type[Exception]", typer.BadParameter.__mro__[2])

_BROKEN_PIPE = 1
_OUR_FAULT = 70


def _version(wanted: bool) -> None:
    if wanted:
        print(f"whet {__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    help_without_command(context)


def root() -> Any:
    """`whet` with all that can follow it."""
    return command_group("whet", _ABOUT, _EXAMPLES, COMMANDS, _root)


def _former(words: Sequence[str]) -> str | None:
    """What to say of a command that has another name now."""
    for count in (2, 1):
        typed = " ".join(words[:count])
        if typed in FORMER and len(words) - count >= _FOLLOWING.get(typed, 0):
            return f"whet {typed}: this is '{FORMER[typed]}' now"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; nothing a user does ends in a traceback.

    Only what a script raises under `whet run` comes out as the script raised it.
    """
    try:
        speak_readably()
        words = sys.argv[1:] if arguments is None else list(arguments)
        if (said := _former(words)) is not None:
            print(said, file=sys.stderr)
            return UsageError.exit_code
        with at_command_line():
            code = root().main(args=words, prog_name="whet", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_gone()
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as error:  # typer's answer to a broken pipe
        return error.code if isinstance(error.code, int) else 1
    except _UsageMistake as error:
        return _say(_usage_text(error), 2, error)
    except WhetError as error:
        return _say(str(error), error.exit_code, error)
    except Exception as error:
        if (missing := no_triton(error)) is not None:
            return _say(missing, UsageError.exit_code, error)
        text = f"{type(error).__name__}: {error}".rstrip(": ")
        hint = "" if _debugging() else " (this is a bug; run with WHET_DEBUG=1 for the traceback)"
        return _say(f"{text}{hint}", _OUR_FAULT, error)
    if callable(code):  # a script, which is run when the command line has been read
        code()
        return 0
    return code if isinstance(code, int) else 0


def _debugging() -> bool:
    return bool(os.environ.get("WHET_DEBUG"))


def _say(text: str, code: int, error: Exception) -> int:
    if _debugging():
        traceback.print_exception(error)
    print(f"whet: {printable(' '.join(text.split()))}", file=sys.stderr)
    for note in getattr(error, "__notes__", ()):
        for line in note.splitlines():
            print(f"  {printable(line)}", file=sys.stderr)
    return code


def _usage_text(error: Any) -> str:
    """Click's sentence as one of ours, with the likely option where click has an idea."""
    options = getattr(error, "possibilities", None)
    if options:
        begun = [one for one in options if one.startswith(error.option_name)]
        likely = " or ".join(sorted(begun or options))
        text = f"no such option {error.option_name}; did you mean {likely}?"
    else:
        text = inspect.cleandoc(str(error.format_message())).rstrip(".")
        text = text[:1].lower() + text[1:]
    context = getattr(error, "ctx", None)
    return text if context is None else f"{text} (see {context.command_path} --help)"


def _reader_gone() -> int:
    """Leaves Python nothing to flush at exit, which would be complained about."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _BROKEN_PIPE
