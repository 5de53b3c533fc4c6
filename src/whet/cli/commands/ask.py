"""`whet ask` and `whet tell`: a search for any program that can read and write JSON lines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from whet.cli.arguments.options import (
    BudgetOption,
    SearchOption,
    SeedOption,
    StoreOption,
    argument,
    option,
    read_keys,
    resolved,
)
from whet.core.config import Config
from whet.core.errors import UsageError, WhetError
from whet.core.run import Coverage
from whet.engine.settings import Settings
from whet.store import open_store

if TYPE_CHECKING:
    from whet.replay.asking import Opening, Session

SessionArgument = Annotated[str, argument("SESSION", "A file that holds the search: s.jsonl.")]
LONGEST_LINE = 64 << 20


def ask(
    session: SessionArgument,
    space: Annotated[
        str | None,
        option("--space JSON|FILE", "What to search, for a new session: a JSON text or a file."),
    ] = None,
    count: Annotated[
        int, option("--count -n N", "How many configs to ask for.", min=1, max=10_000)
    ] = 1,
    pending: Annotated[
        bool, option("--pending", "Repeat configs of which nothing has been told yet.")
    ] = False,
    kernel: Annotated[
        str | None,
        option("--kernel NAME", "What results are stored under (default: the file's name)."),
    ] = None,
    key: Annotated[
        str | None, option("--key M=64,N=32", "The problem that is tuned, stored with results.")
    ] = None,
    device: Annotated[
        str | None, option("--device NAME", "What it is measured on (default: this CPU).")
    ] = None,
    search: SearchOption = None,
    seed: SeedOption = None,
    budget: BudgetOption = None,
    store: StoreOption = None,
) -> None:
    """Ask which configs to try next.

    Prints one JSON line with configs, each with its id. Try them, and report with 'whet tell'. The
    first 'whet ask' of a session says what to search; later ones may repeat it, with another budget
    if they like. The list is empty once 'done' says why. Several processes may share a session.

    Examples:
      whet ask s.jsonl --space '{"BM": [16, 32, 64], "unroll": [true, false]}'
      whet ask s.jsonl --space space.json --budget 40trials -n 4
      whet ask s.jsonl                      the next config
      whet ask s.jsonl --pending            those that were never reported

    A space is an object of lists, a list of configs, or an object with
    'parameters' and 'constraints': {"parameters": {"a": [1, 2], "b": [1, 2]},
    "constraints": ["a >= b"]}.
    """
    from whet.replay.asking import Opening, opened
    from whet.targets.base import host_device

    path = Path(session)
    given = {"search": search, "seed": seed, "budget": budget}
    settings = resolved(store=store, **given).settings
    keys = read_keys([] if key is None else [key], None)

    def begin() -> Opening:
        if space is None:
            raise UsageError(f"{path} is a new session; say what to search with --space")
        if settings.search == "llm":
            raise UsageError("a session cannot be searched with llm; use 'whet tune --search llm'")
        return Opening(
            kernel or path.name.partition(".")[0] or "session",
            _given_space(space),
            settings.search,
            settings.seed,
            settings.budget,
            keys[0] if keys else {},
            device or host_device().name,
            time.time(),
        )

    with opened(path, begin) as known:
        _check_same(known.opening, settings, given, space, kernel, keys, device, path)
        if budget is not None:
            known.extend(settings.budget)
        configs = known.pending if pending else known.ask(count)
        if known.stopped is not None:
            _keep(known, settings, path)
        print(_line({"v": 1, "configs": _listed(configs), **_state(known)}))


def tell(
    session: SessionArgument,
    ask_for: Annotated[
        int | None,
        option("--ask N", "Answer each line with up to N configs to try.", min=1, max=10_000),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Report what came of configs, and store it.

    Reads JSON lines from stdin, each a result or a list of results, and answers each line with one
    that has the best so far. With --ask it has the next configs as well, and one is printed before
    the first is read, so that a program can hold both ends of a pipe. If a result is wrong, nothing
    of its line is taken.

    Examples:
      echo '{"id": "6fca4d21e40b2d11", "ns": 81500}' | whet tell s.jsonl
      echo '{"id": "6fca4d21e40b2d11", "error": "wrong"}' | whet tell s.jsonl
      echo '{"config": {"BM": 16}, "seconds": 0.25}' | whet tell s.jsonl
      whet tell s.jsonl --ask 4 < results > configs     for a program with pipes

    A result has the id of a config, or the config; and ns, seconds or samples_ns
    (a list), or an error, and a status if 'run_error' is not what happened. They
    are stored as somebody else's, never compared with what whet has measured.
    """
    from whet.replay.asking import opened, read_json

    path, settings = Path(session), resolved(store=store).settings
    with opened(path) as known:
        if ask_for is not None:
            configs = _listed(known.ask(ask_for))
            print(_line({"v": 1, "configs": configs, **_state(known)}), flush=True)
    told = 0
    for line in iter(lambda: sys.stdin.readline(LONGEST_LINE), ""):
        if not line.strip():
            continue
        told += 1
        said = read_json(line, f"line {told} of the results")
        with opened(path, before=known) as known:
            results = known.read(said)
            known.tell(results)
            more = {} if ask_for is None else {"configs": _listed(known.ask(ask_for))}
            _keep(known, settings, path)
            print(_line({"v": 1, "told": len(results), **more, **_state(known)}), flush=True)
    if not told and ask_for is None:
        with opened(path) as known:
            _keep(known, settings, path)
            print(_line({"v": 1, "told": 0, **_state(known)}))


def _given_space(typed: str) -> Any:
    from whet.replay.asking import read_json

    if typed.lstrip()[:1] in ("{", "["):
        return read_json(typed, "--space")
    try:
        return read_json(Path(typed).read_text(encoding="utf-8"), typed)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot read the space in {typed}: {error}") from None


def _check_same(
    opening: Opening,
    settings: Settings,
    given: Mapping[str, Any],
    space: str | None,
    kernel: str | None,
    keys: list[dict[str, Any]],
    device: str | None,
    path: Path,
) -> None:
    """A session is one search; what is typed again must be what it was begun with."""
    typed: dict[str, tuple[Any, Any]] = {
        **{
            name: (getattr(settings, name), getattr(opening, name))
            for name, value in given.items()
            if value is not None and name != "budget"
        },
        **({} if space is None else {"space": (_given_space(space), opening.space)}),
        **({} if kernel is None else {"kernel": (kernel, opening.kernel)}),
        **({} if not keys else {"key": (keys[0], dict(opening.key))}),
        **({} if device is None else {"device": (device, opening.device)}),
    }
    for name, (now, before) in typed.items():
        if now != before:
            raise UsageError(f"{path} was begun with another --{name}; use another file")


def _keep(session: Session, settings: Settings, path: Path) -> None:
    if not session.told:
        return
    try:
        with open_store(settings.store, direct=True) as store:
            session.keep(store)
    except WhetError as error:
        again = f"'whet tell {path}' brings them to the store later"
        error.add_note(f"{path} has the results; {again}")
        raise


def _listed(configs: list[Config]) -> list[dict[str, Any]]:
    return [{"id": config.id, "config": dict(config)} for config in configs]


def _state(session: Session) -> dict[str, Any]:
    best, stopped, tried = session.best, session.stopped, len(session.told)
    coverage = Coverage(tried, session.space.count, stopped, session.budget)
    return {
        "tried": tried,
        "pending": len(session.pending),
        "left": session.left,
        "best": None
        if best is None or best.timing is None
        else {"id": best.config.id, "config": dict(best.config), "ns": best.timing.median_ns},
        "done": "" if stopped is None else coverage.reason or f"{coverage.count_text} tried",
    }


def _line(data: Mapping[str, Any]) -> str:
    """One line, and nothing in it that would steer a terminal."""
    return json.dumps(data, allow_nan=False)
