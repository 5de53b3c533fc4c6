"""Triton kernels on the command line: `whet tune` over keys, and `whet run` of a script."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Whet, one_line
from fork_server import ForkServer
from whet.cli.arguments.locate import locate
from whet.cli.arguments.options import read_keys
from whet.cli.commands import demo
from whet.core.errors import UsageError
from whet.testing.fake_triton import FakeTensor, fake_driver, told

pytest.importorskip("triton")

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="the example's tensors are torch's"
)
no_gpu = pytest.mark.skipif(demo.gpu_ready(), reason="there is a GPU")

# 32 is the fastest for n = 64 and 64 for any other; 16, the author's first, is slow.
KERNEL = """
import triton
import triton.language as tl
import whet
from whet.testing.fake_triton import FakeTensor, told

CONFIGS = [triton.Config({"BLOCK": size}) for size in (16, 32, 64)]

def inputs(n, dtype="float32"):
    print("making inputs")
    sizes[:] = [n]
    return (1,), (FakeTensor([0.0], dtype), FakeTensor([0.0], dtype)), {"n": n}

sizes = []

def nanoseconds(config):
    size = config.kwargs["BLOCK"]
    return {16: 4000.0, 32: 1000.0 if sizes == [64] else 3000.0, 64: 2000.0}[size]

@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)

"""
TUNED = """
tuned = whet.autotune(CONFIGS, key=["n"], inputs=inputs)(copy)
tuned.whet_timer = told(nanoseconds)
"""


@pytest.fixture
def _gpu(binaries: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(binaries))
    with fake_driver():
        yield


def write(text: str = TUNED) -> None:
    Path("kernel.py").write_text(KERNEL + text)


def test_a_typed_key_is_names_with_numbers_words_and_texts() -> None:
    keys = read_keys(["M=4096, N=0.5,fast=true,bias=none,dtype=float16", "M=1"], None)
    assert keys == [
        {"M": 4096, "N": 0.5, "fast": True, "bias": None, "dtype": "float16"},
        {"M": 1},
    ]


def test_keys_from_a_file_come_after_typed_ones() -> None:
    Path("keys.json").write_text('[{"M": 2}, {"M": 3}]')
    assert read_keys(["M=1"], "keys.json") == [{"M": 1}, {"M": 2}, {"M": 3}]


@pytest.mark.parametrize("text", ["", "M", "M=", "=3", "M=1,", "M=1 N=2;3=4,5", "1M=2"])
def test_a_key_that_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="M=4096,N=4096"):
        read_keys([text], None)


def test_a_name_that_comes_twice_in_a_key_is_refused() -> None:
    with pytest.raises(UsageError, match="'M' twice"):
        read_keys(["M=1,M=2"], None)


@pytest.mark.parametrize("text", ["{", '{"M": 1}', "[]", "[1]", "\xff"])
def test_a_file_without_a_list_of_keys_is_refused_by_its_name(text: str) -> None:
    Path("keys.json").write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=r"keys\.json is not"):
        read_keys([], "keys.json")


def test_a_missing_file_of_keys_is_named() -> None:
    with pytest.raises(UsageError, match=r"cannot read the keys in keys\.json: No such file"):
        read_keys([], "keys.json")


def test_a_decorated_kernel_is_found_without_a_gpu() -> None:
    write()
    assert locate("kernel.py:tuned").name == "copy"
    assert locate("kernel.py").name == "copy"


def test_a_kernel_below_heuristics_is_found() -> None:
    write(TUNED + "chosen = triton.heuristics({})(tuned)\n")
    assert locate("kernel.py:chosen").name == "copy"


def test_a_kernel_without_configs_says_how_it_would_be_tuned(whet: Whet) -> None:
    write("")
    assert "whet.autotune(…, inputs=…)" in one_line(whet("tune", "kernel.py:copy"))


@pytest.mark.medium
@pytest.mark.usefixtures("_gpu")
def test_one_key_ends_in_the_usual_summary(whet: Whet) -> None:
    write()
    ran = whet("tune", "kernel.py:tuned", "--key", "n=64", "--store", "s.db", "-q")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("copy")
    assert "n=64" in ran.out
    assert "BLOCK=32" in ran.out
    assert "4.00× as fast" in ran.out
    assert "whet best copy --store s.db" in ran.out
    assert "making inputs" not in ran.out
    assert ran.widest <= 80


@pytest.mark.medium
@pytest.mark.usefixtures("_gpu")
def test_several_keys_end_in_a_table_of_them(whet: Whet) -> None:
    write()

    ran = whet("tune", "kernel.py:tuned", "--key", "n=64", "--key", "n=65", "--store", "s.db")

    assert ran.code == 0, ran.err
    head, one, two = ran.out.splitlines()[:3]
    assert head.split() == ["key", "median", "speed-up", "tried", "best"]
    assert one.split()[:5] == ["n=64", "1.00", "µs", "4.00×", "3/3"]
    assert "BLOCK=32" in one
    assert two.split()[:5] == ["n=65", "2.00", "µs", "2.00×", "3/3"]
    assert "BLOCK=64" in two
    assert ran.err.count("tuning copy") == 2
    assert ran.widest <= 80


@pytest.mark.medium
@pytest.mark.usefixtures("_gpu")
def test_as_json_every_key_has_its_result_and_a_later_call_finds_it(whet: Whet) -> None:
    write()
    Path("keys.json").write_text('[{"n": 64}, {"n": 65, "dtype": "float16"}]')
    arguments = ("tune", "kernel.py:tuned", "--keys", "keys.json", "--store", "s.db", "--json")
    ran, again = whet(*arguments), whet(*arguments)
    found = json.loads(ran.out)
    assert (found["v"], found["kernel"]) == (1, "copy")
    assert [one["best"]["config"]["BLOCK"] for one in found["keys"]] == [32, 64]
    assert found["keys"][1]["workload"]["key"]["x_ptr.dtype"] == "torch.float16"
    assert [one["source"] for one in json.loads(again.out)["keys"]] == ["stored", "stored"]


@pytest.mark.medium
@pytest.mark.usefixtures("_gpu")
def test_a_call_of_the_kernel_in_a_program_finds_what_was_tuned(whet: Whet) -> None:
    write()
    whet("tune", "kernel.py:tuned", "--key", "n=64", "--store", "s.db", "-q")
    kernel = locate("kernel.py:tuned").tuner
    grid, args, keywords = kernel.whet_inputs(n=64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHET_STORE", "s.db")
        kernel[grid](*args, **keywords)
    assert kernel.whet_result.source == "stored"
    assert kernel.best_config.kwargs == {"BLOCK": 32}


@pytest.mark.medium
@pytest.mark.usefixtures("_gpu")
def test_flags_reach_the_kernel_and_leave_the_environment_alone(whet: Whet) -> None:
    write()
    before = dict(os.environ)
    ran = whet(
        *("tune", "kernel.py:tuned", "--key", "n=64", "--json", "-q"),
        *("--budget", "2trials", "--seed", "5", "--search", "random", "--store", ":memory:"),
    )
    (found,) = json.loads(ran.out)["keys"]
    assert (found["trials"], found["seed"], found["search"]) == (2, 5, "random")
    assert dict(os.environ) == before


@pytest.mark.slow
@pytest.mark.usefixtures("_gpu")
def test_inputs_that_need_no_key_get_none(whet: Whet) -> None:
    write(TUNED.replace("inputs=inputs", "inputs=lambda n=64: inputs(n)"))
    ran = whet("tune", "kernel.py:tuned", "--store", ":memory:", "-q")
    assert ran.code == 0, ran.err
    assert "BLOCK=32" in ran.out


@pytest.mark.usefixtures("_gpu")
@pytest.mark.parametrize(
    ("decorated", "keys", "message"),
    [
        (TUNED, ["m=1"], "takes no 'm'; valid: n, dtype"),
        (TUNED, ["n=1", "n=1,dtpe=x"], "takes no 'dtpe'; did you mean 'dtype'?"),
        (TUNED, [], "a key is required for kernel 'copy'; give --key n=…"),
        (TUNED, ["dtype=float16"], "the key dtype=float16 lacks n for kernel 'copy'"),
        (TUNED.replace("=inputs", "=lambda n: 1 / 0"), ["n=1"], "ZeroDivisionError"),
        (TUNED.replace("inputs=", "rep=9, inputs="), ["n=1"], "remove do_bench, warmup and rep"),
        (TUNED, ["n"], "--key 'n' is not valid"),
    ],
)
@pytest.mark.filterwarnings("ignore:warmup, rep:DeprecationWarning")
def test_what_is_wrong_with_inputs_or_keys_is_one_line(
    whet: Whet, decorated: str, keys: list[str], message: str
) -> None:
    write(decorated)
    typed = [part for key in keys for part in ("--key", key)]
    assert message in one_line(whet("tune", "kernel.py:tuned", *typed, "-q"))


@no_gpu
def test_without_a_gpu_the_line_says_what_is_missing(whet: Whet) -> None:
    write()
    assert "no GPU" in one_line(whet("tune", "kernel.py:tuned", "--key", "n=64"))


def test_a_tunable_that_is_no_triton_kernel_takes_no_key(whet: Whet) -> None:
    Path("kernel.py").write_text(
        'import whet\nf = whet.function(lambda a: a, {"a": [1, 2]}, name="f")\n'
    )
    assert "takes no --key" in one_line(whet("tune", "kernel.py:f", "--key", "n=64"))


def tune_with_trouble_at_65(whet: Whet, trouble: str, *keys: str) -> Any:
    hook = f"""
def refuse(named, reset_only=False):
    from whet.core.errors import HostFailure
    if named["n"] == 65 and not reset_only:
        raise {trouble}
"""
    write(hook + TUNED.replace("inputs=", "pre_hook=refuse, inputs="))
    asked = [part for key in keys for part in ("--key", key)]
    return whet("tune", "kernel.py:tuned", *asked, "--store", ":memory:", "--json", "-q")


@pytest.mark.medium
@pytest.mark.usefixtures("_gpu")
def test_a_key_for_which_nothing_works_does_not_keep_others_from_being_tuned(whet: Whet) -> None:
    ran = tune_with_trouble_at_65(whet, 'RuntimeError("not this number")', "n=65", "n=64")
    assert ran.code == 1
    assert len(json.loads(ran.out)["keys"]) == 1
    assert "n=65: no config" in ran.err
    assert "not this number" in ran.err


@pytest.mark.medium
@pytest.mark.usefixtures("_gpu")
def test_a_machine_that_runs_out_of_space_does_not_take_what_other_keys_found(whet: Whet) -> None:
    full = 'HostFailure("there is no space; free some")'
    ran = tune_with_trouble_at_65(whet, full, "n=64", "n=65")
    assert ran.code == 1
    assert len(json.loads(ran.out)["keys"]) == 1
    assert "n=65: there is no space; free some" in ran.err


@no_gpu
@needs_torch
def test_the_demo_in_triton_can_be_located_and_needs_a_gpu(whet: Whet) -> None:
    example = demo.example_file("matmul_triton.py")
    assert "no GPU" in one_line(whet("tune", f"{example}:matmul_fp16", "--key", "M=64,N=64,K=64"))


class UntimedProduct(demo.TritonProduct):
    """Really compiled, for two of the example's configs; times are told, the larger block's less.

    A tensor of the device's is a number here, and torch takes 200 µs.
    """

    def __init__(self, n: int) -> None:
        super().__init__(n)
        tuner = self._kernel.tuner
        tuner.configs = [tuner.configs[0], tuner.configs[6]]
        tuner.whet_check = None
        tuner.whet_inputs = self.inputs
        tuner.whet_timer = told(lambda config: 4e9 / config.kwargs["BLOCK_M"] ** 2)

    @staticmethod
    def inputs(M: int, N: int, K: int) -> Any:  # noqa: N803
        a, b, c = (FakeTensor([0.0], "float16") for _ in range(3))
        return (1,), (a, b, c, M, N, K, K, N, N)

    def rival_seconds(self) -> float:
        return 200e-6


@pytest.mark.slow
@needs_torch
@pytest.mark.usefixtures("_gpu")
def test_on_a_gpu_the_demo_is_in_triton_and_held_against_torch(
    whet: Whet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "gpu_ready", lambda: True)
    monkeypatch.setattr(demo, "TritonProduct", UntimedProduct)
    told_all = whet("demo", "--store", "s.db", "-q")
    as_json = json.loads(whet("demo", "--store", "s.db", "-q", "--json").out)
    assert told_all.code == 0, told_all.err
    for part in ("Triton, 4096 × 4096 × 4096", "563 TFLOP/s", "4.00× the first, 82 % of torch"):
        assert part in told_all.out
    assert told_all.widest <= 80
    assert as_json["source"] == "stored"
    assert as_json["demo"]["torch_tflops"] == pytest.approx(687.2, abs=0.1)


@pytest.mark.slow
def test_the_demo_is_in_c_when_asked(whet: Whet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "gpu_ready", lambda: True)
    ran = whet("demo", "--cpu", "--n", "16", "--budget", "1trials", "--store", ":memory:", "-q")
    assert ran.code == 0, ran.err
    assert "in C, 16 × 16 × 16" in ran.out


def test_the_help_of_run_says_what_goes_where_on_a_page(whet: Whet) -> None:
    ran = whet("run", "--help")
    assert ran.out.startswith("Usage: whet run [OPTIONS] SCRIPT.py [ARGS]...")
    assert ran.widest <= 80


def command(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    return subprocess.run(
        [sys.executable, "-m", "whet", *arguments],
        env={**os.environ, "PYTHONPATH": path, **environ},
        capture_output=True,
        text=True,
    )


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return command("run", *arguments, **environ)


@pytest.mark.slow
def test_a_script_runs_as_main_with_its_own_arguments_and_whets_autotune() -> None:
    Path("folder").mkdir()
    Path("folder/neighbour.py").write_text("here = True\n")
    Path("folder/script.py").write_text(
        "import json, os, sys, triton, neighbour\n"
        "print(json.dumps([__name__, sys.argv, triton.autotune.__module__, sys.path[0],\n"
        "    os.environ['WHET_STORE'], os.environ['WHET_JOBS']]))\n"
        "sys.exit(7)\n"
    )

    done = run("--store", "s.db", "--jobs", "2", "folder/script.py", "--store", "x", "--", "-m")

    assert done.returncode == 7, done.stderr
    name, argv, module, first, store, jobs = json.loads(done.stdout)
    assert name == "__main__"
    assert argv == ["folder/script.py", "--store", "x", "--", "-m"]
    assert module == "whet.targets.triton.decorator"
    assert Path(first) == Path("folder").resolve()
    assert (Path(store), jobs) == (Path("s.db").absolute(), "2")


@pytest.mark.slow
def test_a_module_runs_as_main_and_what_it_raises_is_pythons_to_report() -> None:
    Path("package").mkdir()
    Path("package/__init__.py").write_text("import triton\nfound = triton.autotune.__module__\n")
    Path("package/job.py").write_text(
        "import sys\nfrom package import found\n"
        "print(__name__, sys.argv[1:], found)\nraise ValueError('of the script')\n"
    )
    done = run("-m", "package.job", "--size", "3")
    assert done.returncode == 1
    assert done.stdout == "__main__ ['--size', '3'] whet.targets.triton.decorator\n"
    assert done.stderr.splitlines()[-1] == "ValueError: of the script"
    assert "Traceback" in done.stderr


@pytest.mark.slow
def test_a_script_that_ends_with_a_text_says_it_and_fails() -> None:
    Path("script.py").write_text("import sys\nsys.exit('no data')\n")
    done = run("--", "script.py")
    assert (done.returncode, done.stderr) == (1, "no data\n")


LIBRARY = """
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner

CONFIGS = [triton.Config({"BLOCK": block}) for block in (16, 32)]


class Cached(Autotuner):
    def run(self, *args, **kwargs):
        return super().run(*args, **kwargs)


class Odd(Autotuner):
    configs = ()


@triton.jit
def double(out, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def of(kind):
    return kind(double, double.arg_names, CONFIGS, ["n"], None, None)
"""

SCRIPT = """
import sys
import triton
from library import CONFIGS, Cached, Odd, double, of
from whet.testing.fake_triton import FakeTensor, fake_driver, told

mine = triton.autotune(CONFIGS, key=["n"])(double)
cached, odd = of(Cached), of(Odd)
with fake_driver():
    mine.whet_timer = told(lambda config: 1000.0 - config.kwargs["BLOCK"])
    mine[(1,)](FakeTensor([0.0]), FakeTensor([1.0], address=8192), 4)
print("done")
sys.exit(3)
"""


@pytest.mark.medium
def test_a_report_lists_every_autotuner_and_what_it_cost(fork_server: ForkServer) -> None:
    Path("library.py").write_text(LIBRARY)
    Path("script.py").write_text(SCRIPT)

    words = ["run", "--report", "--store", "s.db", "script.py"]
    done = fork_server.run(
        [sys.executable, "-m", "whet", *words],
        cwd=Path.cwd(),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "80"},
    )

    assert done.returncode == 3, done.stderr
    lines = done.stdout.splitlines()
    assert (lines[0], lines[2].split()) == ("done", ["library.py"])
    assert lines[3].split()[:4] == ["double", "18", "whet", "1"]
    assert sorted(lines[5:11:3]) == [
        "not called (Odd):",
        "not called (whet in Cached):",
    ]
    assert lines[6] == lines[9] == "  library.py: double:18"
    assert "Odd defines configs" in lines[11]
    assert lines[12].startswith(
        "3 autotuners, 2 tuned by whet and 1 left alone; 1 called with 1 key"
    )
    assert max(map(len, done.stdout.splitlines())) <= 80


INTERPRETED = """
import torch, triton, whet
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": block}) for block in (64, 128)], key=["n"])
@triton.jit
def double(y, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, at < n), at < n)

def by_triton(x):
    y = torch.empty_like(x)
    double[lambda meta: (triton.cdiv(len(x), meta["BLOCK"]),)](y, x, len(x))
    return y

twice = whet.choice({"torch": lambda x: x + x, "triton": by_triton}, name="twice", budget="2s")
twice(torch.ones(100))
"""


@pytest.mark.slow
def test_under_the_interpreter_nothing_is_tuned_and_a_choice_says_whose_times_it_has() -> None:
    pytest.importorskip("torch")
    Path("script.py").write_text(INTERPRETED)
    done = run("--report", "--store", "s.db", "script.py", TRITON_INTERPRET="1")
    shown = command("show", "twice", "--store", "s.db")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "double 5 – 1 – 1 autotuner; TRITON_INTERPRET" in said
    assert "tuned by whet" not in said
    assert "Triton's interpreter" in shown.stdout, shown.stderr


@pytest.mark.medium
def test_under_the_interpreter_nobody_is_sent_to_tune_without_unsetting_it(
    whet: Whet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    ran = whet("show", "double", "--store", "s.db")
    assert "unset it, and use 'whet tune'" in ran.err


@pytest.mark.slow
def test_a_report_of_a_script_without_kernels_says_so() -> None:
    Path("script.py").write_text("print('done')\n")
    done = run("--report", "script.py")
    assert done.stdout.startswith("done\nno kernel")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.py",), "no such script: nowhere.py"),
        (("-m", "nowhere_at_all"), "no such module: nowhere_at_all"),
        ((".",), "is a directory"),
        ((), "missing argument 'SCRIPT.py'"),
        (("--jobs", "0", "nowhere.py"), "jobs = '0' (flag --jobs)"),
        (("--stor", "s.db", "nowhere.py"), "did you mean --store?"),
    ],
)
def test_a_run_that_cannot_begin_is_one_line(
    whet: Whet, arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.targets.triton.install.install", lambda: None)
    assert message in one_line(whet("run", *arguments))


@pytest.mark.slow
def test_a_module_that_its_package_does_not_have_is_one_line() -> None:
    done = run("-m", "json.nowhere")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(": json.nowhere")
    assert "Traceback" not in done.stderr


@pytest.mark.medium
@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "script.py"],
        ["tune", "kernel.py:k"],
        ["precompile", "kernel.py:k", "--arch", "sm_90"],
        ["export", "triton", "kernel.py:k"],
    ],
)
def test_without_triton_one_line_says_how_to_install_it(arguments: list[str]) -> None:
    Path("hidden").mkdir()
    Path("hidden/sitecustomize.py").write_text("import sys\nsys.modules['triton'] = None\n")
    Path("script.py").write_text("print('ran')\n")
    Path("kernel.py").write_text("import whet\n\nk = whet.autotune([], [])\n")
    path = os.pathsep.join([str(Path("hidden").absolute()), *filter(None, sys.path)])
    done = command(*arguments, PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "pip install triton" in done.stderr
