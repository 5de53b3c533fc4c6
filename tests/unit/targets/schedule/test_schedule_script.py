"""What a script leaves open is a space, and what is wrong with it has a place."""

import numpy as np
import pytest

import whet
from whet.core.config import Config
from whet.core.errors import UsageError
from whet.targets.schedule.payloads import matmul

pytest.importorskip("torch_mlir", reason="schedules need torch-mlir: pip install '.[mlir]'")

HEAD = """\
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op {transform.consumed}) {
"""
TAIL = """
    transform.yield
  }
}
"""
KNOB = '    %t = transform.tune.knob<"t"> options = [8, 16] -> !transform.param<i64>\n'


def script(*lines):
    return HEAD + "".join(lines) + TAIL


def target(text, **more):
    return whet.schedule(matmul(16, 16, 16), text, **more)


def test_numbers_and_structure_are_one_space():
    space = target(
        script(
            KNOB,
            '    transform.tune.alternatives<"way"> { transform.yield }, {\n',
            '      %u = transform.tune.knob<"u"> options = ["a", "b"] -> !transform.any_param\n',
            "    }\n",
            '    transform.tune.alternatives<"fuse"> attributes {whet.names = ["in", "out"]}',
            " { transform.yield }, { transform.yield }",
        )
    ).space
    assert {one.name: one.values for one in space.parameters} == {
        "t": (8, 16),
        "way": (0, 1),
        "u": ("a", "b"),
        "fuse": ("in", "out"),
    }
    assert space.count == 16


def test_what_the_script_has_selected_is_no_parameter():
    fixed = '    %f = transform.tune.knob<"f"> = 2 from options = [1, 2] -> !transform.param<i64>\n'
    assert target(script(KNOB, fixed)).space.names == ("t",)


def test_constraints_hold_for_what_the_script_leaves_open():
    assert list(target(script(KNOB), constraints=["t > 8"]).space) == [Config(t=16)]


@pytest.mark.medium
def test_comments_and_layout_do_not_change_the_workload():
    plain, other = script(KNOB), script("    // why\n\n", KNOB)
    assert target(plain).workload().id == target(other).workload().id
    changed = script(KNOB.replace("16", "32"))
    assert target(plain).workload().id != target(changed).workload().id


@pytest.mark.medium
def test_another_size_is_another_key_of_the_same_source():
    small, large = (whet.schedule(matmul(n, n, n)).workload() for n in (16, 32))
    assert small.fingerprint == large.fingerprint
    assert small.id != large.id


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (script(KNOB, "    transform.nonsense"), r"^script:4:5: .*'transform\.nonsense'"),
        (script(KNOB.replace("options", "choices")), r"^script:3:\d+: .*expected 'options'"),
        (script(KNOB.replace("[8, 16]", "8")), r"^script:3:10: 't': its options are not a list"),
        (
            script(KNOB, KNOB.replace("%t", "%u").replace("16", "32")),
            r"^script:4:10: 't' has other values here than at script:3:10",
        ),
        (
            script('    transform.tune.alternatives<"w"> attributes {whet.names = ["a"]} {}, {}'),
            r"^script:3:5: 'w': whet\.names has 1 names for 2 regions",
        ),
        (
            script(
                KNOB,
                '    transform.tune.alternatives<"w"> {\n',
                "      transform.apply_patterns.canonicalization\n    }, {}",
            ),
            r"^script:5:7: transform\.apply_patterns\.canonicalization is no step of its own",
        ),
        (
            script(
                KNOB,
                '    transform.tune.alternatives<"w"> {\n',
                "      %one = arith.constant 1 : index\n    }, {}",
            ),
            r"^script:5:14: arith\.constant is no step of a schedule",
        ),
        ("module {\n}", "no transform.named_sequence @__transform_main; it has no sequence"),
    ],
)
def test_a_wrong_script_is_refused_where_it_is_wrong(text, message):
    with pytest.raises(UsageError, match=message) as refused:
        target(text)
    assert "\n" not in str(refused.value)


def test_a_script_that_leaves_nothing_open_is_one_config():
    fixed = target(script())
    assert [dict(one) for one in fixed.space] == [{"script": "fixed"}]
    assert fixed.steps()[-1].problem == ""


OLD = """\
transform.sequence failures(propagate) {
^bb0(%arg0: !transform.any_op):
  %found = transform.structured.match ops{["linalg.matmul"]} in %arg0
    : (!transform.any_op) -> !transform.any_op
  %loops, %tile = transform.structured.tile %found [8] // not transform.structured.fuse
}
"""


def test_an_old_script_is_explained_with_what_is_written_today():
    with pytest.raises(UsageError) as refused:
        target(OLD)
    said = str(refused.value).split("; script:")
    assert said[0].startswith(
        "script:1:1: transform.sequence is outdated; write transform.named_sequence @__transform"
    )
    [second] = said[1:]
    assert second.startswith("5:19: transform.structured.tile ")
    assert second.endswith("write transform.structured.tile_using_for")


MATCH = """\
    %found = transform.structured.match ops{["linalg.matmul"]} in %root
      : (!transform.any_op) -> !transform.any_op
"""
PACK = """\
    %packed = transform.structured.pack %found packed_sizes = [8, 8, 0]
      {whet.set = {static_packed_sizes = ["t", 4, 0]}}
      : (!transform.any_op) -> !transform.op<"linalg.generic">
"""


@pytest.mark.medium
def test_a_knob_decides_an_attribute_where_the_operation_takes_no_parameter():
    steps = target(script(KNOB, MATCH, PACK)).steps(Config(t=16))
    assert "inner_tiles = [16, 4]" in steps[-1].ir


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (PACK.replace('["t"', '["u"'), r"^script:6:15: whet\.set: no knob is called 'u'"),
        (
            PACK.replace("{static_packed", "{packed"),
            r"^script:6:15: whet\.set: there is no attribute 'packed_sizes'; did you mean 'static",
        ),
    ],
)
def test_a_setting_of_what_is_not_there_is_refused(line, message):
    with pytest.raises(UsageError, match=message):
        target(script(KNOB, MATCH, line))


def constrained(*constraints):
    listed = ", ".join(f'"{one}"' for one in constraints)
    return script(KNOB).replace("sequence}", f"sequence, whet.constraints = [{listed}]}}", 1)


def test_a_script_says_which_configs_make_sense():
    assert list(target(constrained("{m} % t == 0", "t < {n}")).space) == [Config(t=8)]


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (
            "{q} % t == 0",
            r"^script: whet\.constraints: 'q' is no size of the payload; its sizes are m",
        ),
        ("t < u", r"^script: whet\.constraints: .*u"),
    ],
)
def test_a_constraint_of_something_else_is_refused(constraint, message):
    with pytest.raises(UsageError, match=message):
        target(constrained(constraint))


def test_threads_are_a_number_and_part_of_the_key():
    one, two = (target(script(KNOB), threads=n).workload() for n in (1, 2))
    assert dict(two.key) == {**one.key, "threads": 2}
    assert target(script(KNOB), threads=None).threads >= 1
    with pytest.raises(UsageError, match="threads=0; give a number from 1 to"):
        target(script(KNOB), threads=0)


def test_a_file_is_looked_for_beside_the_caller():
    with pytest.raises(UsageError, match=r"no such script: .*nowhere\.mlir"):
        target("nowhere.mlir")


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("a", np.ones((16, 8), np.float32), "'a' must be a contiguous float32 array of 16x16"),
        ("b", np.ones((16, 16)), "'b' must be a contiguous float32 array"),
        ("d", np.ones(1), "'d' is not an array of matmul; valid: a, b, c"),
    ],
)
def test_arrays_that_do_not_fit_the_payload_are_refused(name, array, message):
    arrays = {**matmul(16, 16, 16).arguments(), name: array}
    with pytest.raises(UsageError, match=message):
        target(script(KNOB), args=arrays)
