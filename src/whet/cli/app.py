"""The commands, their order, and what becomes of what they raise."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Sequence
from copy import copy
from typing import Annotated, Any, cast

import typer

from whet._version import __version__
from whet.cli import INTERRUPTED
from whet.cli.arguments.tables import TransferCommand
from whet.cli.commands import (
    best,
    cluster,
    compare,
    cost,
    demo,
    diff,
    doctor,
    explore,
    export,
    export_serving,
    history,
    import_,
    jit,
    lock,
    lock_check,
    pack,
    pareto,
    policy,
    precompile,
    record,
    replay,
    report,
    run,
    schedule,
    schedule_compare,
    settings,
    show,
    space,
    store,
    store_trust,
    store_upkeep,
    trials,
    tune,
    verify,
    warmup,
)
from whet.cli.commands.export_package import ExportGroup
from whet.cli.terminal.encoding import speak_readably
from whet.cli.terminal.help import OrderedGroup, PlainCommand
from whet.cli.terminal.output import printable
from whet.core.errors import UsageError, WhetError, at_command_line, no_triton

_ABOUT = """Find the fastest configuration of a kernel, store it, and show why.

A tunable is a Python object in your file, made with whet.function(…) or
whet.native(…), or a Triton kernel decorated with whet.autotune(…). Results are
stored, so nothing is built or measured twice.
"""

_EXAMPLES = """\b
Examples:
  whet demo                             tune a matrix product on this machine
  whet tune kernel.py:blur              tune the object 'blur' in kernel.py
  whet tune kernel.py:blur --budget 30s stop after 30 seconds
  whet run train.py                     run a script; whet tunes its kernels
  whet warmup train.py:step             tune all kernels of step() at once
  whet best blur                        show the best config found
  whet cost blur                        show where the tuning time went
  whet explore                          look at results in the browser
"""

# Typer's usage errors derive from click's, which newer releases carry inside themselves; their
# common base can be had from either only this way.
_UsageMistake = cast("type[Exception]", typer.BadParameter.__mro__[2])

_BROKEN_PIPE = 1
_OUR_FAULT = 70


def _version(wanted: bool) -> None:
    if wanted:
        print(f"whet {__version__}")
        raise typer.Exit


def _group(about: str, epilog: str, kind: type[OrderedGroup] = OrderedGroup) -> typer.Typer:
    # Rich's help costs as much to import as all the rest of a `--help`; plain text reads as well.
    return typer.Typer(
        cls=kind,
        help=about,
        epilog=epilog,
        invoke_without_command=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = _group(_ABOUT, _EXAMPLES)
stores = _group(store.ABOUT, store.EXAMPLES)
policies = _group(policy.ABOUT, policy.EXAMPLES)
locks = _group(lock.ABOUT, lock.EXAMPLES)
jits = _group(jit.ABOUT, jit.EXAMPLES)
schedules = _group(schedule.ABOUT, schedule.EXAMPLES)
exports = _group(export.ABOUT, export.EXAMPLES, ExportGroup)


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    _help_without_command(context)


@stores.callback()
def _store(context: typer.Context) -> None:
    _help_without_command(context)


@policies.callback()
def _policy(context: typer.Context) -> None:
    _help_without_command(context)


@locks.callback()
def _lock(context: typer.Context) -> None:
    _help_without_command(context)


@jits.callback()
def _jit(context: typer.Context) -> None:
    _help_without_command(context)


@schedules.callback()
def _schedule(context: typer.Context) -> None:
    _help_without_command(context)


@exports.callback()
def _export(context: typer.Context) -> None:
    _help_without_command(context)


def _help_without_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def _add(
    group: typer.Typer,
    panel: str | None,
    command: Any,
    examples: str,
    name: str,
    context_settings: dict[str, Any] | None = None,
    kind: type[PlainCommand] = PlainCommand,
) -> None:
    group.command(
        name,
        cls=kind,
        epilog=examples,
        rich_help_panel=panel or "Commands",
        context_settings=context_settings,
    )(command)


_add(app, "Tune", tune.tune, tune.EXAMPLES, "tune", kind=TransferCommand)
_add(app, "Tune", run.run, run.EXAMPLES, "run", run.ARGUMENTS_ARE_THE_SCRIPTS)
_add(app, "Tune", warmup.warmup, warmup.EXAMPLES, "warmup")
_add(app, "Tune", cluster.cluster, cluster.EXAMPLES, "cluster")
_add(app, "Tune", demo.demo, demo.EXAMPLES, "demo")
_add(app, "Tune", precompile.precompile, precompile.EXAMPLES, "precompile")
_add(app, "Inspect results", best.best, best.EXAMPLES, "best")
_add(app, "Inspect results", trials.trials, trials.EXAMPLES, "trials")
_add(app, "Inspect results", show.show, show.EXAMPLES, "show")
_add(app, "Inspect results", space.space, space.EXAMPLES, "space")
_add(app, "Inspect results", history.history, history.EXAMPLES, "history")
_add(app, "Inspect results", cost.cost, cost.EXAMPLES, "cost")
_add(app, "Inspect results", explore.explore, explore.EXAMPLES, "explore")
_add(app, "Inspect results", diff.diff, diff.EXAMPLES, "diff")
_add(app, "Inspect results", verify.verify, verify.EXAMPLES, "verify")
app.add_typer(schedules, name="schedule", rich_help_panel="Inspect results")
_add(schedules, None, schedule.suggest, schedule.SUGGEST_EXAMPLES, "suggest")
_add(schedules, None, schedule_compare.compare, schedule_compare.EXAMPLES, "compare")
_add(schedules, None, schedule.show, schedule.SHOW_EXAMPLES, "show")
app.add_typer(jits, name="jit", rich_help_panel="Inspect results")
_add(jits, None, jit.ls, jit.LS_EXAMPLES, "ls")
_add(jits, None, jit.explain, jit.EXPLAIN_EXAMPLES, "explain")
_add(jits, None, jit.diff, jit.DIFF_EXAMPLES, "diff")
_add(jits, None, jit.add, jit.ADD_EXAMPLES, "add")
_add(app, "Study", doctor.doctor, doctor.EXAMPLES, "doctor")
_add(app, "Study", replay.replay, replay.EXAMPLES, "replay", kind=TransferCommand)
_add(
    app,
    "Study",
    compare.compare_searches,
    compare.EXAMPLES,
    "compare-searches",
    kind=TransferCommand,
)
_add(app, "Study", pareto.pareto, pareto.EXAMPLES, "pareto")
_add(app, "Study", record.record, record.EXAMPLES, "record")
_add(app, "Share", report.report, report.EXAMPLES, "report")
_add(app, "Share", pack.pack, pack.PACK_EXAMPLES, "pack")
_add(app, "Share", pack.unpack, pack.UNPACK_EXAMPLES, "unpack")
app.add_typer(exports, name="export", rich_help_panel="Share")
_add(app, "Share", import_.import_results, import_.EXAMPLES, "import")
app.add_typer(stores, name="store", rich_help_panel="Manage")
app.add_typer(policies, name="policy", rich_help_panel="Manage")
app.add_typer(locks, name="lock", rich_help_panel="Manage")
_add(app, "Manage", settings.settings, settings.EXAMPLES, "settings")
_add(exports, None, export_serving.vllm_moe, export_serving.VLLM_MOE_EXAMPLES, "vllm-moe")
_add(exports, None, export_serving.vllm_fp8, export_serving.VLLM_FP8_EXAMPLES, "vllm-fp8")
_add(exports, None, export_serving.sglang_moe, export_serving.SGLANG_MOE_EXAMPLES, "sglang-moe")
_add(exports, None, export.triton, export.TRITON_EXAMPLES, "triton")
_add(exports, None, export.python, export.PYTHON_EXAMPLES, "python")
_add(policies, None, policy.check, policy.CHECK_EXAMPLES, "check")
_add(locks, None, lock.update, lock.UPDATE_EXAMPLES, "update")
_add(locks, None, lock_check.check, lock_check.EXAMPLES, "check")
_add(locks, None, lock.diff, lock.DIFF_EXAMPLES, "diff")
_add(locks, None, lock.merge, lock.MERGE_EXAMPLES, "merge")
_add(stores, None, store.ls, store.LS_EXAMPLES, "ls")
_add(stores, None, store.gc, store.GC_EXAMPLES, "gc")
_add(stores, None, store.merge, store.MERGE_EXAMPLES, "merge")
_add(stores, None, store_upkeep.stats, store_upkeep.STATS_EXAMPLES, "stats")
_add(stores, None, store_upkeep.check, store_upkeep.CHECK_EXAMPLES, "check")
_add(stores, None, store_upkeep.init, store_upkeep.INIT_EXAMPLES, "init")
_add(stores, None, store_upkeep.migrate, store_upkeep.MIGRATE_EXAMPLES, "migrate")
_add(stores, None, store_upkeep.grant, store_upkeep.GRANT_EXAMPLES, "grant")
_add(stores, None, store_trust.promote, store_trust.PROMOTE_EXAMPLES, "promote")
_add(stores, None, store_trust.keygen, store_trust.KEYGEN_EXAMPLES, "keygen")
_add(stores, None, store_trust.revoke, store_trust.REVOKE_EXAMPLES, "revoke")


def _asked(words: Sequence[str]) -> typer.Typer:
    """The commands that these words can reach. Typer reads the options of every command that it is
    given, which for all of them takes longer than most commands do."""
    reached = copy(app)
    first = next((word for word in words if not word.startswith("-")), None)
    commands = [one for one in app.registered_commands if one.name == first]
    groups = [one for one in app.registered_groups if one.name == first]
    if commands or groups:
        reached.registered_commands, reached.registered_groups = commands, groups
    else:  # the names of all, for a help text or a suggestion
        reached.registered_groups = [_empty(group) for group in app.registered_groups]
    return reached


def _empty(group: typer.models.TyperInfo) -> typer.models.TyperInfo:
    named = copy(group)
    named.typer_instance = copy(group.typer_instance)
    assert named.typer_instance is not None
    named.typer_instance.registered_commands = []
    return named


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; nothing a user does ends in a traceback.

    Only what a script raises under `whet run` comes out as the script raised it.
    """
    try:
        speak_readably()
        words = sys.argv[1:] if arguments is None else list(arguments)
        with at_command_line():
            code = typer.main.get_command(_asked(words)).main(
                args=words,
                prog_name="whet",
                standalone_mode=False,
            )
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
    if isinstance(code, run.Script):
        code.run()
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
        text = f"no such option {error.option_name}; did you mean {' or '.join(sorted(options))}?"
    else:
        text = inspect.cleandoc(str(error.format_message())).rstrip(".")
        text = text[:1].lower() + text[1:]
    context = getattr(error, "ctx", None)
    return text if context is None else f"{text} (see {context.command_path} --help)"


def _reader_gone() -> int:
    """Leaves Python nothing to flush at exit, which would be complained about."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _BROKEN_PIPE
