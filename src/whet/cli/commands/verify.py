"""`whet verify`: measures stored picks again, and says which no longer hold."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from whet.cli.arguments.locate import InputsOption, file_of, locate, with_inputs
from whet.cli.arguments.missed import (
    LocatedMiss,
    MissLocator,
    RootOption,
    making_again,
    recorded_files,
    recorders,
)
from whet.cli.arguments.options import (
    CudaGraphOption,
    JsonOption,
    KeysOption,
    L2BytesOption,
    L2Option,
    QuietOption,
    StoreOption,
    argument,
    flags_in_environment,
    option,
    read_keys,
    resolved,
)
from whet.cli.arguments.reading import NothingKnownError, open_known, place_of, problem_text
from whet.cli.terminal.output import (
    Column,
    columns,
    count_text,
    first_line,
    flexible,
    ns_text,
    print_json,
    print_lines,
    right,
    say,
    table,
    times_text,
    wrap,
)
from whet.core.errors import UsageError, WhetError
from whet.engine.target import Target
from whet.targets.files import guarded

if TYPE_CHECKING:
    from whet.engine.review.verify import Verification
    from whet.engine.settings import Settings
    from whet.measure.racing.stats import Ratio
    from whet.store import Store
    from whet.targets.files import RecordedFiles
    from whet.targets.triton.offline.kernel import Kernel
    from whet.targets.triton.target import TritonTarget


def verify(
    tunables: Annotated[
        list[str] | None, argument("FILE.py:NAME", "What to verify, named as for 'whet tune'.")
    ] = None,
    key: Annotated[
        list[str] | None,
        option(
            "--key M=64,N=32",
            "A key to verify, passed to the kernel's inputs= (default: every stored key of "
            "this device).",
        ),
    ] = None,
    keys: KeysOption = None,
    inputs: InputsOption = None,
    missed: Annotated[
        bool,
        option(
            "--missed",
            "Verify the keys recorded by mode 'record', with arguments made from the record: "
            "all, or those of FILE.py:NAME.",
        ),
    ] = False,
    root: RootOption = None,
    fail_over: Annotated[
        str, option("--fail-over PERCENT", "How much slower than stored counts as a failure.")
    ] = "3%",
    record: Annotated[
        bool, option("--record", "Store the new measurements; without it nothing is written.")
    ] = False,
    store: StoreOption = None,
    l2: L2Option = None,
    l2_bytes: L2BytesOption = None,
    cuda_graph: CudaGraphOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure stored picks again on this machine.

    Each pick is built and measured side by side with the author's first config, and compared with
    the stored timings. A Triton kernel without inputs= is measured with the arguments of its
    recorded calls, if there are any. Exits with 1 if a pick is slower than --fail-over allows
    (at 95 % confidence) or no longer works.

    Examples:
      whet verify kernel.py:blur                  measure the pick of 'blur' again
      whet verify kernel.py:blur kernel.py:mm     several tunables
      whet verify kernel.py:mm --key M=64,N=64    one key of a Triton kernel
      whet verify kernel.py:blur --fail-over 5%   exit with 1 if over 5 % slower
      whet verify kernel.py:blur --record         store the new measurements
      whet verify --missed                        every key that was recorded
    """
    flags = {
        "store": store,
        "l2": l2,
        "l2_bytes": l2_bytes,
        "cuda_graph": "yes" if cuda_graph else None,
    }
    limit, given = _share(fail_over), read_keys(key or (), keys)
    if not tunables and not missed:
        raise UsageError("missing argument 'FILE.py:NAME' or --missed (see whet verify --help)")
    if missed and given:
        raise UsageError("--missed has its own keys; omit --key and --keys")
    settings = resolved(**flags).settings
    with open_known(store, read_only=not record) as opened, flags_in_environment(flags):
        given_flags = tuple(name for name, value in flags.items() if value)
        asked = Asked(opened, settings, limit, record, quiet, inputs, given_flags)
        with redirect_stdout(sys.stderr):  # the files' own prints are not our result
            if missed:
                files = recorded_files(root)
                texts = tunables or (None,)
                found = [one for text in texts for one in recorded(text, asked, files)]
            else:
                places = [place_of(text, "verify", opened) for text in tunables or ()]
                found = [one for text in places for one in _verified(text, given, asked)]
        place = opened.location
    if json:
        print_json(as_json(found, limit))
    done = [one.done for one in found if one.done is not None]
    if not done and not found:
        raise NothingKnownError(f"no recorded calls in {place}; record some: {RECORDING}", place)
    if not done:
        more = f" (and {len(found) - 1} more keys)" if len(found) > 1 else ""
        raise NothingKnownError(f"{found[0].what}: {found[0].why}{more}", place)
    if not json:
        print_lines(report(found, limit))
    if any(one.failed for one in done):
        raise typer.Exit(1)


def _share(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", text.strip())
    if match is None:
        raise UsageError(f"--fail-over '{text}' is not valid; use a percentage, such as 3%")
    return float(match[1]) / 100


def _verified(text: str, keys: Sequence[Mapping[str, Any]], asked: Asked) -> list[Checked]:
    target = with_inputs(locate(text), asked.inputs)
    if not isinstance(target, Target):
        found = _of_kernel(target, text, keys, asked.of_kernel(target.tuner))
    elif keys:
        raise UsageError(f"'{target.name}' takes no --key: only Triton kernels have keys")
    else:
        found = [checked(target, text, asked)]
    return [*found, *_left_out(found, asked.store)]


def _of_kernel(
    kernel: Kernel, text: str, keys: Sequence[Mapping[str, Any]], asked: Asked
) -> list[Checked]:
    from whet.targets.triton.offline.kernel import check_key
    from whet.targets.triton.offline.tuning import check_ready, keys_for_inputs

    if kernel.tuner.whet_inputs is None and not keys:
        calls = asked.store.missed(kernel.name, tuned=True)
        if calls:
            return [checked_call(LocatedMiss(one, kernel, file_of(text)), asked) for one in calls]
    check_ready(kernel, keys[0] if keys else None)
    for key in keys:
        check_key(kernel, key)
    known = [one.workload for one in asked.store.workloads(kernel.name)]
    wanted = keys or keys_for_inputs(kernel, known)
    if not wanted:
        return [Checked(text, None, nothing_stored(f"whet tune {text}"))]
    return [_of_key(kernel, text, key, asked) for key in wanted]


def _of_key(kernel: Kernel, text: str, key: Mapping[str, Any], asked: Asked) -> Checked:
    from whet.targets.triton.offline.kernel import key_text, make_inputs
    from whet.targets.triton.offline.tuning import with_target

    named = f"{text} --key {key_text(key)}" if key else text
    grid, args, keywords = guarded(file_of(asked.inputs or text), lambda: make_inputs(kernel, key))
    try:
        return with_target(kernel, grid, args, keywords, lambda one: checked(one, named, asked))
    except WhetError as error:
        return Checked(named, None, str(error))


def _left_out(found: Sequence[Checked], store: Store) -> list[Checked]:
    """What else is stored of the same kernel for this device, under other keys."""
    done = [one.done for one in found if one.done is not None]
    if not done:
        return []
    here = done[0].workload
    seen = {one.workload.key for one in done}
    others = {
        one.workload.key: one.workload
        for one in store.workloads(here.kernel)
        if one.workload.device.name == here.device.name and one.best is not None
    }
    return [
        Checked(str(other), None, "stored, but not requested")
        for key, other in others.items()
        if key not in seen
    ]


RECORDING = "whet run --record SCRIPT.py"
_TUNING = "whet tune --missed"


def recorded(tunable: str | None, asked: Asked, files: RecordedFiles) -> list[Checked]:
    """Of one kernel, or of all."""
    locator = MissLocator(tunable, asked.inputs, "verify", files, recorders(asked.store))
    return [
        checked_call(locator.locate(miss), asked)
        for miss in locator.named(asked.store.missed(tuned=True))
    ]


def checked_call(one: LocatedMiss, asked: Asked) -> Checked:
    from whet.targets.triton.offline.kernel import make_inputs
    from whet.targets.triton.offline.tuning import check_device, check_ready, with_target

    named, found = problem_text(one.miss.workload), one.found
    if found is None:
        return Checked(named, None, one.why)
    try:
        if isinstance(found, Target):
            return checked(found, named, asked, _TUNING)
        asked = asked.of_kernel(found.tuner)
        with making_again(found, one.miss) as key:
            check_ready(found)
            check_device(one.miss.workload.device)
            grid, args, keywords = guarded(one.path, lambda: make_inputs(found, key))

            def use(target: TritonTarget) -> Checked:
                return checked(target, named, asked, _TUNING)

            return with_target(found, grid, args, keywords, use)
    except WhetError as error:
        return Checked(named, None, str(error))


@dataclass(frozen=True)
class Asked:
    """What every tunable is verified with."""

    store: Store
    settings: Settings
    fail_over: float
    record: bool
    quiet: bool
    inputs: str | None = None
    flags: tuple[str, ...] = ()

    def of_kernel(self, tuner: Any) -> Asked:
        """With what the policy says of the kernel; options of the command outrank it."""
        from whet.targets.triton.policy import apply_policy, settings_for

        apply_policy(tuner, self.flags)
        return replace(self, settings=settings_for(tuner))


def checked(target: Target, what: str, asked: Asked, command: str | None = None) -> Checked:
    """`command` is what would tune it, where that is not `whet tune` with the same words."""
    from whet.engine.review.verify import verify as measure_again

    if not asked.quiet:
        say(f"verifying {what}")
    done = measure_again(
        target, asked.store, fail_over=asked.fail_over, settings=asked.settings, record=asked.record
    )
    why = "" if done is not None else nothing_stored(command or f"whet tune {what}")
    return Checked(what, done, why)


def nothing_stored(command: str) -> str:
    return f"no stored result for this device; tune it first with '{command}'"


@dataclass(frozen=True)
class Checked:
    """One workload, `what` in the user's words; without a verification, `why` there is none."""

    what: str
    done: Verification | None
    why: str = ""


_LAYOUT = (
    Column("verdict"),
    flexible("workload"),
    right("stored"),
    right("now"),
    right("now/stored"),
    right("first/now"),
)


def report(found: Sequence[Checked], fail_over: float) -> list[str]:
    """A table, in which what is to be said of a pick follows its row; then the summary."""
    from whet.measure.racing.stats import percent_text

    done = [one.done for one in found if one.done is not None]
    head, *body = table(_LAYOUT, [_row(one) for one in done], columns())
    lines = [head]
    for one, row in zip(done, body, strict=True):
        lines += [row, *_indented(_remarks(one))]
    for other in found:
        if other.done is None:
            lines += wrap(f"not verified: {other.what}: {other.why}", columns(), indent=2)
    counts = Counter[str](one.verdict for one in done)
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _verdicts() if counts[verdict])
    lost = sum(one.beats_first is False for one in done)
    slower = f"; {lost} slower than the first config" if lost else ""
    allowed = f"slower means more than {percent_text(fail_over)} slower, at 95 % confidence"
    return [*lines, "", f"{count_text(len(done), 'pick')}: {said}{slower} ({allowed})"]


def as_json(found: Sequence[Checked], fail_over: float) -> dict[str, Any]:
    return {
        "v": 1,
        "fail_over": fail_over,
        "failed": any(one.done.failed for one in found if one.done is not None),
        "picks": [_as_json(one.done) for one in found if one.done is not None],
        "not_verified": [{"what": one.what, "why": one.why} for one in found if one.done is None],
    }


def _verdicts() -> tuple[str, ...]:
    from whet.engine.review.verify import Verdict

    return get_args(Verdict)


def _row(one: Verification) -> tuple[str, ...]:
    return (
        one.verdict,
        problem_text(one.workload),
        ns_text(one.pick.median_ns),
        ns_text(None if one.now is None else one.now.median_ns),
        "–" if one.ratio is None else times_text(one.ratio.mid),
        _over_first(one),
    )


def _over_first(one: Verification) -> str:
    if one.first == one.pick.config:
        return "is first"
    if one.speedup is None:
        return "–"
    unsure = "?" if one.beats_first is None else ""
    return f"{times_text(one.speedup.mid)}{unsure}"


def _remarks(one: Verification) -> list[str]:
    texts = []
    if one.verdict in ("slower", "undecided") and one.ratio is not None:
        low, high = times_text(one.ratio.low), times_text(one.ratio.high)
        texts.append(f"[{one.pick.config}] takes {low} to {high} its stored time")
    elif one.verdict != "ok":
        texts.append(f"[{one.pick.config}]")
    if one.beats_first is False:
        texts.append(f"the author's first config [{one.first}] is now faster")
    if one.differs:
        texts.append(f"stored for a different {' and '.join(one.differs)}")
    if one.reason:
        texts.append(first_line(one.reason))
    return texts


def _indented(texts: Sequence[str], margin: int = 12) -> list[str]:
    room = columns() - margin
    return [" " * margin + line for text in texts for line in wrap(text, room, indent=2)]


def _as_json(one: Verification) -> dict[str, Any]:
    return {
        "workload": one.workload.to_json(),
        "stored_for": one.stored.to_json(),
        "differs": list(one.differs),
        "config": dict(one.pick.config),
        "first": None if one.first is None else dict(one.first),
        "verdict": one.verdict,
        "reason": one.reason,
        "stored_ns": one.pick.median_ns,
        "now_ns": None if one.now is None else one.now.median_ns,
        "first_ns": None if one.first_now is None else one.first_now.median_ns,
        "ratio": _ratio(one.ratio),
        "speedup": _ratio(one.speedup),
        "pace": _ratio(one.pace),
        "beats_first": one.beats_first,
    }


def _ratio(ratio: Ratio | None) -> dict[str, float] | None:
    return None if ratio is None else ratio._asdict()
