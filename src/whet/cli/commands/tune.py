"""`whet tune`: finds the fastest config of a tunable in a file of the user's."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli import INTERRUPTED
from whet.cli.arguments.devices import BuildOnOption, Devices, DevicesOption, EnvOption, RayOption
from whet.cli.arguments.inputs import InputsOption, with_inputs
from whet.cli.arguments.missed import RootOption
from whet.cli.arguments.options import (
    BudgetOption,
    CudaGraphOption,
    EffortOption,
    IsolateOption,
    JobsOption,
    JsonOption,
    KeepIrOption,
    L2BytesOption,
    L2Option,
    QuietOption,
    SamplesOption,
    SearchOption,
    SeedOption,
    StoreOption,
    resolved,
)
from whet.cli.arguments.tables import TransferOption
from whet.cli.arguments.tuning import nothing_yet, run_tuning, teach
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.cli.commands.tune_keys import KeyOutcome
    from whet.engine.executors.protocol import DeviceExecutor
    from whet.engine.settings import Settings
    from whet.targets.triton.offline.kernel import Kernel

EXAMPLES = """\b
Examples:
  whet tune kernel.py:blur                the object 'blur' in kernel.py
  whet tune kernel.py                     the only tunable in kernel.py
  whet tune kernel.py:blur --budget 30s   stop after 30 seconds
  whet tune kernel.py:blur --json | jq .best.config
  whet tune kernel.py:mm --key M=64,N=64  a Triton kernel, for one key
  whet tune lib.py:k --key M=64 --inputs mine.py:inputs   a library's kernel
  whet tune --missed                      keys recorded by WHET_MODE=record
  whet tune kernel.py:mm --keys all.json --devices all   on all GPUs
  whet tune kernel.py:mm --ray auto       over the machines of a Ray cluster
"""


def tune(
    tunable: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE.py:NAME",
            help="What to tune: NAME is a whet.function(…) or whet.native(…), a function that "
            "returns one, a Triton kernel with whet.autotune(…, inputs=…), or one with "
            "triton.autotune(…) and --inputs. NAME may be omitted if the file has only one. "
            "KIND:TEXT is a target of an installed package. A NAME that the store knows stands for "
            "its file, if that is yours and below this folder.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="M=64,N=32",
            help="A key to tune, passed to the Triton kernel's inputs= (repeatable).",
        ),
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option("--keys", metavar="FILE.json", help="A JSON file with a list of such keys."),
    ] = None,
    inputs: InputsOption = None,
    missed: Annotated[
        bool,
        typer.Option(
            "--missed",
            help="Tune the keys recorded by mode 'record': all, or those of FILE.py:NAME.",
        ),
    ] = False,
    root: RootOption = None,
    budget: BudgetOption = None,
    seed: SeedOption = None,
    jobs: JobsOption = None,
    store: StoreOption = None,
    search: SearchOption = None,
    effort: EffortOption = None,
    l2: L2Option = None,
    l2_bytes: L2BytesOption = None,
    cuda_graph: CudaGraphOption = False,
    isolate: IsolateOption = False,
    keep_ir: KeepIrOption = False,
    samples: SamplesOption = None,
    transfer: TransferOption = None,
    devices: DevicesOption = None,
    ray: RayOption = None,
    build_on: BuildOnOption = None,
    env: EnvOption = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the fastest config of a tunable.

    Builds and measures its configs, drops those that cannot win, compares the finalists side by
    side, and stores every result. Known results are not measured again. Ctrl-C prints the best so
    far.
    """
    from whet.cli.arguments.locate import file_of, locate
    from whet.cli.arguments.sources import is_bare, place_of
    from whet.cli.arguments.tables import from_tables
    from whet.cli.commands.tune_keys import read_keys
    from whet.cli.commands.tune_missed import tune_missed
    from whet.cli.terminal.output import print_json, print_lines
    from whet.cli.text.summary import summary
    from whet.engine import HostLostError, StoreLostError
    from whet.engine.executors.current import using
    from whet.engine.target import Target
    from whet.store import open_if_there, store_place

    flags = {
        "budget": budget,
        "seed": seed,
        "jobs": jobs,
        "store": store,
        "search": search,
        "effort": effort,
        "l2": l2,
        "l2_bytes": l2_bytes,
        "cuda_graph": "yes" if cuda_graph else None,
        "isolate": "yes" if isolate else None,
        "keep_ir": "yes" if keep_ir else None,
        "samples": samples,
    }
    on = Devices(devices, ray, build_on, env or ())
    settings = resolved(**flags).settings
    given = read_keys(key or (), keys)
    if missed:
        if given or transfer:
            raise UsageError("--missed has its own keys; omit --key, --keys and --transfer")
        tune_missed(tunable, inputs, flags, settings, on, roots=root, json=json, quiet=quiet)
        return
    if tunable is None:
        raise UsageError("missing argument 'FILE.py:NAME' or --missed (see whet tune --help)")
    known = None if transfer is None else from_tables(transfer)
    if is_bare(tunable):
        with open_if_there(settings.store, bundle=settings.bundle) as stored:
            tunable = place_of(tunable, "tune", stored)
    with redirect_stdout(sys.stderr):  # the file's own prints are not our result
        target = with_inputs(locate(tunable), inputs)
    if not isinstance(target, Target):
        target.tuner.whet_transfer = known
        made_in = file_of(inputs or tunable)
        with on.opened(target) as executor:
            far = None if executor is None else Far(executor, tunable, inputs)
            _tune_kernel(target, given, flags, settings, made_in, far, json=json, quiet=quiet)
        return
    if given:
        raise UsageError(f"'{target.name}' takes no --key: only Triton kernels have keys")
    lost: StoreLostError | HostLostError | None = None
    try:
        with on.opened(target) as executor, using(executor):
            result, interrupted = run_tuning(target, settings, quiet=quiet, transfer=known)
    except (StoreLostError, HostLostError) as error:
        result, interrupted, lost = error.result, False, error
    if result is not None and not interrupted and lost is None:
        teach([result], settings)
    if json:
        print_json(nothing_yet(target) if result is None else result.to_json())
    elif result is not None:
        print_lines(summary(result, store_place(settings.store), store))
    else:
        print("interrupted before the first config was measured")
    if lost is not None:
        raise lost
    if interrupted:
        raise typer.Exit(INTERRUPTED)


@dataclass(frozen=True)
class Far:
    """Devices besides this process's own, and how a kernel is found there."""

    executor: DeviceExecutor
    tunable: str
    inputs: str | None


def _tuned_keys(
    kernel: Kernel,
    keys: Sequence[dict[str, object]],
    flags: Mapping[str, str | None],
    store: str | None,
    path: Path,
    far: Far | None,
    *,
    quiet: bool,
) -> tuple[list[KeyOutcome], bool]:
    """Whole keys are shared out over the devices where there are at least as many; else the
    configs of each key are."""
    from whet.cli.commands.tune_keys import tune_keys
    from whet.cli.commands.tune_spread import (
        KeyTuner,
        jobs_for_each,
        take_whole_keys,
        tune_keys_spread,
    )
    from whet.engine.executors.current import using

    seats = () if far is None else far.executor.seats()
    if far is not None and take_whole_keys(seats, len(keys), store):
        from whet.targets.triton.source import source_of

        each = {**flags, "store": store, "jobs": jobs_for_each(flags, seats)}
        tuner = KeyTuner(far.tunable, far.inputs, each, store, source_of(kernel.tuner))
        return tune_keys_spread(far.executor, tuner, keys, quiet=quiet)
    with using(None if far is None else far.executor):
        return tune_keys(kernel, keys, flags, store=store, path=path, quiet=quiet)


def _tune_kernel(
    kernel: Kernel,
    keys: Sequence[dict[str, object]],
    flags: Mapping[str, str | None],
    settings: Settings,
    path: Path,
    far: Far | None,
    *,
    json: bool,
    quiet: bool,
) -> None:
    from whet.cli.commands.tune_keys import as_json, keys_table, raise_for_failures
    from whet.cli.terminal.output import columns, print_json, print_lines
    from whet.cli.text.summary import summary, whereabouts
    from whet.store import store_place

    done, interrupted = _tuned_keys(
        kernel, keys or [{}], flags, settings.store, path, far, quiet=quiet
    )
    results = [one.result for one in done if one.result is not None]
    if not interrupted:
        teach(results, settings)
    place, store = store_place(settings.store), flags["store"]
    if json:
        print_json(as_json(kernel, done))
    elif len(done) == 1 and results:
        print_lines(summary(results[0], place, store))
    elif results:
        kept = [line for line in whereabouts(results[0], place, store) if "as workload" not in line]
        print_lines([*keys_table(done, columns()), "", *kept])
    elif interrupted:
        print("interrupted before the first config was measured")
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    raise_for_failures(done)
