"""C functions as targets: what reaches the compiler, and what is refused before it does."""

import numpy as np
import pytest

import whet
from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.status import Status
from whet.engine.target import BenchLimits
from whet.store.memory import MemoryStore

SCALE = "void scale(float *x, int n) { for (int i = 0; i < n; i++) x[i] *= FACTOR; }"


def scale(**changes):
    given = {
        "function": "scale",
        "args": {"x": np.ones(8, np.float32), "n": 8},
        "outputs": ["x"],
        "reference": lambda x, n: 2 * x,
    }
    return whet.native(SCALE, {"FACTOR": [2]}, **{**given, **changes})


def test_parameters_become_macros_and_flags_go_last():
    target = whet.native(
        SCALE,
        {"FACTOR": [2], "ON": [True], "opt": ["-O2 -funroll-loops"]},
        flags=["opt"],
        function="scale",
        args={"x": np.ones(1, np.float32), "n": 1},
    )
    arguments = target.compiler_arguments(target.space.first)
    assert arguments == (
        "-O3", "-march=native", "-DFACTOR=2", "-DON=1", "-O2", "-funroll-loops",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"flags": ["FACTRO"]}, "did you mean 'FACTOR'"),
        ({"function": "no good"}, "not a valid C function name"),
        ({"args": {"x": [1, 2], "n": 2}}, "argument 'x' is a list"),
        ({"args": {"x": np.ones((4, 4))[:, ::2], "n": 2}}, "not contiguous"),
        ({"function": "elsewhere", "args": {"x": np.ones(2), "n": 2**40}}, r"numpy\.int64"),
        ({"outputs": []}, "a reference needs outputs"),
    ],
)
def test_bad_arguments_are_named(changes, message):
    with pytest.raises(UsageError, match=message):
        scale(**changes)


def test_an_output_that_is_no_argument_is_named():
    with pytest.raises(UsageError, match="output 'y' is not an array"):
        whet.tune(scale(outputs=["y"]), store=MemoryStore())


def test_a_missing_file_is_named_with_those_there_are(tmp_path):
    (tmp_path / "scale.c").write_text(SCALE)
    with pytest.raises(UsageError, match=r"did you mean 'scale\.c'"):
        whet.native(tmp_path / "scael.c", {"FACTOR": [2]}, function="scale", args={})


def test_a_missing_compiler_is_named():
    with pytest.raises(UsageError, match="C compiler 'ccc' not found"):
        whet.tune(scale(compiler="ccc"), store=MemoryStore())


@pytest.mark.medium
def test_scalars_of_every_kind_arrive_as_they_are():
    source = """
    #include <stdint.h>
    void pack(double *out, int i, int64_t l, float f, double d, _Bool b, uint8_t u)
    { out[0] = i; out[1] = l; out[2] = f; out[3] = d; out[4] = b; out[5] = u; out[6] = N; }
    """
    given = {
        "out": np.zeros(7),
        "i": -3,
        "l": np.int64(2**40),
        "f": np.float32(0.5),
        "d": 0.25,
        "b": True,
        "u": np.uint8(200),
    }
    target = whet.native(
        source,
        {"N": [7]},
        function="pack",
        args=given,
        outputs=["out"],
        reference=np.array([-3, 2**40, 0.5, 0.25, 1, 200, 7.0]),
    )
    assert whet.tune(target, store=MemoryStore()).best.status is Status.OK


@pytest.mark.medium
def test_a_kernel_that_updates_in_place_is_checked_on_fresh_arguments():
    result = whet.tune(scale(), store=MemoryStore())
    assert result.best.status is Status.OK


@pytest.mark.medium
def test_the_authors_arrays_are_left_alone():
    x = np.ones(8, np.float32)
    whet.tune(scale(args={"x": x, "n": 8}), store=MemoryStore())
    assert (x == 1).all()


@pytest.mark.medium
def test_local_headers_are_found_beside_the_source(tmp_path):
    (tmp_path / "factor.h").write_text("#define FACTOR_OF(x) (2 * (x))\n")
    (tmp_path / "k.c").write_text(
        '#include "factor.h"\nvoid k(float *x, int n) { for (int i = 0; i < n; i++)'
        " x[i] = FACTOR_OF(x[i]) + ZERO; }\n"
    )
    target = whet.native(
        tmp_path / "k.c",
        {"ZERO": [0]},
        function="k",
        args={"x": np.ones(4, np.float32), "n": 4},
        outputs=["x"],
        reference=lambda x, n: 2 * x,
    )
    assert whet.tune(target, store=MemoryStore()).best.status is Status.OK


@pytest.mark.medium
def test_facts_of_the_binary_are_kept():
    result = whet.tune(scale(), store=MemoryStore())
    assert result.best.facts["bytes"] > 1000
    assert len(result.best.facts["sha256"]) == 16


@pytest.mark.medium
def test_build_stages_are_accounted_for():
    work = whet.tune(scale(), store=MemoryStore()).run.cost.work
    assert work["build"] >= work["build.compile"] + work["build.link"] > 0


def test_a_reference_with_the_wrong_number_of_outputs_is_refused():
    with pytest.raises(UsageError, match="2 values for 1 outputs"):
        scale(reference=lambda x, n: (x, x)).bench(BenchLimits())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reference": lambda x: x}, r"reference= of scale raised TypeError: .*argument 'n'"),
        ({"reference": lambda x, n: x / y}, r"raised NameError: .*in test_targets_native.py, line"),  # noqa: F821
        ({"reference": {"y": 1}}, "reference= of scale has 'y', which is no output; .*valid: x"),
        ({"args": lambda: undefined}, "args= of scale raised NameError"),  # noqa: F821
        ({"args": lambda: [1]}, "args= of scale is a list; give a dict"),
    ],
)
def test_a_mistake_in_the_authors_own_functions_is_said_to_be_there(changes, said):
    with pytest.raises(UsageError, match=said):
        scale(**changes).bench(BenchLimits())


def test_a_config_is_a_workload_of_its_own_when_the_problem_changes():
    small, large = scale(), scale(args={"x": np.ones(16, np.float32), "n": 16})
    assert small.workload().id != large.workload().id
    assert dict(small.workload().key) == {"x": "float32[8]", "n": 8}
    assert small.space.first == Config(FACTOR=2)
