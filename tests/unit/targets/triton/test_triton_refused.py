"""Where nothing may be tuned, a config that does not fit the GPU does not end the program."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.runtime.errors import OutOfResources

import whet
from whet.targets.triton import tuning
from whet.testing.fake_triton import FakeTensor, fake_driver, told

BLOCKS = (128, 256, 512)


def kernel() -> Any:
    @triton.jit  # type: ignore[untyped-decorator]
    def double(out, x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)

    configs = [triton.Config({"BLOCK": block}) for block in BLOCKS]
    made: Any = whet.autotune(configs=configs, key=["n"])(double)
    made.whet_timer = told(lambda config: float(config.kwargs["BLOCK"]))
    return made


def call(made: Any, n: int = 4) -> int:
    made[(1,)](FakeTensor([0.0]), FakeTensor([1.0], address=8192), n)
    return int(made.best_config.kwargs["BLOCK"])


@pytest.fixture(autouse=True)
def driver() -> Iterator[Any]:
    with fake_driver() as fake:
        yield fake


@pytest.fixture
def too_large(driver: Any) -> Callable[..., list[int]]:
    """Launches of these blocks are refused, and written down."""

    def refuse(*blocks: int) -> list[int]:
        refused: list[int] = []

        def launch(name: str, arguments: tuple[Any, ...]) -> None:
            if arguments[-1] in blocks:
                refused.append(arguments[-1])
                raise OutOfResources(300_000, 232_448, "shared memory")

        driver.on_launch = launch
        return refused

    return refuse


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["record", "cached"])
def test_the_next_config_that_fits_is_used_and_remembered(
    too_large: Callable[..., list[int]], cold: Any, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(tuning, "say_once", said.append)
    refused = too_large(128, 256)
    made = kernel()
    with whet.mode(mode):
        assert call(made) == 512
        assert call(made) == 512
        assert refused == [128, 256]
        assert call(made, 5) == 512
    assert "BLOCK=128" in said[0]
    assert "'double' needs 300000" in said[0]
    assert "has 232448" in said[0]
    assert made.cache == {}
    with whet.open_store(cold.store) as store:
        assert len(store.missed()) == (2 if mode == "record" else 0)


@pytest.mark.medium
def test_where_none_fits_the_first_refusal_is_raised(too_large: Callable[..., list[int]]) -> None:
    too_large(*BLOCKS)
    with whet.mode("record"), pytest.raises(OutOfResources, match="Required: 300000"):
        call(kernel())


@pytest.mark.medium
def test_a_mode_that_stands_for_the_first_config_keeps_it(
    too_large: Callable[..., list[int]],
) -> None:
    refused = too_large(128)
    with whet.mode("off"), pytest.raises(OutOfResources):
        call(kernel())
    assert refused == [128]


@pytest.mark.medium
def test_a_tuned_config_that_is_refused_is_not_replaced(
    too_large: Callable[..., list[int]],
) -> None:
    with whet.mode("tune"):
        assert call(kernel()) == 128
    too_large(128)
    with whet.mode("cached"), pytest.raises(OutOfResources):
        call(kernel())
