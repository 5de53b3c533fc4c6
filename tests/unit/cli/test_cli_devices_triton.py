"""`whet tune --devices`: keys over devices, configs over devices, and what cannot be meant."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet
from fork_server import ForkServer
from whet.cli.commands.store import cluster_text
from whet.cli.commands.tune_spread import (
    KeyTuner,
    MissTuner,
    settle_spread,
    take_whole_keys,
    tune_keys_spread,
)
from whet.core.errors import HostFailure
from whet.engine.executors.processes import ProcessPerDevice
from whet.engine.executors.workloads import spread_workloads
from whet.store import open_store
from whet.targets.fingerprint import Source

RACK = """
from whet.core.frozen import FrozenMap
from whet.testing.fake_devices import FakeModel, FakeRack, RackTarget

rack = FakeRack(FrozenMap({"2": FakeModel(1.07)}))
fake = RackTarget(
    {"a": [1, 2, 3, 4], "b": [0, 1]},
    lambda config: 50_000 * (1 + 0.1 * abs(config["a"] - 3) + 0.25 * config["b"]),
    rack,
    devices=("0", "1", "2"),
)
"""

# The file brings its own driver, since it is run in processes that no test has prepared.
KERNEL = """
import triton
import triton.language as tl
import whet
from whet.testing.fake_triton import FakeTensor, fake_driver, told

device = fake_driver()
device.__enter__()

@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

def inputs(n):
    if n == 13:
        raise ValueError("no such size")
    return (1,), (FakeTensor([0.0]), FakeTensor([0.0])), {"n": n}

tuned = whet.autotune(
    [triton.Config({"BLOCK": size}) for size in (16, 32, 64)], key=["n"], inputs=inputs
)(copy)
tuned.whet_timer = told(lambda config: 1e5 / config.kwargs["BLOCK"])
"""


@pytest.fixture
def rack() -> str:
    Path("rack.py").write_text(RACK)
    return "rack.py:fake"


@pytest.mark.slow
def test_configs_are_measured_on_all_devices_but_the_slow_one(whet: Whet, rack: str) -> None:
    ran = whet("tune", rack, "--devices", "all", "--store", "s.db", "--json", "--quiet")
    assert ran.code == 0
    found = json.loads(ran.out)
    assert found["best"]["config"] == {"a": 3, "b": 0}
    again = whet("tune", rack, "--devices", "all", "--store", "s.db")
    assert "8 of 8 configs" in again.out or "tuned before" in again.out


@pytest.mark.slow
def test_a_device_that_is_left_out_is_named_in_the_summary(whet: Whet, rack: str) -> None:
    ran = whet("tune", rack, "--devices", "0,1,2", "--store", "s.db")
    assert ran.code == 0
    assert "device 2 is not" in " ".join(ran.out.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--devices", "7"], "no device 7; this machine has 0, 1, 2"),
        (["--devices", "0,0"], "names a device twice"),
        (["--build-on", "cpu"], "--build-on needs --ray"),
        (["--env", "HOME"], "--env needs --ray"),
        (["--ray", "local", "--env", "A=1"], "--env takes the name of a variable"),
        (["--devices", "0", "--ray", "auto"], "omit them with --ray"),
    ],
)
def test_what_cannot_be_meant_ends_in_one_line(
    whet: Whet, rack: str, options: list[str], said: str
) -> None:
    ran = whet("tune", rack, *options)
    assert ran.code == 2
    assert said in " ".join(ran.err.split())


def test_kernels_that_run_on_the_cpu_take_no_devices(whet: Whet) -> None:
    Path("f.py").write_text("import whet\nf = whet.function(lambda a: a, {'a': [1, 2]})\n")
    ran = whet("tune", "f.py:f", "--devices", "all")
    assert ran.code == 2
    assert "the CPU" in " ".join(ran.err.split())


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_remedy_is_said(whet: Whet, rack: str) -> None:
    for command in (("tune", rack, "--ray", "auto"), ("store", "stats", "--ray", "auto")):
        ran = whet(*command)
        assert ran.code == 2
        assert "pip install '.[ray]'" in " ".join(ran.err.split())


@pytest.mark.slow
def test_ctrl_c_ends_every_process_and_prints_the_best_so_far(tmp_path: Path) -> None:
    slow = RACK.replace("    rack,\n", "    FakeRack(look_s=0.2),\n").replace(
        "[0, 1]", "list(range(40))"
    )
    (tmp_path / "rack.py").write_text(slow)
    command = ["tune", "rack.py:fake", "--devices", "all", "--store", "s.db"]
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", *command],
        cwd=tmp_path,
        env={**os.environ, "WHET_TEST_RUN": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "best" in line:
            break
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "best     a=" in out
    end = time.monotonic() + 10
    while _processes_of(str(tmp_path)) and time.monotonic() < end:
        time.sleep(0.05)
    assert _processes_of(str(tmp_path)) == []


def _processes_of(token: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"WHET_TEST_RUN={token}".encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_whole_keys_are_shared_out_over_devices(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    file, store = tmp_path / "kernel.py", str(tmp_path / "s.db")
    file.write_text(KERNEL)
    keys: list[dict[str, Any]] = [{"n": n} for n in (64, 128, 13, 256)]
    tuner = KeyTuner(f"{file}:tuned", None, {"store": store, "jobs": "1"}, store)
    with ProcessPerDevice(["0", "1"], lambda name: {}) as executor:
        done, interrupted = tune_keys_spread(executor, tuner, keys, quiet=True)
    assert not interrupted
    assert [one.key for one in done] == keys
    assert [one.result is not None for one in done] == [True, True, False, True]
    assert "no such size" in done[2].why
    assert all(one.result.config["BLOCK"] == 64 for one in done if one.result is not None)
    with open_store(store) as kept:
        assert len(kept.workloads()) == 3


class SourceThere:
    def source(self, tunable: str) -> Source:
        from whet.cli.arguments.locate import locate
        from whet.targets.triton.source import source_of

        kernel: Any = locate(tunable)
        return source_of(kernel.tuner)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_a_device_whose_process_imports_another_kernel_gets_no_keys(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("triton")
    file, store = tmp_path / "kernel.py", str(tmp_path / "s.db")
    code = KERNEL.replace("i < n)", "i < n + FEWER)").replace(
        "@triton.jit", "import os\nFEWER = tl.constexpr(int(os.environ['FEWER']))\n\n@triton.jit"
    )
    file.write_text(code)
    keys: list[dict[str, Any]] = [{"n": n} for n in (64, 128, 256)]
    with ProcessPerDevice(["0", "1"], lambda name: {"FEWER": name}) as executor:
        there = executor.seats()[1].session(SourceThere)
        source = there.call("source", f"{file}:tuned").value
        flags = {"store": store, "jobs": "1"}
        tuner = KeyTuner(f"{file}:tuned", None, flags, store, source)
        done, _ = tune_keys_spread(executor, tuner, keys, quiet=False)
        assert [one.why for one in done] == ["", "", ""]
        assert capfd.readouterr().err.count("on device 1: [") == 3
        with pytest.raises(HostFailure, match="0: its code is not the one here: FEWER is 0, not 1"):
            spread_workloads(executor.seats()[:1], tuner, list(enumerate(keys)))


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_paths_are_those_of_the_folder_in_which_the_command_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.chdir(tmp_path)
    Path("kernel.py").write_text(KERNEL)
    tuner = KeyTuner("kernel.py:tuned", None, {"store": "s.db", "jobs": "1"}, "s.db")
    keys: list[dict[str, Any]] = [{"n": 64}, {"n": 128}]
    with ProcessPerDevice(["0", "1"], lambda name: {}) as executor:
        done, _ = tune_keys_spread(executor, tuner, keys, quiet=True)
    assert [one.why for one in done] == ["", ""]
    with open_store("s.db") as kept:
        assert len(kept.workloads()) == 2


RECORDING = """
import sys
import kernel
from whet.testing.fake_triton import FakeTensor

for n in map(int, sys.argv[1:]):
    kernel.tuned[(1,)](FakeTensor([0.0]), FakeTensor([0.0]), n)
"""


def record(server: ForkServer, folder: Path, *sizes: int) -> str:
    """What a program that may not tune has missed; the store's path."""
    store = str(folder / "s.db")
    (folder / "kernel.py").write_text(KERNEL)
    (folder / "program.py").write_text(RECORDING)
    ran = server.run(
        [sys.executable, "program.py", *map(str, sizes)],
        cwd=folder,
        env={**os.environ, "WHET_MODE": "record", "WHET_STORE": store},
    )
    assert ran.returncode == 0, ran.stderr
    return store


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_missed_keys_are_shared_out_over_devices(tmp_path: Path, fork_server: ForkServer) -> None:
    pytest.importorskip("triton")
    store = record(fork_server, tmp_path, 64, 128, 13, 256)
    with open_store(store) as kept:
        misses = kept.missed()
    assert len(misses) == 4
    tuner = MissTuner(None, None, {"store": store, "jobs": "1"})
    with ProcessPerDevice(["0", "1"], lambda name: {}) as executor:
        done, interrupted = settle_spread(executor, tuner, misses, quiet=True)
    assert not interrupted
    by_size = {dict(one.miss.workload.key)["n"]: one for one in done}
    assert set(by_size) == {64, 128, 13, 256}
    assert "no such size" in by_size.pop(13).why
    for one in by_size.values():
        assert one.result is not None, one.why
        assert one.result.config["BLOCK"] == 64
    with open_store(store) as kept:
        assert [dict(miss.workload.key)["n"] for miss in kept.missed()] == [13]


# A machine with two devices that only exist in the file.
TWO_DEVICES = """
import sys
from whet.targets.triton import device
from whet.__main__ import main

device.device_names = lambda: ("0", "1")
device.device_environment = lambda name: {}
sys.argv[0] = "whet"
main()
"""


@pytest.mark.medium
@pytest.mark.parametrize("sizes", [pytest.param((64, 128), marks=pytest.mark.slow), (64,)])
def test_missed_keys_are_tuned_on_the_devices_that_are_named(
    tmp_path: Path, fork_server: ForkServer, sizes: tuple[int, ...]
) -> None:
    pytest.importorskip("triton")
    store = record(fork_server, tmp_path, *sizes)
    (tmp_path / "two.py").write_text(TWO_DEVICES)
    ran = fork_server.run(  # its own processes for the devices are fresh interpreters
        [sys.executable, "two.py", "tune", "--missed", "--devices", "all", "--store", store],
        cwd=tmp_path,
        env=os.environ,
    )
    said = " ".join(ran.stderr.split())
    if len(sizes) > 1:
        assert ran.returncode == 0, said
        assert "on device 0" in said
        assert "on device 1" in said
    else:  # its timer is the file's own, which no process of another device can have
        assert "several devices" in ran.stdout + said
    with open_store(store) as kept:
        assert len(kept.missed()) == (0 if len(sizes) > 1 else 1)


@pytest.mark.parametrize(
    ("devices", "keys", "remote", "store", "whole"),
    [
        (4, 4, False, "runs.db", True),
        (4, 3, False, "runs.db", False),
        (1, 9, False, "runs.db", False),
        (4, 9, True, "runs.db", False),
        (4, 9, True, "postgresql://db/whet", True),
    ],
)
def test_whole_keys_go_where_their_results_reach_the_store(
    devices: int, keys: int, remote: bool, store: str, whole: bool
) -> None:
    seats = ProcessPerDevice([str(n) for n in range(devices)], lambda name: {}).seats()
    for seat in seats:
        seat.remote = remote  # type: ignore[misc]
    assert take_whole_keys(seats, keys, store) is whole


def test_a_cluster_is_shown_with_what_each_machine_does() -> None:
    machines = [{"name": "node1/ab", "address": "10.0.0.1", "cpus": 8, "gpus": 2}]
    assert "no tuning" in cluster_text({"machines": machines}, 80)[-1]
    found = {
        "machines": machines,
        "devices": {"node1/ab:0": "measuring [BM=64]", "node1/ab:1": ""},
        "builds": {"node1/ab": {"slots": 8, "building": ["BM=128"]}},
        "refused": ["machine node2/cd is not used: triton 3.6.0, not 3.9.0"],
    }
    text = "\n".join(cluster_text(found, 80))
    assert "node1/ab:0  measuring [BM=64]" in text
    assert "node1/ab:1  idle" in text
    assert "BM=128" in text
    assert text.endswith("triton 3.6.0, not 3.9.0")
