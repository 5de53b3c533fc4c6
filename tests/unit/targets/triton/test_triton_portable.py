"""Kernels compiled by one process and used by another, which runs no stage of the compiler."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jit_parts import FRESH, Run

from fork_server import ForkServer
from whet.store import MemoryStore
from whet.store.bundles.writing import FolderBinaries, write_bundle
from whet.targets.triton.packed.portable import RELATED

pytest.importorskip("triton")

pytestmark = pytest.mark.medium

KERNELS = '''
import triton
import triton.language as tl
import whet
from whet.testing.fake_triton import FakeTensor, told

SCALE = tl.constexpr(3)

@triton.jit
def scaled(x, by: tl.constexpr):
    return x * by

def inputs(n, dtype="float32"):
    return (1,), (FakeTensor([0.0], dtype), FakeTensor([0.0], dtype), n)

def configs():
    return [triton.Config({"BLOCK": 64}, num_warps=1), triton.Config({"BLOCK": 128}, num_warps=2)]

@whet.autotune(configs(), key=["n"], inputs=inputs)
@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Copies and multiplies."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, scaled(tl.load(x_ptr + i, mask=i < n), SCALE), mask=i < n)

@whet.autotune(configs(), key=["n"], inputs=inputs)
@triton.jit
def total(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    found = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        found += tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr, tl.sum(found))

for kernel in (scale, total):
    kernel.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
'''

# Writes down what Triton's own listener hears and which stages run, also in forked processes.
USE = """
import json, os, sys, warnings
from triton import knobs
from whet.testing.fake_triton import fake_driver

heard = open(sys.argv[1], "a", buffering=1)

def listener(*, src, cache_hit, **_):
    heard.write(json.dumps(["compiled", src.name, cache_hit]) + "\\n")

def hook(*args):
    if not args:
        return "", ""
    stages = args[1]
    for name, run in list(stages.items()):
        def noted(*given, name=name, run=run):
            heard.write(json.dumps(["stage", name]) + "\\n")
            return run(*given)
        stages[name] = noted

knobs.compilation.listener = listener
knobs.runtime.add_stages_inspection_hook = hook
sys.path.insert(0, os.getcwd())
arch, how, keys = json.loads(sys.argv[2])
with fake_driver(arch) as driver, warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import kernels

    for kernel in (kernels.scale, kernels.total):
        if how == "plain":
            kernel.configs = kernel.configs[:1]
        for key in keys:
            grid, args = kernels.inputs(**key)
            kernel[grid](*args)
    print(json.dumps({"launches": len(driver.launches), "said": [str(w.message) for w in said]}))
"""

KEYS_OF = """
import json, os, sys
from whet.store import MemoryStore
from whet.targets.triton.packed.architectures import architecture
from whet.targets.triton.offline.kernel import kernel_of
from whet.targets.triton.packed.portable import portable_key
from whet.targets.triton.offline.precompile import orders

sys.path.insert(0, os.getcwd())
import kernels

kernel = kernel_of(getattr(kernels, sys.argv[1]))
keys = json.loads(sys.argv[2])
ordered = orders(kernel, [architecture("sm_90")], keys, "space", MemoryStore())
print(json.dumps([portable_key(order.request) for order in ordered]))
"""

KEYS: list[dict[str, Any]] = [{"n": 512}, {"n": 511}, {"n": 1, "dtype": "float16"}]


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WHET_")}
    home.mkdir(parents=True, exist_ok=True)
    return {
        **kept,
        "HOME": str(home),
        "TRITON_CACHE_DIR": str(home / "triton"),
        "TRITON_DEFAULT_FP_FUSION": "1",
        "WHET_STORE": str(home / "store.db"),
        "PYTHONPATH": os.pathsep.join(sys.path),
        **more,
    }


def precompiled(run: Run, folder: Path, home: Path, *arguments: str) -> dict[str, Any]:
    keys = [f"--keys={','.join(f'{n}={v}' for n, v in key.items())}" for key in KEYS]
    command = [sys.executable, "-m", "whet", "precompile", *arguments, *keys, "--json"]
    ran = run(command, cwd=folder, env=environment(home))
    assert ran.returncode == 0, ran.stderr
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


@dataclass(frozen=True)
class Used:
    """What a process that called both kernels had to do for it."""

    launches: int
    said: Sequence[str]
    compiled: Sequence[bool]
    stages: Sequence[str]


def used(
    run: Run, home: Path, packed: Path | None, arch: Any = 90, how: str = "plain", **more: str
) -> Used:
    """A new process in a folder of its own, with nothing in any cache."""
    home.mkdir()
    (home / "kernels.py").write_text(KERNELS)
    (home / "use.py").write_text(USE)
    heard = home / "heard"
    if packed is not None:
        more["WHET_BINARIES"] = str(packed)
    ran = run(
        [sys.executable, "use.py", str(heard), json.dumps([arch, how, KEYS])],
        cwd=home,
        env=environment(home, **more),
    )
    assert ran.returncode == 0, ran.stderr
    events = [json.loads(line) for line in heard.read_text().splitlines()]
    answer = json.loads(ran.stdout.splitlines()[-1])
    return Used(
        answer["launches"],
        answer["said"],
        [event[2] for event in events if event[0] == "compiled"],
        [event[1] for event in events if event[0] == "stage"],
    )


@pytest.fixture(scope="module")
def run(fork_server: ForkServer) -> Run:
    """Runs Python in a process that has Triton imported."""
    return fork_server.run


@pytest.fixture(scope="module")
def packed(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both kernels, for three keys and two architectures."""
    folder = tmp_path_factory.mktemp("packer")
    (folder / "kernels.py").write_text(KERNELS)
    for kernel in ("scale", "total"):
        options = ("--arch=sm_90,gfx942", "--out=packed")
        precompiled(run, folder, folder / "home", f"kernels.py:{kernel}", *options)
    shutil.rmtree(folder / "home")
    return folder / "packed"


@pytest.fixture
def copy(packed: Path, tmp_path: Path) -> Path:
    """Packed kernels that a test may change."""
    return Path(shutil.copytree(packed, tmp_path / "packed"))


def other_key(key: str) -> str:
    """Of the same kernel and architecture."""
    return key[:RELATED] + key[RELATED:][::-1]


def changed(folder: Path, change: Callable[[Any], None]) -> None:
    for record in folder.glob("*/metadata.json"):
        data = json.loads(record.read_text())
        change(data)
        record.write_text(json.dumps(data))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["plain", "tune"])
@pytest.mark.parametrize("arch", [90, "gfx942"])
def test_a_plain_call_or_a_whole_tuning_in_a_new_process_runs_no_stage(
    run: Run, packed: Path, tmp_path: Path, arch: Any, how: str
) -> None:
    there = used(run, tmp_path / "user", packed, arch, how)

    assert how == "tune" or there.launches == 6
    assert (there.stages, set(there.compiled), there.said) == ([], {True}, [])


@pytest.mark.slow
def test_kernels_from_a_bundle_run_no_stage_either(packed: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "results.whet"
    write_bundle(bundle, MemoryStore(), binaries=FolderBinaries(packed))

    there = used(FRESH, tmp_path / "user", None, WHET_BUNDLE=str(bundle))

    assert (there.launches, there.stages, there.said) == (6, [], [])


def test_without_packed_kernels_all_stages_run(run: Run, tmp_path: Path) -> None:
    there = used(run, tmp_path / "user", None)

    assert {"ttir", "cubin"} <= set(there.stages)
    assert not all(there.compiled)


@pytest.mark.slow
def test_what_was_packed_for_another_architecture_is_not_used(
    run: Run, packed: Path, tmp_path: Path
) -> None:
    assert "cubin" in used(run, tmp_path / "user", packed, arch=80).stages


def damage(folder: Path) -> None:
    for binary in folder.glob("*/cubin"):
        binary.write_bytes(binary.read_bytes()[:-1] + b"\0\0")


def of_another_triton(folder: Path) -> None:
    changed(folder, lambda data: data["metadata"].update(triton="2.0.0"))


def under_other_keys(folder: Path) -> None:
    for one in list(folder.iterdir()):
        one.rename(folder / other_key(one.name))
    changed(folder, lambda data: data.update(key=other_key(data["key"])))
    of_another_triton(folder)


def unloadable(folder: Path) -> None:
    changed(folder, lambda data: data["metadata"]["produced"].update({"not a name": 1}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (damage, "damaged: cubin"),
        (of_another_triton, "with triton 2.0.0"),
        (under_other_keys, "with Triton 2.0.0"),
        pytest.param(unloadable, "not written by Triton", marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_used_is_compiled_normally_and_said_once_a_kernel(
    run: Run, copy: Path, tmp_path: Path, change: Callable[[Path], None], said: str
) -> None:
    change(copy)

    there = used(run, tmp_path / "user", copy)

    assert there.launches == 6
    assert "cubin" in there.stages
    assert all(said in text for text in there.said)
    assert len(set(there.said)) == len(there.said) > 0
    if change is under_other_keys:
        assert [text.partition(" ")[0] for text in there.said] == ["scale", "total"]


def test_a_shelf_packed_under_other_variables_is_said_too(
    run: Run, packed: Path, tmp_path: Path
) -> None:
    there = used(run, tmp_path / "user", packed, DISABLE_PTXAS_OPT="1")

    assert "cubin" in there.stages
    assert "DISABLE_PTXAS_OPT=" in there.said[0]


def test_a_folder_that_is_not_there_is_said_once(run: Run, tmp_path: Path) -> None:
    there = used(run, tmp_path / "user", tmp_path / "nowhere")

    assert there.launches == 6
    [said] = there.said
    assert "a directory" in said


def portable_keys(run: Run, folder: Path, text: str, kernel: str, **more: str) -> list[str]:
    """Of every config for every key on an H200, found in a process of its own."""
    folder.mkdir(parents=True)
    (folder / "kernels.py").write_text(text)
    (folder / "keys.py").write_text(KEYS_OF)
    ran = run(
        [sys.executable, "keys.py", kernel, json.dumps(KEYS)],
        cwd=folder,
        env=environment(folder / "home", **more),
    )
    assert ran.returncode == 0, ran.stderr
    found: list[str] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_keys_are_the_same_in_every_process(tmp_path: Path) -> None:
    one = portable_keys(FRESH, tmp_path / "one", KERNELS, "scale", PYTHONHASHSEED="1")
    moved = "# moved down by a comment\n\n" + KERNELS
    two = portable_keys(FRESH, tmp_path / "an" / "other", moved, "scale", PYTHONHASHSEED="2")

    assert one == two
    assert len(set(one)) == len(one) == 6


@pytest.mark.parametrize(
    ("kernel", "old", "new", "variables"),
    [
        ("scale", "", "", {"DISABLE_PTXAS_OPT": "1"}),
        ("scale", "tl.constexpr(3)", "tl.constexpr(4)", {}),
        ("scale", "x * by", "x * by + 1", {}),
        ("total", "other=0.0", "other=1.0", {}),
    ],
)
def test_another_kernel_or_environment_of_tritons_has_other_keys(
    run: Run, tmp_path: Path, kernel: str, old: str, new: str, variables: dict[str, str]
) -> None:
    one = portable_keys(run, tmp_path / "one", KERNELS, kernel)
    two = portable_keys(run, tmp_path / "two", KERNELS.replace(old, new), kernel, **variables)

    assert not set(one) & set(two)


def test_a_kernel_that_uses_an_object_known_by_name_only_is_not_packed(
    run: Run, tmp_path: Path
) -> None:
    text = KERNELS.replace(
        "SCALE = tl.constexpr(3)", "class Box: pass\nSCALE = tl.constexpr(Box())"
    )
    text = text.replace(", SCALE)", ", 3 if SCALE is None else 2)")

    with pytest.raises(AssertionError, match="NotPortableError: it uses a Box"):
        portable_keys(run, tmp_path / "one", text, "scale")
