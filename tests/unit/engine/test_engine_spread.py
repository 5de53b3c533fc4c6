"""A bench over many devices: what it shares out, what it leaves out, what a loss costs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest

from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.frozen import FrozenMap
from whet.core.status import Status
from whet.engine.executors.calibration import KeptAgreement
from whet.engine.executors.protocol import SeatFacts, SeatLostError
from whet.engine.executors.spread import NoDeviceLeftError, SpreadBench
from whet.measure import Reading
from whet.measure.bench.protocol import Answer, Sampled, Visit
from whet.testing.fakes import FakeDevice, NoiseModel


class FakeBench:
    """`dies_after` visits it is lost; configs in `fails` fail on it."""

    in_process = False

    def __init__(
        self, name: str, factor: float = 1.0, dies_after: int | None = None, drift: float = 0.0
    ) -> None:
        self.name = name
        self.factor = factor
        self.dies_after = dies_after
        self.drift = drift
        self.device = FakeDevice(NoiseModel(gaussian=0.002), seed=hash(name) % 1000)
        self.looked: list[Config] = []
        self.rounds = 0
        self.forgotten: list[Config] = []
        self.closed = False

    def measure(self, visit: Visit) -> tuple[Answer, ...]:
        if self.dies_after is not None:
            if self.dies_after == 0:
                raise SeatLostError(self.name, "power cut")
            self.dies_after -= 1
        self.rounds += 1
        time.sleep(0.003 * len(visit.built))  # so that all of them get something to do
        answers: list[Answer] = []
        configs = {config.id: config for config, _ in visit.built}
        for config in configs.values():
            if visit.first:
                self.looked.append(config)
            if config["ns"] == 0:
                answers.append(ConfigFailure(Status.RUN_ERROR, "does not run"))
                continue
            ns = float(config["ns"]) * self.factor * (1 + self.drift * self.rounds)  # type: ignore[arg-type]
            reading = Reading(self.device.sample(ns, visit.samples), 1, "fake")
            answers.append(Sampled(reading, FrozenMap({"measure": 0.0})))
        return tuple(answers)

    def forget(self, config: Config) -> None:
        self.forgotten.append(config)

    def end_call(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> FakeBench:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class FakeSeat:
    remote = False

    def __init__(self, name: str) -> None:
        self.name = name

    def facts(self) -> SeatFacts:
        return SeatFacts("here")

    def session(self, factory: object, mode: str = "spawn", *, preload: Sequence[str] = ()) -> None:
        raise NotImplementedError


class Rack:
    def __init__(self, benches: Mapping[str, FakeBench], **options: object) -> None:
        self.benches = dict(benches)
        self.said: list[str] = []
        self.kept: list[KeptAgreement] = []
        self.bench = SpreadBench(
            lambda: [FakeSeat(name) for name in self.benches],  # type: ignore[misc]
            lambda seat: self.benches[seat.name],
            self.said.append,
            keep=self.kept.append,
            **options,  # type: ignore[arg-type]
        )

    def look(self, times: Sequence[int]) -> dict[int, Answer]:
        configs = [Config({"ns": ns}) for ns in times]
        visit = Visit(tuple((config, None) for config in configs), 2, first=True)
        return dict(zip(times, self.bench.measure(visit), strict=True))


TIMES = [10_000 + 100 * n for n in range(40)]


def ns_of(answer: Answer) -> float:
    assert isinstance(answer, Sampled)
    return min(answer.reading.samples)


@pytest.mark.medium
def test_first_looks_are_shared_out_and_every_config_has_its_own_answer() -> None:
    many = Rack({str(n): FakeBench(str(n)) for n in range(4)})
    found = many.look(TIMES)
    assert all(ns_of(found[ns]) == pytest.approx(ns, rel=0.03) for ns in TIMES)
    looked = [len(bench.looked) for bench in many.benches.values()]
    assert all(count > 3 for count in looked)  # beyond the control
    assert many.said == []
    assert many.kept[0].left_out == {}


@pytest.mark.medium
def test_what_is_compared_side_by_side_stays_on_one_device() -> None:
    many = Rack({str(n): FakeBench(str(n)) for n in range(4)})
    many.look(TIMES)
    before = {name: bench.rounds for name, bench in many.benches.items()}
    pair = tuple((Config({"ns": ns}), None) for ns in (10_000, 10_100))
    for _ in range(5):
        many.bench.measure(Visit(pair, 1))
    after = {name: bench.rounds - before[name] for name, bench in many.benches.items()}
    assert sorted(after.values()) == [0, 0, 0, 5]


@pytest.mark.medium
def test_a_slow_device_is_left_out_and_named_and_its_looks_are_not_used() -> None:
    many = Rack({"0": FakeBench("0"), "1": FakeBench("1", 1.07), "2": FakeBench("2")})
    found = many.look(TIMES)
    assert all(ns_of(found[ns]) == pytest.approx(ns, rel=0.03) for ns in TIMES)
    assert len(many.said) == 1
    assert many.said[0].startswith("device 1 is not used any more: ")
    assert many.said[0].endswith("% slower than the others")
    assert many.benches["1"].closed
    assert list(many.kept[0].left_out) == ["1"]


@pytest.mark.medium
def test_where_the_first_device_is_the_slow_one_its_looks_are_taken_again() -> None:
    many = Rack({"0": FakeBench("0", 1.07), "1": FakeBench("1"), "2": FakeBench("2")})
    found = many.look(TIMES)
    assert all(ns_of(found[ns]) == pytest.approx(ns, rel=0.03) for ns in TIMES)
    assert list(many.bench.left_out) == ["0"]


@pytest.mark.medium
def test_one_that_begins_to_drift_later_is_left_out_then() -> None:
    many = Rack({str(n): FakeBench(str(n)) for n in range(4)})
    many.look(TIMES)
    assert many.said == []
    many.benches["2"].drift = 0.0015
    for batch in range(1, 9):
        times = [ns + 1 + batch for ns in TIMES]
        found = many.look(times)
        assert all(ns_of(found[ns]) == pytest.approx(ns, rel=0.05) for ns in times)
    assert list(many.bench.left_out) == ["2"]


@pytest.mark.medium
def test_one_that_is_throttled_all_of_a_sudden_is_left_out_before_its_looks_are_used() -> None:
    many = Rack({str(n): FakeBench(str(n)) for n in range(4)})
    many.look(TIMES)
    many.benches["2"].factor = 1.2
    found = many.look([ns + 1 for ns in TIMES])
    assert all(ns_of(one) == pytest.approx(ns, rel=0.03) for ns, one in found.items())
    assert list(many.bench.left_out) == ["2"]


@pytest.mark.medium
def test_a_device_that_dies_costs_what_it_was_measuring() -> None:
    benches = {str(n): FakeBench(str(n)) for n in range(3)}
    benches["1"].dies_after = 13
    many = Rack(benches)
    found = many.look(TIMES)
    assert set(found) == set(TIMES)
    assert all(isinstance(one, Sampled) for one in found.values())
    assert list(many.bench.left_out) == ["1"]
    [said] = many.said
    assert said.startswith("device 1 ")
    assert said.endswith(": power cut")


@pytest.mark.medium
def test_where_the_device_of_the_finals_dies_the_round_is_taken_again_elsewhere() -> None:
    many = Rack({"0": FakeBench("0"), "1": FakeBench("1")})
    many.look(TIMES)
    many.benches["0"].dies_after = 0
    pair = tuple((Config({"ns": ns}), None) for ns in (10_000, 10_100))
    assert all(isinstance(one, Sampled) for one in many.bench.measure(Visit(pair, 1)))
    assert many.benches["1"].rounds


def test_without_a_device_there_is_an_error_that_names_them_all() -> None:
    many = Rack({"0": FakeBench("0", dies_after=0), "1": FakeBench("1", dies_after=0)})
    with pytest.raises(NoDeviceLeftError, match="0: power cut; 1: power cut"):
        many.look(TIMES)


@pytest.mark.medium
def test_one_that_joins_is_checked_and_used() -> None:
    many = Rack({"0": FakeBench("0"), "1": FakeBench("1")})
    many.look(TIMES)
    many.benches["2"] = FakeBench("2")
    many.benches["3"] = FakeBench("3", 1.07)
    many.look([ns + 1 for ns in TIMES])
    assert list(many.bench.left_out) == ["3"]
    many.look([ns + 2 for ns in TIMES])
    assert any(config["ns"] in {ns + 2 for ns in TIMES} for config in many.benches["2"].looked)


@pytest.mark.medium
def test_configs_that_fail_are_no_control() -> None:
    many = Rack({str(n): FakeBench(str(n)) for n in range(3)})
    found = many.look([0])
    assert isinstance(found[0], ConfigFailure)
    found = many.look(TIMES)
    assert all(isinstance(one, Sampled) for one in found.values())
    assert many.said == []


@pytest.mark.medium
def test_what_an_earlier_run_left_out_is_not_opened() -> None:
    first = Rack({"0": FakeBench("0"), "1": FakeBench("1", 1.07), "2": FakeBench("2")})
    first.look(TIMES)
    again = Rack({str(n): FakeBench(str(n)) for n in range(3)}, recorded=first.kept[0])
    again.look(TIMES)
    assert again.benches["1"].rounds == 0


@pytest.mark.medium
def test_the_control_is_not_forgotten() -> None:
    many = Rack({"0": FakeBench("0"), "1": FakeBench("1")})
    many.look(TIMES)
    for ns in TIMES:
        many.bench.forget(Config({"ns": ns}))
    assert len(many.benches["0"].forgotten) == len(TIMES) - 3


def test_closing_closes_all() -> None:
    many = Rack({"0": FakeBench("0"), "1": FakeBench("1")})
    with many.bench:
        pass
    assert all(bench.closed for bench in many.benches.values())
