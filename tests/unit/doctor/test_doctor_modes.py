"""The trial of modes: each in a process of its own, and what follows from their times."""

from __future__ import annotations

import io
import json
import math
import os
import queue
import re
import runpy
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import whet
from whet.cli import main
from whet.cli.commands.doctor import report_lines
from whet.core.config import Config
from whet.core.event import MeasureStarted, TrialFinished
from whet.core.frozen import FrozenMap
from whet.core.run import Outcome, Result, Run
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.core.workload import Device, Workload
from whet.doctor.checkup import Waiting, try_modes
from whet.doctor.finding import Diagnosis, Examination
from whet.doctor.journey.page import modes_section
from whet.doctor.modes.host import LEAST_ROUNDS, ROUNDS, ModeBench
from whet.doctor.modes.verdict import TrialOfModes, misread_ns, trial_of_modes
from whet.doctor.symptoms import notes, numeric_notes
from whet.engine.guard import Interrupted
from whet.measure import Reading
from whet.measure.bench.protocol import Sampled, Visit
from whet.store import MemoryStore

MS = 1e6
WORKLOAD = Workload("model", "f", Device("cpu", "cpu", "x"), FrozenMap({}), FrozenMap({}))
MODES = ("eager", "default", "reduce-overhead", "max-autotune")


def trial(
    mode: str,
    ms: float,
    first_call_s: float,
    settling_s: float = 0.0,
    beside: tuple[float, float] | None = None,
    same_as: str = "",
) -> Trial:
    """`beside` is what eager and the mode took in turns, in milliseconds, give or take 2 %."""
    later = ms / 1e3 + settling_s / 2
    facts: dict[str, Any] = {
        "first_call_s": first_call_s,
        "second_call_s": later,
        "third_call_s": later,
        "same_as": same_as,
    }
    if beside is not None:
        noise = [math.exp((at % 5 - 2) / 100) for at in range(10)]
        facts["beside_eager"] = json.dumps([(beside[0] * MS, beside[1] * MS * n) for n in noise])
    return Trial(
        WORKLOAD.id,
        Config({"mode": mode}),
        Status.OK,
        Timing((ms * MS,) * 9, loops=1, timer="cpu"),
        facts=FrozenMap(facts),
    )


def decided(
    trials: list[Trial],
    best: int,
    equals: tuple[int, ...] = (),
    outcome: Outcome = Outcome.FINISHED,
    paired_speedup: float | None = None,
) -> TrialOfModes:
    more: dict[str, Any] = {"outcome": outcome, "paired_speedup": paired_speedup}
    run = Run(WORKLOAD, "s", len(trials), "auto", 0, **more)
    tied = tuple(trials[at].config for at in equals)
    result = Result(run, trials[best], trials[0], tuple(trials), equals=tied)
    done = trial_of_modes(trials, MODES, result)
    assert done.verdict is not None
    return done


def test_a_faster_mode_is_recommended_with_the_call_from_which_it_pays() -> None:
    done = decided([trial("eager", 3, 0.5), trial("default", 1, 10.5, beside=(3, 1))], best=1)
    assert done.verdict.mode == "default"
    assert done.verdict.speedup == pytest.approx(3.0)
    assert done.verdict.break_even_calls == 5000
    assert "call 5,000" in done.verdict.text


def test_recording_a_graph_is_kept_apart_and_counts_for_breaking_even() -> None:
    graphs = trial("max-autotune", 1, 10.5, settling_s=2.0, beside=(3, 1))
    done = decided([trial("eager", 3, 0.5), graphs], best=1)
    assert done.modes[1].recording_s == pytest.approx(2.0)
    assert done.verdict.break_even_calls == pytest.approx(6000, abs=1)


def test_what_a_benchmark_with_one_warm_up_call_would_read_is_said() -> None:
    """The recording is in its timed loop: 0.1 ms then looks like 3.1 ms."""
    slow = trial("max-autotune", 0.1, 30, settling_s=0.15)
    done = decided([trial("eager", 0.2, 0.1), slow], best=1)
    assert [misread_ns(one) for one in done.modes] == [None, pytest.approx(3.1 * MS)]
    [line] = notes(done)
    assert "3.1 ms" in line


def test_not_to_compile_is_a_verdict() -> None:
    done = decided([trial("eager", 1, 0.1), trial("default", 1.5, 9)], best=0)
    assert done.verdict.mode == "eager"
    assert done.verdict.break_even_calls is None
    assert done.verdict.text.startswith("Don't compile ")
    assert "50 % slower" in done.verdict.text


def test_a_mode_that_eager_cannot_be_told_from_is_not_worth_compiling() -> None:
    trials = [trial("eager", 1.0, 0.1), trial("default", 0.99, 9, beside=(1, 0.999))]
    done = decided(trials, best=1)
    assert done.verdict.mode == "eager"
    assert done.verdict.equals == ("default",)
    assert "measurably faster" in done.verdict.text


def test_a_mode_that_won_on_its_own_and_is_slower_beside_eager_is_not_recommended() -> None:
    trials = [trial("eager", 5.62, 0.1), trial("default", 3, 9, beside=(2.35, 3))]
    done = decided(trials, best=1, paired_speedup=1.9)
    assert done.verdict.mode == "eager"
    assert "28 % slower" in done.verdict.text


def test_times_and_speed_up_are_those_taken_side_by_side() -> None:
    """Eager was timed by itself while the machine was slow."""
    trials = [trial("eager", 5.62, 0.1), trial("default", 2, 9, beside=(2.35, 1.88))]
    done = decided(trials, best=1, paired_speedup=1.9)
    eager, default = done.modes
    assert eager.median_ns == pytest.approx(2.35 * MS)
    assert default.median_ns == pytest.approx(1.88 * MS)
    assert default.beside_eager is not None
    assert default.beside_eager[1] == pytest.approx(1.25)
    assert done.verdict.speedup == default.beside_eager[1]
    assert "1.25 times" in done.verdict.text
    assert done.to_json()["modes"][1]["beside_eager"] == default.beside_eager
    told = Diagnosis("mlp", "mlp.py", "2.13", Examination(()), done)
    [row] = [line for line in report_lines(told) if line.startswith("default ")][:1]
    assert row.split()[1:6] == ["1.88", "ms", "±2", "%", "1.25"]
    assert '<td class="number">1.25</td>' in str(modes_section(told))


def test_a_faster_mode_is_found_where_the_trial_had_settled_on_another() -> None:
    slow = trial("default", 1.2, 9, beside=(1, 1.2))
    fast = trial("max-autotune", 0.8, 9, beside=(1, 0.8))
    done = decided([trial("eager", 1, 0.1), slow, fast], best=1, equals=(0,))
    assert (done.verdict.mode, done.verdict.equals) == ("max-autotune", ())


def test_a_trial_of_an_older_whet_is_judged_by_its_duel_with_eager() -> None:
    trials = [trial("eager", 3, 0.5), trial("default", 1, 10.5)]
    done = decided(trials, best=1, paired_speedup=2.5)
    assert (done.verdict.mode, done.verdict.speedup) == ("default", 2.5)


def test_among_equal_modes_the_one_that_compiles_sooner_is_recommended() -> None:
    tuned = trial("max-autotune", 1, 60, beside=(3, 1))
    plain = trial("default", 1.005, 9, beside=(3, 1.005))
    done = decided([trial("eager", 3, 0.1), tuned, plain], best=1, equals=(2,))
    assert (done.verdict.mode, done.verdict.equals) == ("default", ("max-autotune",))


def test_of_modes_with_the_same_code_the_first_is_recommended() -> None:
    """Where it is itself faster than eager: what the two differ by is noise."""
    first = trial("default", 1.2, 12, beside=(3, 1.2))
    twin = trial("max-autotune", 1, 10, beside=(3, 1), same_as="default")
    done = decided([trial("eager", 3, 0.1), first, twin], best=2)
    assert (done.verdict.mode, done.verdict.equals) == ("default", ("max-autotune",))
    assert done.verdict.speedup == pytest.approx(2.5)
    assert done.verdict.text.endswith("max-autotune runs the same generated code.")
    assert any("only default" in line for line in numeric_notes(done))


def test_a_gain_that_the_same_code_does_not_have_in_another_process_is_noise() -> None:
    first = trial("default", 1.04, 12, beside=(1, 1.04))
    twin = trial("max-autotune", 0.92, 10, beside=(1, 0.92), same_as="default")
    done = decided([trial("eager", 1, 0.1), first, twin], best=2)
    assert done.verdict.mode == "eager"
    assert "1.09 times" in done.verdict.text
    assert "0.96 times" in done.verdict.text


def test_an_interrupted_trial_has_its_modes_and_no_verdict() -> None:
    done = trial_of_modes([trial("eager", 3, 0.1)], MODES, None)
    assert [one.mode for one in done.modes] == ["eager"]
    assert done.verdict is None
    assert done.interrupted
    assert done.missing == ("default", "reduce-overhead", "max-autotune")


def test_what_an_earlier_trial_stored_counts_where_this_one_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise Interrupted(None)

    monkeypatch.setattr("whet.engine.tuning.tune", interrupted)
    target: Any = SimpleNamespace(modes=MODES, workload=lambda: WORKLOAD)
    with MemoryStore() as store:
        run = Run(WORKLOAD, "s", 1, "grid", 0, outcome=Outcome.INTERRUPTED)
        store.save_run(run)
        store.append([replace(trial("eager", 3, 0.1), run_id=run.id)])
        done = try_modes(target, store, print)
    assert [one.mode for one in done.modes] == ["eager"]
    assert done.missing == ("default", "reduce-overhead", "max-autotune")


def test_modes_of_an_interrupted_trial_tie_where_their_gains_over_eager_do_not_differ() -> None:
    tuned = trial("max-autotune", 0.5, 60, beside=(1, 0.5))
    plain = trial("default", 0.502, 9, beside=(1, 0.502))
    done = decided([trial("eager", 1, 0.1), tuned, plain], best=1, outcome=Outcome.INTERRUPTED)
    assert (done.verdict.mode, done.verdict.sure) == ("default", False)
    assert done.verdict.equals == ("max-autotune",)
    assert done.missing == ("reduce-overhead",)


class Timed:
    """A mode's process, that takes as long as it is told and counts its samples."""

    def __init__(self, ms: float) -> None:
        self.ms, self.taken, self.closed = ms, 0, False

    def measure(self, visit: Visit) -> tuple[Sampled]:
        self.taken += visit.samples
        return (Sampled(Reading((self.ms * MS,) * visit.samples, 1, "cpu"), FrozenMap({})),)

    def close(self) -> None:
        self.closed = True


def a_bench() -> tuple[ModeBench, dict[str, Timed]]:
    processes = {"eager": Timed(2), "default": Timed(1)}
    opened: Any = lambda config: processes[config["mode"]]  # noqa: E731
    return ModeBench(opened), processes


def test_each_mode_takes_turns_with_eager_even_where_eager_was_outraced() -> None:
    bench, processes = a_bench()
    eager, mode = (Config({"mode": name}) for name in processes)
    bench.measure(Visit(((eager, None),), 2, first=True))
    bench.forget(eager)
    assert not processes["eager"].closed
    [answer] = bench.measure(Visit(((mode, None),), 2, first=True))
    assert isinstance(answer, Sampled)
    assert json.loads(str(answer.facts["beside_eager"])) == [[2 * MS, 1 * MS]] * ROUNDS
    assert len(answer.reading.samples) == 2
    bench.close()
    assert processes["eager"].closed


def test_eager_is_started_for_a_mode_where_its_own_timing_is_stored() -> None:
    bench, _ = a_bench()
    [answer] = bench.measure(Visit(((Config({"mode": "default"}), None),), 2, True))
    assert isinstance(answer, Sampled)
    assert "beside_eager" in answer.facts


def test_a_mode_that_takes_long_says_how_far_it_is(tmp_path: Path) -> None:
    kernels = tmp_path / "default" / "triton"
    kernels.mkdir(parents=True)
    (kernels / "k.cubin").touch()
    (kernels / "k.json").touch()
    said: queue.Queue[str] = queue.Queue()
    config = Config({"mode": "default"})
    with Waiting(said.put, lambda: tmp_path, every_s=0.01) as waiting:
        waiting.heard(MeasureStarted(config))
        assert re.fullmatch(r"default: \d+ s so far, 1 kernel compiled", said.get(timeout=60))
        waiting.heard(TrialFinished(trial("default", 1, 9)))
        while not said.empty():
            said.get()
        time.sleep(0.05)
    assert said.empty()


SCRIPT = """\
import os, sys
import torch, whet

class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x).relu()

def run():
    done = whet.doctor(Own(), torch.ones(2, 8), modes=["eager"], store=":memory:")
    for eager in done.trial.modes if done.trial else ():
        print(done.name, eager.mode, eager.status, eager.close_to_eager)
    print("left out", *done.examination.left_out)

if __name__ == "__main__":
    run()
    os.environ["UNGUARDED"] = "1"
    print("and now unguarded")
if os.environ["UNGUARDED"]:
    run()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_a_script_is_timed_elsewhere_and_told_what_to_write_where_it_would_start_over(
    tmp_path: Path,
) -> None:
    """It calls the doctor under its guard, and then once more outside of it."""
    pytest.importorskip("torch", reason="the doctor needs torch, which is not installed")
    path = tmp_path / "own.py"
    path.write_text(SCRIPT)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setenv("UNGUARDED", "")
        runpy.run_path(str(path), run_name="__main__")
    guarded, _, unguarded = out.getvalue().partition("and now unguarded\n")
    assert guarded == "Own eager ok True\nleft out\n"
    assert 'if __name__ == "__main__"' in unguarded.replace("'", '"')


MODEL = """\
import torch

def make_model():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), torch.ones(2, 8)
"""


@pytest.mark.whole
@pytest.mark.timeout(400)
def test_modes_are_compiled_with_caches_of_their_own_and_stored(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """No headers are precompiled and no vector units tried: both take longer than all the rest."""
    pytest.importorskip("torch", reason="the doctor needs torch, which is not installed")
    from whet.doctor.checkup import doctor_file

    monkeypatch.setenv("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "0")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "the user's own"))
    file, store = tmp_path / "model.py", str(tmp_path / "store.db")
    file.write_text(MODEL)
    said: list[str] = []
    first = doctor_file(
        file, "make_model", modes=["default"], store=store, progress=said.append
    ).trial
    assert first is not None
    assert first.verdict is not None
    assert first.source == "tuned"
    assert [(one.mode, one.status) for one in first.modes] == [("eager", "ok"), ("default", "ok")]
    eager, compiled = first.modes
    assert compiled.close_to_eager is True
    assert len(compiled.rounds) >= LEAST_ROUNDS
    assert compiled.beside_eager is not None
    assert (compiled.first_call_s or 0) > (eager.first_call_s or 0)
    assert any(line.startswith("timing default") for line in said)
    assert not [*(tmp_path / "the user's own").rglob("*.so")]

    again = doctor_file(file, "make_model", modes=["default"], store=store).trial
    assert again is not None
    assert again.source == "stored"
    assert again.modes == first.modes
    assert again.verdict is not None
    assert again.verdict.mode == first.verdict.mode


class InterruptsAt(io.StringIO):
    """As if somebody pressed Ctrl-C when `words` appear."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words

    def write(self, text: str) -> int:
        written = super().write(text)
        if self._words and self._words in self.getvalue():
            self._words = ""
            os.kill(os.getpid(), signal.SIGINT)
        return written


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("forked_workers")
def test_ctrl_c_reports_what_is_known_so_far(
    tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="the doctor needs torch, which is not installed")
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    monkeypatch.setattr(sys, "stderr", stderr := InterruptsAt("timing default"))
    words = ["doctor", "model.py:make_model", "--modes", "default", "--store", ":memory:"]
    assert main(words) == 130, stderr.getvalue()
    out = capsys.readouterr().out
    assert "was interrupted" in out
    assert "Not timed: default." in out
    assert "Don't compile" not in out
    row = next(line for line in out.splitlines() if line.startswith("eager "))
    assert "ms" in row or "µs" in row


@pytest.mark.medium
def test_the_room_can_be_called_whichever_was_imported_first() -> None:
    code = "import whet.doctor.finding, whet; print(callable(whet.doctor))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr
    assert callable(whet.doctor)
