"""What a table says of its configs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_samples import a_table, ok

from whet.core.config import Config
from whet.core.errors import UsageError
from whet.core.space import Space
from whet.core.status import Status
from whet.replay import Build, Optimum, TableOutcome, TableWorkload
from whet.replay.table import Declared, Visits


def workload(*outcomes: TableOutcome) -> TableWorkload:
    return TableWorkload.of({"M": 64}, outcomes)


@pytest.mark.slow
@given(st.lists(st.lists(st.lists(st.integers(1, 10**12), min_size=1))))
def test_a_median_is_over_all_visits(configs: Sequence[Sequence[Sequence[int]]]) -> None:
    medians = Visits.of(configs).medians
    for median, visits in zip(medians, configs, strict=True):
        pooled = [sample for visit in visits for sample in visit]
        if pooled:
            assert median == statistics.median(pooled)
        else:
            assert median != median


def test_samples_taken_in_one_go_stay_together() -> None:
    one = workload(ok((10, 11), (12,)), TableOutcome(), ok((13,)))
    assert [one.samples(at) for at in range(3)] == [((10, 11), (12,)), (), ((13,),)]
    assert [one.median_ns(at) for at in range(3)] == [11, None, 13]


def test_the_optimum_is_the_first_of_the_lowest_medians() -> None:
    one = workload(TableOutcome(Status.BUILD_ERROR), ok((30, 20)), ok((25,)), ok((40,)))
    assert one.optimum == Optimum(1, 25)


def test_an_unclean_time_is_no_optimum_beside_a_clean_one() -> None:
    unclean = ok((5,), quality="host_bound")
    assert workload(unclean, ok((30,))).optimum == Optimum(1, 30)
    assert workload(unclean, TableOutcome()).optimum == Optimum(0, 5)


def test_without_a_measured_config_there_is_no_optimum() -> None:
    assert workload(TableOutcome(), TableOutcome(Status.RUN_TIMEOUT)).optimum is None


@pytest.mark.parametrize(
    "outcome", [TableOutcome(Status.OK), TableOutcome(Status.RUN_ERROR, ((5.0,),))]
)
def test_a_config_has_samples_exactly_where_it_was_measured(outcome: TableOutcome) -> None:
    with pytest.raises(ValueError, match="has no samples, or an unmeasured one has some"):
        workload(outcome)


def test_a_config_is_found_by_its_values() -> None:
    table = a_table()
    assert table.index({"BM": 32}) == 1
    assert table.index(Config(tile=(8, 8), BM=64)) == 2
    assert table.index({"BM": 32.0}) is None


def test_a_workload_is_found_by_its_key_and_described_in_full() -> None:
    table = a_table()
    found = table.workload({"dtype": "f16", "M": 128})
    assert found is table.workloads[1]
    assert str(table.described(found)) == "matmul(M=128, dtype=f16) on Test GPU"
    with pytest.raises(UsageError, match="no workload"):
        table.workload({"M": 1})


def test_a_workload_is_called_by_what_tells_it_from_the_others() -> None:
    table = a_table()
    assert [table.key_text(one) for one in table.workloads] == ["M=64", "M=128"]
    alone = a_table(workloads=table.workloads[:1])
    assert alone.key_text(alone.workloads[0], ",") == "M=64,dtype=f16"


def test_a_list_of_configs_is_its_own_space() -> None:
    table = a_table()
    assert list(table.space) == list(table.configs)


def test_a_space_of_parameters_and_expressions_is_declared_as_such() -> None:
    space = Space({"a": [1, 2, 4], "b": [1, 2]}, ["a % b == 0 and a > 1"])
    declared = Declared.of(space)
    assert declared is not None
    assert declared.space().id == space.id


def test_what_a_file_cannot_say_is_not_declared() -> None:
    assert Declared.of(Space([{"a": 1}, {"a": 2}])) is None
    assert Declared.of(Space({"a": [1, 2]}, lambda a: a > 1)) is None


def test_a_build_keeps_the_first_line_of_its_error_and_no_fact_that_is_none() -> None:
    build = Build(Status.BUILD_ERROR, 0.12344, error="\nno such tile\nTraceback…")
    assert build.error == "no such tile"
    assert build.seconds == 0.1234
    assert build == Build(Status.BUILD_ERROR, 0.1234, error="no such tile")


def test_a_table_refuses_builds_that_are_not_its_configs() -> None:
    with pytest.raises(ValueError, match="3 configs but 1 builds"):
        a_table(builds=(Build(Status.OK),))
