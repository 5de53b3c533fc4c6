import warnings
from typing import Any

import pytest

from whet.autotuner.configs import (
    FP8_GEMM_CONFIGS,
    GATED_MLP_CONFIGS,
    RMSNORM_ROPE_CONFIGS,
    filter_valid_configs,
    generate_configs,
    get_default_config,
)
from whet.core.errors import UsageError
from whet.core.space import Space
from whet.kernels.spaces import FP8_GEMM_SPACE, GATED_MLP_SPACE

SPACES = {
    "rmsnorm_rope": RMSNORM_ROPE_CONFIGS,
    "gated_mlp": GATED_MLP_CONFIGS,
    "fp8_gemm": FP8_GEMM_CONFIGS,
}


def test_configs_are_all_combinations_with_the_last_parameter_fastest() -> None:
    assert generate_configs({"a": [1, 2], "b": ["x", "y"]}) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


@pytest.mark.parametrize(
    ("space", "named"),
    [({}, "empty"), ({"a": []}, "'a'"), ({"a": 3}, "'a'"), ({"a": "64"}, "'a'"), ([1], "list")],
)
def test_a_space_that_cannot_be_is_refused_by_name(space: Any, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        generate_configs(space)


@pytest.mark.parametrize("kernel_type", SPACES)
def test_a_default_config_is_one_of_its_space(kernel_type: str) -> None:
    assert get_default_config(kernel_type) in generate_configs(SPACES[kernel_type])


@pytest.mark.parametrize(
    ("space", "configs"),
    [(GATED_MLP_SPACE, GATED_MLP_CONFIGS), (FP8_GEMM_SPACE, FP8_GEMM_CONFIGS)],
)
def test_a_space_has_every_parameter_of_its_kernel(
    space: Space, configs: dict[str, list[Any]]
) -> None:
    assert [*configs] == [*space.names]


@pytest.mark.parametrize("space", [GATED_MLP_CONFIGS, FP8_GEMM_CONFIGS])
def test_a_short_product_has_configs(space: dict[str, list[Any]]) -> None:
    assert filter_valid_configs(generate_configs(space), M=64, N=64, K=64)


def test_changing_a_default_does_not_change_the_next_one() -> None:
    get_default_config("fp8_gemm")["BLOCK_M"] = 0
    assert get_default_config("fp8_gemm")["BLOCK_M"] > 0


def test_an_unknown_kernel_type_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(ValueError, match=r"'fp8_gem'; did you mean 'fp8_gemm'\?"):
        get_default_config("fp8_gem")


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_without_dimensions_every_config_of_a_space_is_kept(space: dict[str, list[Any]]) -> None:
    configs = generate_configs(space)
    assert filter_valid_configs(configs) == configs


@pytest.mark.parametrize(
    ("block", "dimension"),
    [
        ("BLOCK_SIZE", "hidden_dim"),
        ("BLOCK_M", "M"),
        ("BLOCK_N", "N"),
        ("BLOCK_N", "intermediate_dim"),
        ("BLOCK_K", "K"),
        ("BLOCK_K", "hidden_dim"),
    ],
)
def test_a_block_longer_than_its_dimension_rounded_up_is_dropped(
    block: str, dimension: str
) -> None:
    configs = [{block: 64}, {block: 128}, {block: 256}]
    assert filter_valid_configs(configs, **{dimension: 100}) == [{block: 64}, {block: 128}]


def test_a_dimension_that_is_a_power_of_two_allows_a_block_of_its_length() -> None:
    configs = [{"BLOCK_SIZE": 128}, {"BLOCK_SIZE": 256}]
    assert filter_valid_configs(configs, hidden_dim=128) == [{"BLOCK_SIZE": 128}]


def test_the_shortest_of_two_dimensions_decides() -> None:
    configs = [{"BLOCK_N": 32}, {"BLOCK_N": 64}]
    assert filter_valid_configs(configs, N=64, intermediate_dim=32) == [{"BLOCK_N": 32}]


def test_a_matrix_of_one_row_keeps_the_smallest_tile() -> None:
    kept = filter_valid_configs(generate_configs(FP8_GEMM_CONFIGS), M=1, N=4096, K=4096)
    assert {config["BLOCK_M"] for config in kept} == {16}


def test_a_block_that_is_no_power_of_two_is_dropped() -> None:
    configs: list[dict[str, Any]] = [
        {"BLOCK_M": 96},
        {"BLOCK_M": 0},
        {"BLOCK_M": 64.0},
        {"BLOCK_M": 64},
    ]
    assert filter_valid_configs(configs) == [{"BLOCK_M": 64}]


def test_parameters_that_are_no_blocks_do_not_matter() -> None:
    configs = [{"num_warps": 3, "whatever": 1000}]
    assert filter_valid_configs(configs, M=1, N=1, K=1, hidden_dim=1) == configs


def test_dropping_everything_warns_and_says_why() -> None:
    with pytest.warns(UserWarning, match="BLOCK_SIZE=1024 is longer than 64"):
        assert filter_valid_configs([{"BLOCK_SIZE": 1024}], hidden_dim=64) == []


def test_filtering_nothing_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert filter_valid_configs([], M=1) == []


def test_a_filtered_config_is_a_copy() -> None:
    config = {"BLOCK_M": 64}
    filter_valid_configs([config])[0]["BLOCK_M"] = 1
    assert config == {"BLOCK_M": 64}


@pytest.mark.parametrize("length", [0, -1, 1.5, True])
def test_a_dimension_that_cannot_be_is_refused_by_name(length: Any) -> None:
    with pytest.raises(UsageError, match="hidden_dim"):
        filter_valid_configs([{"BLOCK_SIZE": 64}], hidden_dim=length)
