"""`whet ask` and `whet tell`: a search that a program outside carries out."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli_runs import Ran, Whet, one_line
from whet.core.run import Outcome, Stop
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.search import STRATEGIES, make_strategy
from whet.store import open_store

SPACE = {"a": [1, 2, 4, 8], "b": [1, 2, 3], "c": ["x", "y"]}
TEXT = json.dumps(SPACE)

Tell = Callable[..., Ran]


def ns_of(config: dict[str, Any]) -> float:
    return 100.0 * abs(config["a"] - 4) + 10.0 * config["b"] + (config["c"] == "x") + 1.0


@pytest.fixture
def tell(whet: Whet, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """`tell(result, …)`, a line each; `also` are options."""

    def run(*results: Any, session: str = "s.jsonl", also: tuple[str, ...] = ()) -> Ran:
        lines = [one if isinstance(one, str) else json.dumps(one) for one in results]
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return whet("tell", session, "--store", "s.db", *also)

    return run


@pytest.fixture
def asked(whet: Whet) -> Callable[..., dict[str, Any]]:
    def run(*options: str, session: str = "s.jsonl") -> dict[str, Any]:
        ran = whet("ask", session, "--store", "s.db", *options)
        assert (ran.code, ran.out.count("\n")) == (0, 1), ran
        answer: dict[str, Any] = json.loads(ran.out)
        return answer

    return run


def result_of(one: dict[str, Any]) -> dict[str, Any]:
    return {"id": one["id"], "ns": ns_of(one["config"])}


Asked = Callable[..., dict[str, Any]]


@pytest.mark.medium
def test_a_search_goes_on_from_command_to_command_to_its_end(asked: Asked, tell: Tell) -> None:
    tried = []
    while configs := (answer := asked("--space", TEXT, "--budget", "10trials", "-n", "3"))[
        "configs"
    ]:
        tried += [one["config"] for one in configs]
        assert tell([result_of(one) for one in configs]).code == 0
    assert len(tried) == len({json.dumps(one) for one in tried}) == 10
    assert answer["done"] == "budget of 10 trials used up"
    best = min(tried, key=ns_of)
    assert (answer["best"]["config"], answer["best"]["ns"]) == (best, ns_of(best))
    with open_store("s.db", read_only=True) as store:
        (known,) = store.workloads()
        (run,) = store.runs(known.workload.id)
        assert (known.workload.kernel, known.configs) == ("s", 10)
        assert (run.outcome, run.stopped, dict(run.best or {})) == (
            Outcome.FINISHED,
            Stop.TRIALS,
            best,
        )


@pytest.mark.medium
@pytest.mark.parametrize("search", [name for name in STRATEGIES if name != "llm"])
def test_every_strategy_asks_as_it_does_in_one_process(
    asked: Asked, tell: Tell, search: str
) -> None:
    space = Space(SPACE)
    alone = make_strategy(search, space, 3, whole=False)
    expected = []
    for _ in range(4):
        configs = alone.ask(2)
        expected.append([dict(config) for config in configs])
        alone.tell([Trial("", one, Status.OK, timing=timed(ns_of(dict(one)))) for one in configs])
    found = []
    options = ("--space", TEXT, "--search", search, "--seed", "3", "--budget", "8trials")
    for _ in range(4):
        configs = asked(*options, "-n", "2")["configs"]
        found.append([one["config"] for one in configs])
        tell([result_of(one) for one in configs])
    assert found == expected


def timed(ns: float) -> Timing:
    return Timing((ns,), "told")


def test_a_failure_is_a_result(asked: Asked, tell: Tell) -> None:
    configs = asked("--space", TEXT, "-n", "2")["configs"]
    told = tell(
        {"id": configs[0]["id"], "error": "illegal access"},
        {"id": configs[1]["id"], "status": "build_timeout"},
    )
    assert json.loads(told.out.splitlines()[-1])["best"] is None
    with open_store("s.db", read_only=True) as store:
        trials = store.trials(store.workloads()[0].workload.id)
    assert [(one.status, one.error) for one in trials] == [
        (Status.RUN_ERROR, "illegal access"),
        (Status.BUILD_TIMEOUT, ""),
    ]


def test_what_was_told_goes_on_with_ask_and_not_with_a_tuning(
    asked: Asked, tell: Tell, whet: Whet
) -> None:
    configs = asked("--space", TEXT, "--budget", "3trials", "-n", "3")["configs"]
    tell([result_of(one) for one in configs])
    shown = whet("best", "--store", "s.db").out
    assert "budget of 3 trials used up" in shown
    assert "ask for more with 'whet ask'" in shown
    assert "--budget" not in shown


def test_a_program_may_hold_both_ends_of_a_pipe(asked: Asked, tell: Tell) -> None:
    asked("--space", TEXT, "--budget", "4trials", "-n", "1")
    first = json.loads(Path("s.jsonl").read_text().splitlines()[1])["configs"][0]
    ran = tell({"config": first, "seconds": 2e-6}, also=("--ask", "1"))
    before, after = map(json.loads, ran.out.splitlines())
    assert len(before["configs"]) == len(after["configs"]) == 1
    assert before["configs"] != after["configs"]
    assert (after["best"]["config"], after["best"]["ns"]) == (first, 2000.0)


def test_what_was_never_reported_is_asked_for_again(asked: Asked, tell: Tell) -> None:
    configs = asked("--space", TEXT, "-n", "3")["configs"]
    tell(result_of(configs[1]))
    again = asked("--pending")
    assert again["configs"] == [configs[0], configs[2]]
    assert (again["tried"], again["pending"]) == (1, 2)
    assert asked("-n", "1")["configs"][0] not in configs


def test_a_larger_budget_goes_on(asked: Asked, tell: Tell) -> None:
    configs = asked("--space", TEXT, "--budget", "2trials", "-n", "9")["configs"]
    tell([result_of(one) for one in configs])
    assert asked()["configs"] == []
    more = asked("--budget", "5trials", "-n", "9")
    assert len(more["configs"]) == 3
    assert not [one for one in more["configs"] if one in configs]


def test_a_later_result_replaces_the_earlier(asked: Asked, tell: Tell) -> None:
    (one,) = asked("--space", TEXT)["configs"]
    told = tell({"id": one["id"], "ns": 5}, {"id": one["id"], "samples_ns": [7, 8, 9]})
    last = json.loads(told.out.splitlines()[-1])
    assert (last["tried"], last["best"]["ns"]) == (1, 8.0)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("nonsense", "is not valid JSON"),
        ('{"id": 3, "ns": NaN}', "NaN is no number"),
        ("[" * 100_000, "is not valid JSON"),
        ("7", "a result is a JSON object"),
        ({"id": "0"}, "was asked for"),
        ({"config": {"a": 3, "b": 1, "c": "x"}, "ns": 1}, "a=3 is not a possible value"),
        ({"config": {"a": 1}, "ns": 1}, "not in the space"),
        ({"config": {"a": {"x": 1}}, "ns": 1}, "parameter 'a'"),
        ({"config": {"a": 1, "b": 1, "c": "x"}, "ns": -1}, "not above 0"),
        ({"config": {"a": 1, "b": 1, "c": "x"}, "ns": "1"}, "not above 0"),
        ({"config": {"a": 1, "b": 1, "c": "x"}, "ns": True}, "not above 0"),
        ({"config": {"a": 1, "b": 1, "c": "x"}, "samples_ns": []}, "not above 0"),
        ({"config": {"a": 1, "b": 1, "c": "x"}, "ns": 1, "seconds": 1}, "has ns and seconds"),
        ({"config": {"a": 1, "b": 1, "c": "x"}, "status": "ok"}, "has no time"),
        ({"config": {"a": 1, "b": 1, "c": "x"}, "status": "fine"}, "status of"),
        ({"config": {"a": 1, "b": 1, "c": "x"}, "error": 3}, "not a text"),
    ],
)
def test_a_wrong_result_is_one_line_and_nothing_is_taken(
    asked: Asked, tell: Tell, result: Any, said: str
) -> None:
    asked("--space", TEXT)
    before = Path("s.jsonl").read_bytes()
    good = {"config": {"a": 1, "b": 1, "c": "x"}, "ns": 1}
    ran = tell([good, result] if isinstance(result, dict) else result)
    assert said in one_line(ran)
    assert Path("s.jsonl").read_bytes() == before
    assert not Path("s.db").exists()


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ("{", "is not valid JSON"),
        ("{}", "a space is an object"),
        ('{"a": 3}', "parameter 'a'"),
        ('{"a": []}', "no valid config"),
        ('{"a": [{}]}', "'a'"),
        ('{"parameters": {"a": [1]}, "constraints": ["a > 1"]}', "no valid config"),
        ('{"parameters": {"a": [1]}, "constraints": [3]}', "list of texts"),
        ('{"parameters": {"a": [1]}, "constraints": ["__import__(\'os\').abort()"]}', "abort"),
        ('{"parameters": [{"kind": "ordered", "name": "a"}]}', "not valid"),
        ("nowhere.json", "cannot read"),
    ],
)
def test_a_wrong_space_is_one_line_and_begins_no_session(whet: Whet, space: str, said: str) -> None:
    assert said in one_line(whet("ask", "s.jsonl", "--space", space))
    assert "new session" in one_line(whet("ask", "s.jsonl"))


def test_what_is_no_plain_file_is_no_session(whet: Whet) -> None:
    for place in ("/dev/null", "/", "nowhere/s.jsonl", "\0"):
        assert len(one_line(whet("ask", place, "--space", TEXT))) > 20


def test_a_session_is_one_search(whet: Whet, asked: Asked) -> None:
    asked("--space", TEXT, "--seed", "1")
    for option in (("--seed", "2"), ("--search", "grid"), ("--space", "[{}]"), ("--kernel", "k")):
        assert f"another {option[0]}" in one_line(whet("ask", "s.jsonl", *option))
    assert "no session in" in one_line(whet("tell", "other.jsonl"))


def test_a_file_that_is_no_session_stays_as_it_is(whet: Whet, tell: Tell, asked: Asked) -> None:
    asked("--space", TEXT)
    whole = Path("s.jsonl").read_text()
    for text in ("hello\n", "{}\n", "half a line", whole + '{"asked": 1}\n', whole + "[]\n"):
        Path("s.jsonl").write_text(text)
        assert "session" in one_line(whet("ask", "s.jsonl", "--space", TEXT))
        assert Path("s.jsonl").read_text() == text


def test_a_line_that_a_kill_cut_short_is_as_if_it_were_not_there(asked: Asked, tell: Tell) -> None:
    first = asked("--space", TEXT)["configs"]
    with open("s.jsonl", "a") as file:
        file.write('{"asked": 1, "conf')
    second = asked("-n", "1")["configs"]
    assert second != first
    assert asked("--pending")["configs"] == [*first, *second]


def test_another_versions_search_is_told_what_came_of_it(asked: Asked, tell: Tell) -> None:
    configs = asked("--space", TEXT, "-n", "2")["configs"]
    tell([result_of(one) for one in configs])
    lines = Path("s.jsonl").read_text().splitlines()
    lines[1] = json.dumps({"asked": 2, "configs": [{"a": 8, "b": 3, "c": "y"}]})
    Path("s.jsonl").write_text("\n".join(lines) + "\n")
    seen = [json.loads(lines[1])["configs"][0], *(one["config"] for one in configs)]
    rest = []
    while more := asked("-n", "5")["configs"]:
        rest += [one["config"] for one in more]
    assert len(rest) == len(Space(SPACE)) - 3
    assert not [one for one in rest if one in seen]


def test_a_store_that_cannot_be_written_loses_nothing(asked: Asked, tell: Tell, whet: Whet) -> None:
    (one,) = asked("--space", TEXT)["configs"]
    Path("s.db").mkdir()
    ran = tell(result_of(one))
    assert ran.code != 0
    assert "s.jsonl has the results; 'whet tell s.jsonl'" in ran.err
    Path("s.db").rmdir()
    assert json.loads(tell().out)["tried"] == 1
    with open_store("s.db", read_only=True) as store:
        assert store.workloads()[0].configs == 1


@pytest.mark.medium
def test_several_processes_share_a_session(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "whet", "ask", "s.jsonl", "--space", TEXT, "-n", "2"]
    running = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    answers = [json.loads(one.communicate()[0]) for one in running]
    ids = [one["id"] for answer in answers for one in answer["configs"]]
    assert len(ids) == len(set(ids)) == 6


def test_a_hostile_name_steers_no_terminal(asked: Asked, whet: Whet) -> None:
    hostile = json.dumps({"\x1b[31m": ["\x07", "\ud800"]})
    ran = whet("ask", "s.jsonl", "--space", hostile)
    assert ran.code == 0
    assert ran.out.strip().isprintable()
