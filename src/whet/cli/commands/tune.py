"""`whet tune`: finds the fastest config of a tunable in a file of the user's."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli import INTERRUPTED
from whet.cli.arguments.devices import BuildOnOption, Devices, DevicesOption, EnvOption, RayOption
from whet.cli.arguments.locate import InputsOption, file_of, locate, with_inputs
from whet.cli.arguments.missed import RootOption
from whet.cli.arguments.options import (
    BudgetOption,
    CudaGraphOption,
    EffortOption,
    IsolateOption,
    JobsOption,
    JsonOption,
    KeepIrOption,
    Key,
    KeysOption,
    L2BytesOption,
    L2Option,
    QuietOption,
    SamplesOption,
    SearchOption,
    SeedOption,
    StoreOption,
    TransferOption,
    argument,
    flags_in_environment,
    option,
    read_keys,
    resolved,
)
from whet.cli.arguments.reading import is_bare, place_of, tried_text
from whet.cli.terminal.output import (
    columns,
    flexible,
    ns_text,
    page,
    print_json,
    print_lines,
    right,
    table,
    times_text,
    wrap,
)
from whet.cli.terminal.progress import progress
from whet.cli.terminal.summary import summary, whereabouts
from whet.core.context import PromptShown, showing_prompts
from whet.core.errors import HostFailure, StoreError, TuningFailedError, UsageError, WhetError
from whet.engine import HostLostError, Interrupted, StoreLostError
from whet.engine import tune as run
from whet.engine.target import Target
from whet.store import open_if_there, open_store, store_place
from whet.targets.files import guarded

if TYPE_CHECKING:
    from whet.core.run import Result
    from whet.engine.executors.protocol import DeviceExecutor
    from whet.engine.settings import Settings
    from whet.engine.tuning import Transfer
    from whet.targets.triton.offline.kernel import Kernel


def tune(
    tunable: Annotated[
        str | None,
        argument(
            "FILE.py:NAME",
            "What to tune: NAME is a whet.function(…) or whet.native(…), a function that "
            "returns one, a Triton kernel with whet.autotune(…, inputs=…), or one with "
            "triton.autotune(…) and --inputs. NAME may be omitted if the file has only one. "
            "KIND:TEXT is a target of an installed package. A NAME that the store knows stands for "
            "its file, if that is yours and below this folder.",
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        option(
            "--key M=64,N=32", "A key to tune, passed to the Triton kernel's inputs= (repeatable)."
        ),
    ] = None,
    keys: KeysOption = None,
    inputs: InputsOption = None,
    missed: Annotated[
        bool,
        option(
            "--missed", "Tune the keys recorded by mode 'record': all, or those of FILE.py:NAME."
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
    show_prompt: Annotated[
        bool,
        option("--show-prompt", "With --search llm: print what would be sent first, and leave."),
    ] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the fastest config of a tunable.

    Builds and measures its configs, drops those that cannot win, compares the finalists side by
    side, and stores every result. Known results are not measured again. Ctrl-C prints the best so
    far.

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
      whet tune kernel.py:blur --search llm --show-prompt   what a model is asked
    """
    from whet.cli.commands.tune_missed import tune_missed

    if show_prompt and (search != "llm" or missed or devices or ray):
        raise UsageError("--show-prompt is for --search llm, and for one tuning in this process")
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
    known = None
    if transfer is not None:
        from whet.cli.commands.lab import from_tables

        known = from_tables(transfer)
    if is_bare(tunable):
        with open_if_there(settings.store, bundle=settings.bundle) as stored:
            tunable = place_of(tunable, "tune", stored)
    with redirect_stdout(sys.stderr):  # the file's own prints are not our result
        target = with_inputs(locate(tunable), inputs)
    with _prompt_shown(show_prompt, json):
        if not isinstance(target, Target):
            target.tuner.whet_transfer = known
            made_in = file_of(inputs or tunable)
            with on.opened(target) as executor:
                others = None if executor is None else OtherDevices(executor, tunable, inputs)
                _tune_kernel(
                    target, given, flags, settings, made_in, others, json=json, quiet=quiet
                )
            return
        if given:
            raise UsageError(f"'{target.name}' takes no --key: only Triton kernels have keys")
        _tune_target(target, settings, on, known, store, json=json, quiet=quiet)


@contextmanager
def _prompt_shown(wanted: bool, json: bool) -> Iterator[None]:
    """What would be sent in place of what comes of it, where that is wanted."""
    with showing_prompts() if wanted else nullcontext():
        try:
            yield
        except PromptShown as shown:
            _print_prompt(shown.told, json)


def _print_prompt(told: Mapping[str, Any], json: bool) -> None:
    if json:
        print_json({"v": 1, **told})
        return
    where = told["url"] or "nowhere: llm_url is not set, so nothing is sent"
    headers = [f"{name}: {value}" for name, value in told["headers"].items()]
    rest = [f"{name}: {value}" for name, value in told["body"].items() if name != "messages"]
    prompt = told["body"]["messages"][0]["content"]
    print_lines([f"to {where}", *headers, *rest, "", *prompt.splitlines()])


def _tune_target(
    target: Target,
    settings: Settings,
    on: Devices,
    known: Transfer | None,
    store: str | None,
    *,
    json: bool,
    quiet: bool,
) -> None:
    """`store` is what was typed, to be typed again in what follows."""
    from whet.engine.executors.current import using

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
class OtherDevices:
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
    others: OtherDevices | None,
    *,
    quiet: bool,
) -> tuple[list[KeyOutcome], bool]:
    """Whole keys are shared out over the devices where there are at least as many; else the
    configs of each key are."""
    from whet.cli.commands.tune_spread import (
        KeyTuner,
        jobs_for_each,
        take_whole_keys,
        tune_keys_spread,
    )
    from whet.engine.executors.current import using

    seats = () if others is None else others.executor.seats()
    if others is not None and take_whole_keys(seats, len(keys), store):
        from whet.targets.triton.source import source_of

        each = {**flags, "store": store, "jobs": jobs_for_each(flags, seats)}
        tuner = KeyTuner(others.tunable, others.inputs, each, store, source_of(kernel.tuner))
        return tune_keys_spread(others.executor, tuner, keys, quiet=quiet)
    with using(None if others is None else others.executor):
        return tune_keys(kernel, keys, flags, store=store, path=path, quiet=quiet)


def _tune_kernel(
    kernel: Kernel,
    keys: Sequence[dict[str, object]],
    flags: Mapping[str, str | None],
    settings: Settings,
    path: Path,
    others: OtherDevices | None,
    *,
    json: bool,
    quiet: bool,
) -> None:
    done, interrupted = _tuned_keys(
        kernel, keys or [{}], flags, settings.store, path, others, quiet=quiet
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


def teach(results: Sequence[Result], settings: Settings) -> None:
    """Keeps a cost model for keys that will not be tuned, where there are enough to learn from."""
    from whet.engine.fallback.inheritance import refresh_models

    kernels = {result.run.workload.kernel for result in results if result.source == "tuned"}
    if kernels and store_place(settings.store) != ":memory:":
        with open_store(settings.store) as store:
            refresh_models(store, kernels)


def run_tuning(
    target: Target, settings: Settings, *, quiet: bool, transfer: Transfer | None = None
) -> tuple[Result | None, bool]:
    """Tunes with progress on stderr; the result, and whether Ctrl-C ended it.

    A result is None only when Ctrl-C came before anything was measured.
    """
    try:
        with redirect_stdout(sys.stderr), progress(target.space.first, quiet=quiet) as on_event:
            result = run(
                target,
                settings=settings,
                transfer=transfer,
                on_event=on_event,
                progress=False,
                mode="tune",
            )
            return result, False
    except Interrupted as interrupted:
        return interrupted.result, True
    except KeyboardInterrupt:
        return None, True


def nothing_yet(target: Target) -> dict[str, object]:
    return {
        "v": 1,
        "workload": target.workload().to_json(),
        "outcome": "interrupted",
        "best": None,
        "first": None,
        "trials": 0,
    }


@dataclass(frozen=True)
class KeyOutcome:
    """One key and what its tuning found; without a result, `why` says why there is none. `lost`
    says why a result is not kept, or is only the best so far."""

    key: Key
    result: Result | None
    why: str = ""
    lost: StoreError | HostFailure | None = None


def tune_keys(
    kernel: Kernel,
    keys: Sequence[Key],
    flags: Mapping[str, str | None],
    *,
    store: str | None,
    path: Path,
    quiet: bool,
) -> tuple[list[KeyOutcome], bool]:
    """Tunes key after key with progress on stderr; what came of them, and whether Ctrl-C ended it.

    One key that cannot be tuned does not keep the others from it. `store` is the one that the
    settings name under these flags; `path` is the kernel's file, for what its `inputs` may raise.
    """
    from whet.targets.triton.offline.kernel import check_key
    from whet.targets.triton.offline.tuning import check_ready
    from whet.targets.triton.policy import apply_policy

    check_ready(kernel, keys[0])
    for key in keys:
        check_key(kernel, key)
    tuner = kernel.tuner
    apply_policy(tuner, [name for name, value in flags.items() if value])
    tuner.whet_search = flags.get("search") or tuner.whet_search
    tuner.whet_budget = flags.get("budget") or tuner.whet_budget
    tuner.whet_effort = flags.get("effort") or getattr(tuner, "whet_effort", None)
    done: list[KeyOutcome] = []
    with flags_in_environment(flags), redirect_stdout(sys.stderr):
        with open_store(store):
            pass  # a kernel goes on without a store; who asks for tuning wants it kept
        for key in keys:
            try:
                done.append(_tune_key(kernel, key, path, quiet))
            except Interrupted as interrupted:
                if interrupted.result is not None:
                    done.append(KeyOutcome(key, interrupted.result))
                return done, True
            except KeyboardInterrupt:
                return done, True
    return done, False


def _tune_key(kernel: Kernel, key: Key, path: Path, quiet: bool) -> KeyOutcome:
    from whet.targets.triton.keys import plain_config
    from whet.targets.triton.offline.kernel import make_inputs
    from whet.targets.triton.offline.tuning import NothingToTuneError, tune_call

    grid, args, keywords = guarded(path, lambda: make_inputs(kernel, key))
    with progress(plain_config(kernel.tuner.configs[0]), quiet=quiet) as on_event:
        try:
            result = tune_call(kernel, grid, args, keywords, on_event)
            return KeyOutcome(key, result, lost=kernel.tuner.whet_lost)
        except (TuningFailedError, NothingToTuneError) as error:
            return KeyOutcome(key, None, str(error))
        except HostLostError as error:
            return KeyOutcome(key, error.result, str(error), lost=error)


def as_json(kernel: Kernel, done: Sequence[KeyOutcome]) -> dict[str, Any]:
    found = [one.result.to_json() for one in done if one.result is not None]
    return {"v": 1, "kernel": kernel.name, "keys": found}


def keys_table(done: Sequence[KeyOutcome], width: int) -> list[str]:
    """One line a key, for more keys than a summary each would be read of."""
    from whet.targets.triton.offline.kernel import key_text

    layout = [flexible("key"), right("median"), right("speed-up"), right("tried"), flexible("best")]
    rows = [
        (
            key_text(one.key),
            ns_text(one.result.best.median_ns),
            "–" if one.result.speedup is None else times_text(one.result.speedup),
            _tried(one.result),
            str(one.result.config),
        )
        for one in done
        if one.result is not None
    ]
    if not rows:
        return []
    coverages = [one.result.run.coverage for one in done if one.result is not None]
    open_ends = [one for one in coverages if one is not None and one.next_text]
    ends = dict.fromkeys(f"{one.reason}; {one.next_text}" for one in open_ends)
    said = [f"{len(open_ends)} of {len(done)} keys have untried configs: {end}" for end in ends][:1]
    return [*table(layout, rows, width), *(["", *wrap(said[0], page(), indent=2)] if said else [])]


def _tried(result: Result) -> str:
    tried = tried_text(result.run.coverage, len(result.trials))
    return tried if result.source == "tuned" else f"{tried} {result.source}"


def raise_for_failures(done: Sequence[KeyOutcome]) -> None:
    """For keys without a result: one line that names the first of them, and exit code 1. For keys
    whose result could not be kept or is not the last word: why, likewise."""
    from whet.targets.triton.offline.kernel import key_text

    failed = [one for one in done if one.result is None]
    if failed:
        more = f" (and {len(failed) - 1} more keys)" if len(failed) > 1 else ""
        raise WhetError(f"{key_text(failed[0].key) or 'the key'}: {failed[0].why}{more}")
    lost = [one.lost for one in done if one.lost is not None]
    if lost:
        raise lost[0]
