"""Many devices: what the executors cost, what the check for deviating devices is worth, and what
happens when machines die.

    python benchmarks/devices.py bad [--runs 50]        eight fake devices, two of them bad
    python benchmarks/devices.py spread                 64 recorded workloads over 8 devices
    python benchmarks/devices.py builds                 recorded builds over 4 machines
    python benchmarks/devices.py overhead [--nodes 3]   Ray's cost per trial (needs ray)
    python benchmarks/devices.py killed [--runs 20]     nodes killed at random moments (needs ray)
    python benchmarks/devices.py gpu [--rounds 3]       a process per device beside this process

`bad`, `spread` and `builds` need neither GPU nor Ray and no quiet machine: fake devices have a
clock of their own, and recorded seconds pass on a simulated one. `gpu` tunes the tutorial's matrix
product cold, in new processes, in turns.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from unittest import mock

from cold import Record, byte_compile, empty_caches
from whet.core.config import Config
from whet.core.event import Event, TrialFinished
from whet.core.frozen import FrozenMap
from whet.core.space import Space
from whet.core.status import Status
from whet.engine import tune
from whet.engine.executors import spread as spreading
from whet.engine.executors.calibration import AgreementPolicy
from whet.engine.executors.node_pool import NodePool, NodePoolView
from whet.engine.executors.workloads import WorkloadQueue, longest_first, size_of
from whet.engine.steps.build import Expectation
from whet.replay import Table, read_table, shipped
from whet.store import MemoryStore
from whet.testing.fake_devices import FakeDevices, FakeModel, FakeRack, RackTarget
from whet.testing.fakes import NoiseModel
from whet.workers.task import Kind, Task, TaskOutcome

DEVICES = tuple(str(number) for number in range(8))
BLIND = AgreementPolicy(tolerance=99.0, sure=1e9)


def landscape(seed: int, configs: int = 48) -> dict[str, float]:
    """Nanoseconds by config: the best is 2 % ahead of the next, and many are within 7 %."""
    chance = random.Random(seed)
    behind = [0.0, 0.02] + [chance.uniform(0.02, 0.3) for _ in range(configs - 2)]
    chance.shuffle(behind)
    return {str(number): 50_000.0 * (1 + one) for number, one in enumerate(behind)}


def target_of(seed: int, rack: FakeRack, build_s: float | None = None) -> RackTarget:
    times = landscape(seed)
    return RackTarget(
        {"n": [int(name) for name in times]},
        lambda config: times[str(config["n"])],
        rack,
        devices=DEVICES,
        build_s=build_s,
    )


def bad(runs: int, record: Record) -> None:
    noise = NoiseModel(gaussian=0.005)
    drifting = NoiseModel(gaussian=0.005, drift_per_s=3.0)
    for name, policy in (("checked", AgreementPolicy()), ("unchecked", BLIND)):
        right = found_slow = found_drifting = others = 0
        for seed in range(runs):
            slow, moving = random.Random(seed).sample(DEVICES, 2)
            models = {slow: FakeModel(1.07, noise), moving: FakeModel(1.0, drifting)}
            target = target_of(seed, FakeRack(FrozenMap(models), seed))
            with mock.patch.object(spreading, "AgreementPolicy", lambda policy=policy: policy):
                result = tune(target, store=":memory:", executor=FakeDevices(DEVICES), seed=seed)
            right += result.config == target.best
            out = {note.split()[1] for note in result.notes if note.startswith("device ")}
            found_slow += slow in out
            found_drifting += moving in out
            others += len(out - {slow, moving})
        print(
            f"{name:10} right best in {right} of {runs}; left out: the slow one in {found_slow}, "
            f"the drifting one in {found_drifting}, healthy ones {others} times",
            flush=True,
        )
        record.put(
            name,
            {
                "runs": runs,
                "right": right,
                "slow": found_slow,
                "drifting": found_drifting,
                "healthy": others,
            },
        )


def recorded() -> Table:
    import whet.replay.files as files

    return read_table(Path(files.__file__).parent / "tables" / f"{shipped()[0]}.whet.json.gz")


def spread(record: Record, devices: int = 8, handing_over_s: float = 0.05) -> None:
    """Whole workloads, by the queue that the tuning itself uses, on a simulated clock. The recorded
    measurements are what a device is busy with; builds are shared by all and not counted."""
    table = recorded()
    everywhere = range(len(table.configs))
    spent = [[workload.seconds(at) for at in everywhere] for workload in table.workloads]
    # Binaries were loaded once when the table was recorded; each tuning loads its own.
    loading = sum(max(one[at].get("load", 0.0) for one in spent) for at in everywhere)
    costs = [
        loading + sum(each.get("warmup", 0.0) + each.get("measure", 0.0) for each in one)
        for one in spent
    ]
    sizes = [size_of(workload.key) for workload in table.workloads]
    for name, items in (
        ("as listed", list(enumerate(costs))),
        ("largest key first", longest_first(enumerate(costs), lambda one: sizes[one[0]])),
        ("longest first", longest_first(enumerate(costs), lambda one: one[1])),
    ):
        took = simulated(items, devices, handing_over_s)
        speed = (sum(costs) + handing_over_s * len(costs)) / took
        print(
            f"{len(costs)} workloads, {name}: {sum(costs):.0f} s on one device, {took:.0f} s on "
            f"{devices}: {speed:.2f}× (≥ 7× wanted)"
        )
        record.put(f"spread {name}", {"one_s": sum(costs), "many_s": took, "times": speed})


def simulated(items: Sequence[tuple[int, float]], devices: int, handing_over_s: float) -> float:
    queue = WorkloadQueue(list(items))
    clock: list[tuple[float, str]] = [(0.0, str(number)) for number in range(devices)]
    heapq.heapify(clock)
    end = 0.0
    while clock:
        now, seat = heapq.heappop(clock)
        if seat in queue.under_way:
            queue.done(seat)
        taken = queue.take(seat)
        if taken is None:
            end = max(end, now)
            continue
        heapq.heappush(clock, (now + handing_over_s + taken[1][1], seat))
    return end


class SimulatedNode:
    """Builds take what they took when they were recorded, on a clock that jumps."""

    def __init__(self, name: str, slots: int) -> None:
        self.name = name
        self.slots = slots
        self.busy: dict[int, tuple[str, Future[TaskOutcome]]] = {}
        self.new: list[int] = []
        self.lock = threading.Lock()

    def start(self, ticket: int, task: Task) -> Future[TaskOutcome]:
        with self.lock:
            done: Future[TaskOutcome] = Future()
            self.busy[ticket] = (task.label, done)
            self.new.append(ticket)
            return done

    def limit(self, ticket: int, limit_s: float | None) -> None: ...

    def cancel(self, ticket: int) -> None: ...


def builds(record: Record, nodes: int = 4, message_s: float = 0.005) -> None:
    """In the order in which the configs are listed; in the order that the tuning itself puts them
    into, by what it learns as builds end; and by what another key has taught before. The floor is
    what no order could beat."""
    table = recorded()
    costs = {
        config: build.seconds
        for config, build in zip(table.configs, table.builds, strict=True)
        if build.seconds is not None
    }
    longest = max(costs.values())
    print(f"{len(costs)} builds of {sum(costs.values()):.0f} s, the longest of {longest:.1f} s")
    for slots in (2, 4, 8):
        one, floor = least(costs.values(), slots), least(costs.values(), nodes * slots)
        for order in ("as listed", "learning", "taught"):
            alone = build_time(table.space, costs, 1, slots, 0.0, order)
            many = build_time(table.space, costs, nodes, slots, message_s, order)
            print(
                f"{slots} at once on each machine, {order:9}: {alone:6.1f} s on one (floor "
                f"{one:5.1f}), {many:5.1f} s on {nodes} (floor {floor:5.1f}): {alone / many:.2f}× "
                "(≥ 3.5× wanted)",
                flush=True,
            )
            record.put(
                f"builds {slots} {order}",
                {"one_s": alone, "many_s": many, "floor_s": floor, "times": alone / many},
            )


def least(seconds: Iterable[float], at_once: int) -> float:
    """All work shared out evenly, the longest build, or the two shortest that must share a place
    among the longest."""
    longest = sorted(seconds, reverse=True)
    pair = sum(longest[at_once - 1 : at_once + 1]) if len(longest) > at_once else 0.0
    return max(sum(longest) / at_once, longest[0], pair)


def build_time(
    space: Space,
    costs: dict[Config, float],
    nodes: int,
    slots: int,
    message_s: float,
    order: str,
) -> float:
    """By the very pool that a cluster's builds go through, and the tuning's own expectation."""
    by_label = {str(config): (config, seconds) for config, seconds in costs.items()}
    pool, expected = NodePool(), Expectation(space)
    machines = [SimulatedNode(str(number), slots) for number in range(nodes)]
    view = pool.view()
    tickets = {view.submit(Task(print, label=label)): label for label in by_label}
    if order == "taught":
        for config, seconds in costs.items():
            expected.built(config, seconds)
    put_in_order(view, expected, tickets, by_label, nodes * slots, order)
    for machine in machines:
        pool.add(machine)
    now, left, ends = 0.0, len(costs), list[tuple[float, int, SimulatedNode]]()
    while left:
        wanted = min(left, nodes * slots)
        while sum(len(machine.busy) for machine in machines) < wanted:
            time.sleep(0.0001)
        for machine in machines:
            with machine.lock:
                for ticket in machine.new:
                    seconds = by_label[machine.busy[ticket][0]][1] + message_s
                    heapq.heappush(ends, (now + seconds, ticket, machine))
                machine.new.clear()
        now, ticket, machine = heapq.heappop(ends)
        if order == "learning":
            expected.built(*by_label[machine.busy[ticket][0]])
            put_in_order(view, expected, tickets, by_label, nodes * slots, order)
        with machine.lock:
            _, done = machine.busy.pop(ticket)
        done.set_result(TaskOutcome(ticket, Kind.DONE))
        left -= len(view.wait(10))
    pool.close()
    return now


def put_in_order(
    view: NodePoolView,
    expected: Expectation,
    tickets: dict[int, str],
    by_label: dict[str, tuple[Config, float]],
    at_once: int,
    order: str,
) -> None:
    if order == "as listed":
        return
    running = set(view.running())
    waiting = {by_label[label][0]: t for t, label in tickets.items() if t not in running}
    places = expected.order(list(waiting), at_once)
    if places is not None:
        view.reorder({waiting[config]: place for place, config in enumerate(places)})


def overhead(nodes: int, record: Record) -> None:
    """Of a tuning whose kernels and builds take no time: what is left is messages."""
    from whet.engine.executors.on_ray import RayExecutor
    from whet.engine.executors.processes import ProcessPerDevice
    from whet.testing.executor_kit import Probe
    from whet.testing.ray_nodes import LocalCluster

    took: dict[str, float] = {}

    def timed(name: str, executor: Any) -> None:
        seconds = []
        for seed in range(3):
            target = target_of(seed, FakeRack(seed=seed), build_s=0.0)
            start = time.perf_counter()
            result = tune(target, store=":memory:", executor=executor, seed=seed, jobs=1)
            seconds.append((time.perf_counter() - start) / len(result.trials))
        took[name] = 1e3 * min(seconds)
        print(f"{name:28} {took[name]:6.1f} ms a trial", flush=True)

    timed("no executor", None)
    with ProcessPerDevice(DEVICES[: nodes + 1], lambda name: {}) as executor:
        timed(f"{nodes + 1} processes", executor)
    start = time.perf_counter()
    for name, more, gpus in (
        ("Ray, one node", 0, nodes + 1),
        (f"Ray, {nodes + 1} nodes", nodes, 1),
    ):
        with LocalCluster(more, head_gpus=gpus) as cluster, RayExecutor(cluster.address) as far:
            print(f"{name}: ready after {time.perf_counter() - start:.1f} s", flush=True)
            timed(name, far)
            session = far.seats()[0].session(Probe)
            session.call("count")
            start = time.perf_counter()
            for _ in range(100):
                session.call("count")
            print(f"{name:28} {10 * (time.perf_counter() - start):6.1f} ms a message", flush=True)
        cost = took[name] - took["no executor"]
        print(f"{name:28} {cost:6.1f} ms a trial more than without (≤ 20 ms wanted)", flush=True)
        record.put(name, {"ms_a_trial": took[name], "more_ms": cost})
        start = time.perf_counter()


class At:
    """Calls what it is given when the run is this far, from another thread."""

    def __init__(self, trials: int, what: Callable[[], None]) -> None:
        self._left = trials
        self._what = what
        self.thread: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, TrialFinished):
            self._left -= 1
            if self._left == 0:
                self.thread = threading.Thread(target=self._what)
                self.thread.start()


def left_behind(token: str) -> list[int]:
    """Processes of ours whose environment names this benchmark's run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if token.encode() in path.read_bytes() and path.parent.name != str(os.getpid()):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def killed(runs: int, record: Record, seed: int) -> None:
    from whet.engine.executors.on_ray import RayExecutor
    from whet.testing.ray_nodes import LocalCluster

    token = os.environ["WHET_BENCH_RUN"] = f"devices-{os.getpid()}"
    chance = random.Random(seed)
    counts = {"right": 0, "whole": 0, "cut": 0}
    with LocalCluster(3) as cluster:
        with RayExecutor(cluster.address) as executor:
            for run in range(runs):
                for name, many in one_death(cluster, executor, chance, run).items():
                    counts[name] += many
        wait_for(lambda: not [p for p in left_behind(token) if is_worker(p)], 30)
        workers = [pid for pid in left_behind(token) if is_worker(pid)]
    wait_for(lambda: not left_behind(token), 30)
    behind = left_behind(token)
    print(
        f"right best in {counts['right']} of {runs}, nothing lost in {counts['whole']} of {runs}; "
        f"left behind: {len(workers)} workers, {len(behind)} processes; builds cut for being slow: "
        f"{counts['cut']}"
    )
    record.put("killed", {"runs": runs, **counts, "workers": len(workers), "left": len(behind)})
    if counts["right"] < runs or counts["whole"] < runs or workers:
        raise SystemExit(1)


def one_death(cluster: Any, executor: Any, chance: random.Random, run: int) -> dict[str, int]:
    """A tuning in the middle of which a node is killed; another joins after it."""
    wait_for(lambda: len(executor.seats()) == 4)
    target = target_of(run, FakeRack(seed=run, look_s=0.02), build_s=0.02)
    store = MemoryStore()
    victim, moment = chance.choice(cluster.nodes), chance.randrange(1, 60)
    kill = At(moment, lambda: cluster.kill(victim))
    result = tune(target, store=store, executor=executor, seed=run, on_event=kill)
    trials = store.trials(target.workload().id)
    # A build that is cut for being slow, on a busy machine, was not lost.
    cut = [one for one in trials if one.status is Status.BUILD_TIMEOUT]
    failed = [one for one in trials if one.status.failed and one not in cut]
    print(f"run {run}: killed at trial {moment}; {len(trials)} trials", flush=True)
    for one in failed:
        print(f"run {run}: [{one.config}] {one.status}: {one.error}", flush=True)
    if kill.thread is not None:
        kill.thread.join()
        cluster.join()
    right = result.config == target.best
    return {"right": right, "whole": len(trials) == 48 and not failed, "cut": len(cut)}


def is_worker(pid: int) -> bool:
    try:
        return b"workers/child.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)


def tune_cold(side: str, size: int) -> dict[str, Any]:
    """Runs in a process that has never tuned anything."""
    import torch

    import whet
    from triton_kernels import (
        KEY,
        matmul_arguments,
        matmul_grid,
        matmul_inputs,
        matmul_kernel,
        tutorial_configs,
        wake_device,
    )
    from whet.engine.executors.current import using
    from whet.engine.executors.processes import ProcessPerDevice
    from whet.targets.triton.device import device_environment

    kernel = whet.autotune(configs=tutorial_configs(), key=list(KEY))(matmul_kernel)
    wake_device()
    a, b, c = matmul_inputs(size)
    torch.cuda.synchronize()
    executor = None if side == "here" else ProcessPerDevice(["0"], device_environment)
    start = time.perf_counter()
    with using(executor):
        kernel[matmul_grid(size, size)](*matmul_arguments(a, b, c))
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    result = kernel.whet_result
    assert result is not None
    picks = [str(config) for config in (result.config, *result.equals)]
    return {"first_call_s": seconds, "picks": picks, "device": torch.cuda.get_device_name()}


def gpu(rounds: int, size: int, record: Record) -> None:
    byte_compile()
    rows: dict[str, list[dict[str, Any]]] = {"here": [], "processes": []}
    for number in range(rounds):
        for side in ("here", "processes") if number % 2 else ("processes", "here"):
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    [sys.executable, __file__, "gpu", "--side", side, "--size", str(size)],
                    env={**os.environ, **empty_caches(Path(folder))},
                    stdout=subprocess.PIPE,
                    text=True,
                    timeout=300,
                )
            if done.returncode:
                raise SystemExit(f"a tuning ended with exit code {done.returncode}")
            row = json.loads(done.stdout.splitlines()[-1])
            rows[side].append(row)
            record.put(f"{number} {side}", row)
            print(
                f"round {number} {side:10} {row['first_call_s']:6.2f} s  {row['picks']}", flush=True
            )
    here, apart = (
        statistics.median(row["first_call_s"] for row in rows[side])
        for side in ("here", "processes")
    )
    same = sum(
        bool(set(one["picks"]) & set(other["picks"]))
        for one, other in zip(rows["here"], rows["processes"], strict=True)
    )
    print(
        f"{rows['here'][0]['device']}: {here:.2f} s in this process, {apart:.2f} s in one per "
        f"device: {apart / here:.2f}× (≤ 1.15× wanted); same or equal picks in {same} of {rounds}"
    )
    record.put("gpu", {"here_s": here, "processes_s": apart, "ratio": apart / here, "same": same})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("bad", "spread", "builds", "overhead", "killed", "gpu"))
    parser.add_argument("--runs", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--side", choices=("here", "processes"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.side:
        print(json.dumps(tune_cold(asked.side, asked.size)))
        return
    record = Record(asked.json)
    if asked.what == "bad":
        bad(asked.runs or 50, record)
    elif asked.what == "spread":
        spread(record)
    elif asked.what == "builds":
        builds(record)
    elif asked.what == "overhead":
        overhead(asked.nodes, record)
    elif asked.what == "killed":
        killed(asked.runs or 20, record, asked.seed)
    else:
        gpu(asked.rounds, asked.size, record)


if __name__ == "__main__":
    main()
