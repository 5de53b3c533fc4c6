"""`whet doctor` on real models, on a GPU: its verdicts, and whether they hold.

    python benchmarks/doctor_verdicts.py [mlp] [transformer] [gpt2] [gpt2_training] [nanogpt]
        [--limit 300] [--rounds 10] [--repeat] [--full] [--modes M,M] [--json FILE]

Each case is a process that is interrupted when the time is up, and then reports what it has. With
`--rounds`, the modes of each case are then compiled once more by processes of this script's own,
which take their timings in turns: how far the recommended mode is from the best one in each round.
`--repeat` runs the whole diagnosis twice. The table comes last.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MODELS = HERE / "doctor_cases.py"
CASES = ("mlp", "transformer", "gpt2", "gpt2_training", "nanogpt")
WITHIN = 1.03

# A timing of a round lasts so long, whatever a call takes.
ROUND_S = 0.3
SAMPLES = 7

# A process that is alive answers a round far sooner.
ANSWER_S = 30.0

Case = dict[str, Any]


def diagnosed(case: str, args: argparse.Namespace, until: float) -> Case:
    """The answer of `whet doctor --json`; Ctrl-C at the limit makes it report what it has."""
    words = [sys.executable, "-m", "whet", "doctor", f"{MODELS}:{case}", "--json"]
    words += ["--store", ":memory:"]
    words += ["--training"] if case.endswith("training") else []
    words += ["--full"] if args.full else []
    words += ["--modes", args.modes] if args.modes else []
    began = time.monotonic()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        try:
            out, _ = running.communicate(timeout=max(1.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGINT)
            try:
                out, _ = running.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                running.kill()
                out, _ = running.communicate()
    took = time.monotonic() - began
    try:
        return {"case": case, "took_s": took, "diagnosis": json.loads(out)}
    except ValueError:
        return {"case": case, "took_s": took, "problem": f"exit code {running.returncode}"}


def recommended(case: Case) -> str:
    trial = (case.get("diagnosis") or {}).get("trial") or {}
    return str((trial.get("verdict") or {}).get("mode", ""))


def timed_modes(case: Case) -> list[str]:
    trial = (case.get("diagnosis") or {}).get("trial") or {}
    return [one["mode"] for one in trial.get("modes", ()) if one["median_ns"]]


class Sampler:
    """A process of its own for a mode; it answers each line with a timing in nanoseconds."""

    def __init__(self, case: str, mode: str, caches: str) -> None:
        self.mode = mode
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": caches, "TRITON_CACHE_DIR": caches}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--sample", mode, case],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, limit_s: float) -> float:
        """Not a number where the process has ended, or has not answered in time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return math.nan
        if not select.select([self._process.stdout], [], [], limit_s)[0]:
            return math.nan
        line = self._process.stdout.readline()
        return float(line) if line else math.nan

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def sample(case: str, mode: str) -> None:
    """Independent of whet's timers: the median of loops between two synchronizations."""
    sys.path.insert(0, str(HERE))
    import torch

    import doctor_cases
    from whet.doctor.modes.variants import compiled
    from whet.doctor.subject import step, subject_of

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the compiler prints is no answer
    torch.manual_seed(0)
    model, inputs = getattr(doctor_cases, case)()
    subject = subject_of(model, inputs, training=case.endswith("training"))
    run = compiled(model, mode)

    def loop(count: int) -> float:
        began = time.perf_counter()
        with subject.gradients():
            for _ in range(count):
                step(run, subject.calls[0], subject.training, model)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - began

    sys.stdin.readline()  # one process compiles at a time, since some modes measure meanwhile
    loop(5)
    count = max(1, int(ROUND_S / SAMPLES / (loop(5) / 5)))
    print(0, file=answers, flush=True)
    for _ in sys.stdin:
        taken = [loop(count) / count for _ in range(SAMPLES)]
        print(statistics.median(taken) * 1e9, file=answers, flush=True)


def compiles(sampler: Sampler, left_s: float) -> bool:
    return left_s > 0 and not math.isnan(sampler.ask(left_s))


def remeasured(case: Case, rounds: int, until: float) -> dict[str, list[float]]:
    """The modes in turns; those that could not be compiled in time are left out."""
    taken: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as caches:
        modes = sorted(timed_modes(case), key=lambda name: name != recommended(case))
        started = [Sampler(case["case"], mode, caches) for mode in modes]
        try:
            samplers = [one for one in started if compiles(one, until - time.monotonic())]
            for _ in range(rounds):
                times = {one.mode: one.ask(ANSWER_S) for one in samplers}
                if any(map(math.isnan, times.values())):
                    break
                for mode, ns in times.items():
                    taken.setdefault(mode, []).append(ns)
        finally:
            for one in started:
                one.close()
    return taken


def off_best(taken: dict[str, list[float]], mode: str) -> list[float]:
    """How many times as slow as the best of the round the recommended mode was."""
    if mode not in taken:
        return []
    return [
        taken[mode][at] / min(times[at] for times in taken.values())
        for at in range(len(taken[mode]))
    ]


def examined(name: str, args: argparse.Namespace, until: float) -> Case:
    case = diagnosed(name, args, until)
    if args.repeat and time.monotonic() < until:
        again = diagnosed(name, args, until)
        case["repeat"] = recommended(again)
        case["repeat_took_s"] = again["took_s"]
    if args.rounds and recommended(case):
        case["rounds"] = remeasured(case, args.rounds, until)
        case["off_best"] = off_best(case["rounds"], recommended(case))
    return case


def table(cases: Sequence[Case]) -> list[str]:
    lines = [
        "| case | mode | ms a call | against eager | cold s | warm s | recording s | device ms |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for case in cases:
        trial = (case.get("diagnosis") or {}).get("trial") or {"modes": []}
        eager = next((one["median_ns"] for one in trial["modes"] if one["mode"] == "eager"), None)
        chosen = recommended(case)
        lines += [row(case["case"], one, eager, one["mode"] == chosen) for one in trial["modes"]]
    return lines


def row(case: str, one: dict[str, Any], eager: float | None, chosen: bool) -> str:
    name = f"**{one['mode']}**" if chosen else one["mode"]
    if not one["median_ns"]:
        return f"| {case} | {name} | {one['status']} | | | | | |"
    ratio = f"{eager / one['median_ns']:.2f}x" if eager else "–"
    warm, step = one.get("warm") or {}, one.get("step") or {}
    device = (step.get("device_ns") or 0.0) / 1e6
    cells = (
        f"{one['median_ns'] / 1e6:.4g}",
        ratio,
        f"{one['first_call_s'] or 0:.1f}",
        f"{warm.get('first_call_s', 0):.1f}",
        f"{one['recording_s'] or 0:.2f}",
        f"{device:.4g}",
    )
    return f"| {case} | {name} | {' | '.join(cells)} |"


def verdicts(case: Case) -> list[str]:
    if "diagnosis" not in case:
        return [f"{case['case']}: {case['problem']} after {case['took_s']:.0f} s"]
    done = case["diagnosis"]
    trial = done.get("trial") or {}
    said = (trial.get("verdict") or {}).get("text", "no verdict")
    stopped = ", interrupted" if trial.get("interrupted") else ""
    lines = [f"{case['case']} ({case['took_s']:.0f} s{stopped}): {said}"]
    lines += [f"  {one['name']}: {one['evidence']}" for one in done["findings"]]
    lines += [f"  {line}" for line in (*done["left_out"], *done.get("notes", ()))]
    if case.get("off_best"):
        worst = max(case["off_best"])
        good = sum(one <= WITHIN for one in case["off_best"])
        count = len(case["off_best"])
        lines.append(f"  within 3 % of the best in {good} of {count} rounds, at worst {worst:.3f}x")
    if "repeat" in case:
        lines.append(f"  the whole repeat ({case['repeat_took_s']:.0f} s) says {case['repeat']}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all without")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for all cases")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--repeat", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--modes", default="")
    parser.add_argument("--json", metavar="FILE", default="")
    parser.add_argument("--sample", metavar="MODE", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    unknown = [name for name in args.cases if name not in CASES]
    if unknown:
        parser.error(f"there is no case '{unknown[0]}'; there are {', '.join(CASES)}")
    if args.sample:
        sample(args.cases[0], args.sample)
        return
    until = time.monotonic() + args.limit
    cases: list[Case] = []
    for name in args.cases or CASES:
        if time.monotonic() >= until:
            print(f"{name}: no time left", flush=True)
            continue
        cases.append(examined(name, args, until))
        print("\n".join(verdicts(cases[-1])), flush=True)
        if args.json:
            Path(args.json).write_text(json.dumps(cases, indent=1))
    print("\n".join(["", *table(cases)]))


if __name__ == "__main__":
    main()
