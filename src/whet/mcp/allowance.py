"""What the person who started the server lets an agent spend, and how it is spent: by commands of
whet's own in processes of their own, which can crash, print and be stopped."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.abc
from anyio.streams.text import TextReceiveStream

from whet.core.budget import Budget
from whet.core.errors import UsageError, WhetError, did_you_mean
from whet.search import STRATEGIES

# What `--allow` can give.
ALLOWED = ("tune",)
FORMATS = ("python", "vllm-moe", "vllm-fp8", "sglang-moe")

# A run may end so much later than its budget: loading the program comes first, and the last
# measurement is taken to its end.
GRACE_S = 60.0
STOP_S = 20.0
PROGRESS_S = 1.0
MOST_OUTPUT = 4 << 20
MOST_SAID = 8192

Progress = Callable[[float, float | None, str], Awaitable[None]]


@dataclass
class Allowance:
    """`targets` are what `whet tune` takes, as they were typed; `budget` is for all tunings
    together, as long as the server runs. Without targets nothing may be tuned."""

    targets: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)
    _turn: anyio.Lock = field(default_factory=anyio.Lock)

    def __post_init__(self) -> None:
        self.left = self.budget

    def granted(self, asked: str) -> Budget:
        """The budget of one tuning; a `UsageError` where that is more than what is left."""
        wanted = Budget.parse(asked)
        if not wanted.bounded:
            raise UsageError("say how much of the budget to use: 30s, 5m or 20trials")
        left = self.left
        over = _more(wanted.seconds, left.seconds) or _more(wanted.trials, left.trials)
        if over or left.seconds == 0 or left.trials == 0:
            raise UsageError(
                f"{wanted.text} is more than what is left: {left.text if left.bounded else 'none'} "
                f"of {self.budget.text}, which only the person who started this server can raise"
            )
        return Budget(
            left.seconds if wanted.seconds is None else wanted.seconds,
            left.trials if wanted.trials is None else wanted.trials,
        )

    def spend(self, seconds: float, trials: int) -> None:
        left = self.left
        self.left = Budget(
            None if left.seconds is None else max(0.0, left.seconds - seconds),
            None if left.trials is None else max(0, left.trials - trials),
        )

    def target(self, named: str) -> str:
        """One of the targets, by all of it or by its NAME alone."""
        found = [one for one in self.targets if named in (one, one.rpartition(":")[2])]
        if len(found) != 1:
            raise UsageError(
                f"'{named[:80]}' is none of what may be tuned here"
                f"{did_you_mean(named[:80], self.targets)}"
            )
        return found[0]

    async def tune(self, named: str, budget: str, search: str, progress: Progress) -> Any:
        """One at a time: they would disturb each other's measurements."""
        target = self.target(named)
        if search not in STRATEGIES:
            raise UsageError(f"no strategy '{search}'{did_you_mean(search, STRATEGIES)}")
        async with self._turn:
            granted = self.granted(budget)
            most = math.inf if granted.seconds is None else granted.seconds + GRACE_S
            keys = [word for key in self.keys for word in ("--key", key)]
            many = max(1, len(self.keys))
            each = Budget(
                None if granted.seconds is None else granted.seconds / many,
                None if granted.trials is None else granted.trials // many,
            )
            if each.trials == 0:
                raise UsageError(f"there are {many} keys, and each takes a trial at least")
            words = ["tune", "--json", "--budget", str(each), "--search", search, *keys]
            began, tried = anyio.current_time(), granted.trials or 0
            try:
                done = await _whet([*words, "--", target], most, progress, granted.seconds)
                if done.code == UsageError.exit_code:  # nothing was begun
                    tried = 0
                told = _result(done)
                tried = _tried(told)
                return told
            finally:
                self.spend(anyio.current_time() - began, tried)


def _more(asked: float | None, left: float | None) -> bool:
    return asked is not None and left is not None and asked > left


def _tried(told: Mapping[str, Any]) -> int:
    keys = told.get("keys")
    return sum(int(one["trials"]) for one in ([told] if keys is None else keys))


async def export(
    kernel: str, form: str, where: Sequence[str], extra: Sequence[str]
) -> dict[str, str]:
    """The files by name; they are written to a folder that is gone when this returns."""
    if form not in FORMATS:
        raise UsageError(f"no format '{form[:80]}'{did_you_mean(form[:80], FORMATS)}")
    more = [f"--where={one}" for one in where] + [f"--extra={one}" for one in extra]
    with TemporaryDirectory(prefix="whet-") as folder:
        out = Path(folder, "pick_config.py" if form == "python" else "")
        words = ["export", form, "--out", str(out), *more, "--", kernel]
        _checked(await _whet(words, GRACE_S))
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return {str(file.relative_to(folder)): file.read_text() for file in files}


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    said: str


async def _whet(
    words: Sequence[str],
    most_s: float,
    progress: Progress | None = None,
    total: float | None = None,
) -> Done:
    """Runs a command; stops it as Ctrl-C does when nobody waits for it any more, or after
    `most_s`."""
    out, said = "", ""
    process = await anyio.open_process(
        [sys.executable, "-m", "whet", *words], stdin=subprocess.DEVNULL, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stderr is not None

    ended = anyio.Event(), anyio.Event()

    async def results(stream: anyio.abc.ByteReceiveStream) -> None:
        nonlocal out
        async for text in TextReceiveStream(stream, errors="replace"):
            out = (out + text)[:MOST_OUTPUT]
        ended[0].set()

    async def words_said(stream: anyio.abc.ByteReceiveStream) -> None:
        nonlocal said
        async for text in TextReceiveStream(stream, errors="replace"):
            said = (said + text)[-MOST_SAID:]
        ended[1].set()

    async def tell() -> None:
        began = anyio.current_time()
        while progress is not None:
            await anyio.sleep(PROGRESS_S)
            lines = said.strip().splitlines()
            await progress(anyio.current_time() - began, total, lines[-1] if lines else "")

    try:
        with anyio.move_on_after(most_s) as limit:
            async with anyio.create_task_group() as group:
                group.start_soon(tell)
                group.start_soon(results, process.stdout)
                group.start_soon(words_said, process.stderr)
                await process.wait()
                with anyio.move_on_after(PROGRESS_S):  # what it has started may hold them open
                    for one in ended:
                        await one.wait()
                group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    if limit.cancelled_caught:
        raise WhetError(f"it was stopped after {most_s:g} s; what it had measured is in the store")
    return Done(process.returncode or 0, out, said)


async def _end(process: anyio.abc.Process) -> None:
    """With what it has stored so far, where it has a moment for that."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        with anyio.move_on_after(STOP_S):
            await process.wait()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # and whatever it has left
    await process.wait()
    await process.aclose()


def _checked(done: Done) -> Done:
    if done.code:
        every = done.said.strip().splitlines()
        lines = [line for line in every if line.startswith("whet: ")] or every
        why = lines[-1].removeprefix("whet: ") if lines else f"it ended with code {done.code}"
        raise WhetError(why[:2000])
    return done


def _result(done: Done) -> dict[str, Any]:
    """Of `whet tune --json`; a program may have printed something before it."""
    text = done.out[max(0, done.out.rfind("\n{\n")) :]
    try:
        told = json.loads(text)
        if isinstance(told, dict) and done.code in (0, 130):
            return told
    except ValueError:
        pass
    _checked(replace(done, code=done.code or 1))
    raise WhetError("the tuning gave no result")
