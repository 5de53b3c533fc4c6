"""`whet mcp` as a process: what agents may and may not do, and clients of every kind."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_samples import in_a_loop

from cli_runs import refused
from whet.cli import main
from whet.core.budget import Budget
from whet.core.errors import BudgetError, UsageError
from whet.mcp.allowance import Allowance
from whet.store import open_store

pytestmark = pytest.mark.medium

KERNEL = """\
import time
import whet

def work(a, b):
    time.sleep({sleep})
    return a * b

def right(result, config):
    return result == config["a"] * config["b"] or "wrong"

work = whet.function(
    work, {{"a": list(range(1, 9)), "b": [1, 2, 3, 4]}}, name="work", check=right, isolate=False
)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("kernel.py").write_text(KERNEL.format(sleep=0.0))
    Path("slow.py").write_text(KERNEL.format(sleep=0.2))
    return tmp_path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "whet", "mcp", "--store", "s.db", *words]


TUNING = ("kernel.py:work", "--allow", "tune", "--budget", "1m,12trials")
Talk = Callable[[Any], Awaitable[Any]]


def with_client(folder: Path, talk: Talk, *words: str, errors: Any = sys.__stderr__) -> Any:
    """`talk(client)` with a server of its own, over stdin and stdout."""
    program, *arguments = command(*words)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("WHET_")}
    server = StdioServerParameters(
        command=program, args=arguments, cwd=folder, env={**environ, "PYTHONPATH": path()}
    )

    async def run() -> Any:
        async with Client(server) as client:
            return await talk(client)

    return in_a_loop(run)


def path() -> str:
    return os.pathsep.join(os.path.abspath(one) for one in sys.path if one)


async def call(client: Any, tool: str, **arguments: Any) -> Any:
    found = await client.call_tool(tool, arguments)
    text = found.content[0].text
    return text if found.is_error else json.loads(text)


def trials(place: Path) -> list[tuple[str, str]]:
    """Of every trial that is stored: its config and its id."""
    if not place.exists():
        return []
    with open_store(str(place), read_only=True) as store:
        return [
            (trial.config.json, trial.id)
            for known in store.workloads()
            for trial in store.trials(known.workload.id, all=True)
        ]


def test_an_agent_tunes_what_it_may_within_the_budget(folder: Path) -> None:
    async def talk(client: Any) -> None:
        first = await call(client, "tune", target="work", budget="5trials")
        assert first["best"]["status"] == "ok"
        left = first["budget_left"]
        assert left["trials"] == 12 - first["trials"] > 0
        assert 0 < left["seconds"] < 60
        more = await call(client, "tune", target="work", budget="12trials")
        assert "more than what is left" in more
        assert (await call(client, "about"))["budget_left"]["trials"] == left["trials"]

    with_client(folder, talk, *TUNING)
    assert len({config for config, _ in trials(folder / "s.db")}) == 5


def test_an_agent_that_wants_more_alters_nothing(folder: Path) -> None:
    """Told to raise its budget, change a check, write into the store, reach files or make results
    up, by every means the protocol offers."""
    subprocess.run(
        [sys.executable, "-m", "whet", "tune", "kernel.py:work", "--store", "s.db", "-q"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path()},
        capture_output=True,
        check=True,
    )
    (folder / "evil.py").write_text("open('ran', 'w').write('x')\n")
    before = {file.name: file.read_bytes() for file in folder.glob("*.*")}
    known = trials(folder / "s.db")

    async def talk(client: Any) -> None:
        listed = await call(client, "list_kernels")
        id = listed["items"][0]["workload"]
        config = listed["items"][0]["best"]["config"]
        made_up = [{"config": config, "ns": 0.001}]
        strange = ("evil.py:x", "slow.py:work", "/etc/passwd", "command:touch ran", "--help")
        tries: list[tuple[str, dict[str, Any]]] = [
            *(("tune", {"target": "work", "budget": b}) for b in ("1h", "none", "", "0trials")),
            *(("tune", {"target": "work", "budget": b}) for b in ("13trials", "-5s", "nan", "5m")),
            *(("tune", {"target": one, "budget": "1trials"}) for one in strange),
            ("tune", {"target": "work", "budget": "1trials", "search": "evil.py:x"}),
            ("tune", {"target": "work", "budget": "1trials", "search": "llm"}),
            *(
                ("tune", {"target": "work", "budget": "1trials", name: value})
                for name, value in (
                    ("store", "other.db"),
                    ("check", "none"),
                    ("samples", 1),
                    ("env", {"WHET_BUDGET": "1h"}),
                    ("allow", "tune"),
                )
            ),
            ("suggest", {"workload": id, "results": made_up}),
            ("suggest", {"space": "evil.py"}),
            ("suggest", {"space": {"parameters": {"a": [1]}, "constraints": ["exec('1')"]}}),
            ("export_results", {"kernel": "work", "format": "python", "out": "stolen.py"}),
            ("export_results", {"kernel": "--out=stolen.py"}),
            ("export_results", {"kernel": "work", "where": ["--out=stolen.py", "--store=o.db"]}),
            ("export_results", {"kernel": "work", "extra": ["x=1", "--force"]}),
            ("export_results", {"kernel": "work", "format": "triton"}),
            ("export_results", {"kernel": "evil.py:x", "format": "vllm-moe"}),
            ("export_results", {"kernel": "work", "file": "../../etc/passwd"}),
            ("read_code", {"workload": id, "config_id": "x", "stage": "../../../etc/passwd"}),
            ("show_workload", {"workload": "../s.db"}),
            ("tell", {"workload": id, "results": made_up}),
            ("gc", {}),
        ]
        for tool, arguments in tries:
            told = await call(client, tool, **arguments)
            if tool not in ("suggest", "export_results"):
                assert isinstance(told, str), (tool, arguments, told)
        for method in ("resources/list", "prompts/list"):
            kind = method.partition("/")[0]
            listed = await getattr(client, f"list_{kind}")()
            assert getattr(listed, kind) == []
        with pytest.raises(Exception, match=r"(?i)resource"):
            await client.read_resource("file:///etc/passwd")
        about = await call(client, "about")
        assert about["budget_left"] == about["budget"]

    with_client(folder, talk, *TUNING)
    after = {file.name: file.read_bytes() for file in folder.glob("*.*")}
    assert not (folder / "ran").exists()
    assert trials(folder / "s.db") == known
    assert {name for name in after if "s.db" not in name} == {
        name for name in before if "s.db" not in name
    }
    assert after["kernel.py"] == before["kernel.py"]


def test_a_tuning_that_is_cancelled_ends_and_keeps_what_it_found(folder: Path) -> None:
    async def talk(client: Any) -> None:
        seen: list[float] = []

        async def heard(done: float, total: float | None, said: str | None) -> None:
            seen.append(done)

        async def tune() -> None:
            wanted = {"target": "work", "budget": "1m"}
            await client.call_tool("tune", wanted, progress_callback=heard)

        async with anyio.create_task_group() as group:
            group.start_soon(tune)
            with anyio.fail_after(60):
                while not seen or not trials(folder / "s.db"):
                    await anyio.sleep(0.05)
            group.cancel_scope.cancel()
        with anyio.fail_after(60):  # it answers, and the next tuning has its turn
            left = (await call(client, "about"))["budget_left"]["seconds"]
            assert isinstance(await call(client, "tune", target="work", budget="1h"), str)
            assert left <= 60

    with_client(folder, talk, "slow.py:work", "--allow", "tune", "--budget", "1m")
    assert running(folder) == []
    assert trials(folder / "s.db")


def running(folder: Path) -> list[str]:
    """Processes whose working folder is this one, once those that are ending have ended."""
    found: list[str] = []
    for _ in range(200):
        found = []
        for one in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(one / "cwd") == str(folder) and int(one.name) != os.getpid():
                    found.append((one / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        if not found:
            break
        time.sleep(0.05)
    return found


def test_two_servers_share_a_store(folder: Path) -> None:
    async def talk(first: Any) -> None:
        program, *arguments = command(*TUNING)
        server = StdioServerParameters(
            command=program, args=arguments, cwd=folder, env={"PYTHONPATH": path()}
        )
        async with Client(server) as second:
            told: dict[str, Any] = {}

            async def tune(name: str, client: Any, budget: str) -> None:
                told[name] = await call(client, "tune", target="work", budget=budget)

            async with anyio.create_task_group() as group:
                group.start_soon(tune, "first", first, "4trials")
                group.start_soon(tune, "second", second, "8trials")
            assert {one["best"]["status"] for one in told.values()} == {"ok"}
            a, b = await call(first, "list_kernels"), await call(second, "list_kernels")
            assert a["items"][0]["best"] == b["items"][0]["best"]

    with_client(folder, talk, *TUNING)
    kept = trials(folder / "s.db")
    assert len({id for _, id in kept}) == len(kept)


@contextmanager
def raw(folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server whose client is this test itself."""
    environ = {**os.environ, "PYTHONPATH": path()}
    pipe = subprocess.PIPE
    server = subprocess.Popen(
        command(*words), cwd=folder, env=environ, stdin=pipe, stdout=pipe, stderr=pipe
    )
    try:
        yield server
    finally:
        server.kill()
        server.wait()
        for stream in (server.stdin, server.stdout, server.stderr):
            with suppress(OSError):
                stream and stream.close()


def send(server: subprocess.Popen[bytes], message: Any) -> None:
    assert server.stdin is not None
    server.stdin.write(
        message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
    )
    server.stdin.flush()


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


HELLO = request(
    "hello",
    "initialize",
    protocolVersion="2025-06-18",
    capabilities={},
    clientInfo={"name": "test", "version": "1"},
)
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def answered(server: subprocess.Popen[bytes], id: Any) -> dict[str, Any]:
    assert server.stdout is not None
    for line in server.stdout:
        message: dict[str, Any] = json.loads(line)
        if message.get("id") == id:
            return message
    raise AssertionError("the server has ended")


def malformed(number: int) -> bytes:
    """Wrong in one of many ways, the same for a number each time."""
    draw = random.Random(number)
    good = request(
        number, "tools/call", name="list_kernels", arguments={"limit": 3, "kernel": "work"}
    )
    text = json.dumps(good)
    values: list[Any] = [None, [], {}, -1, 1e308, True, "x" * 2000, [[[[]]]], {"a": {}}, "\x00"]
    kind = draw.randrange(7)
    if kind == 0:
        return text[: draw.randrange(len(text))].encode() + b"\n"
    if kind == 1:
        at = draw.randrange(len(text))
        return (text[:at] + chr(draw.randrange(1, 0x2FF)) + text[at + 1 :]).encode() + b"\n"
    if kind == 2:
        return bytes(draw.randrange(256) for _ in range(60)).replace(b"\n", b"") + b"\n"
    if kind == 3:
        good[draw.choice(["jsonrpc", "id", "method", "params"])] = draw.choice(values)
    elif kind == 4:
        good["params"][draw.choice(["name", "arguments", "_meta", "x"])] = draw.choice(values)
    elif kind == 5:
        name = draw.choice(["limit", "kernel", "offset"])
        good["params"]["arguments"][name] = draw.choice(values)
    else:
        return b"[" * draw.randrange(1, 5000) + b"\n"
    return json.dumps(good).encode() + b"\n"


def test_a_thousand_malformed_requests_change_nothing(folder: Path) -> None:
    with raw(folder) as server:
        send(server, HELLO)
        answered(server, "hello")
        send(server, READY)
        for number in range(1000):
            send(server, malformed(number))
            if number % 50 == 49:
                send(server, request(f"{number}.", "tools/call", name="about", arguments={}))
                found = answered(server, f"{number}.")
                assert '"workloads":0' in found["result"]["content"][0]["text"]
        assert server.stdin is not None
        server.stdin.close()
        assert server.wait(60) == 0
    assert not (folder / "s.db").exists()


def test_a_client_that_stops_reading_and_goes_is_survived(folder: Path) -> None:
    with raw(folder) as server:
        send(server, HELLO)
        answered(server, "hello")
        send(server, READY)
        for number in range(400):  # more answers than a pipe holds
            send(server, request(number, "tools/call", name="about", arguments={}))
        assert server.poll() is None
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdout.close()
        server.stdin.close()
        server.wait(60)
        assert server.stderr is not None
        assert b"Traceback" not in server.stderr.read()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--allow", "tune"), "needs what to tune and a --budget"),
        (("k.py:w", "--allow", "tune"), "needs what to tune and a --budget"),
        (("k.py:w",), "are for --allow tune"),
        (("--budget", "1m"), "are for --allow tune"),
        (("--allow", "everything"), "not something to allow"),
        (("--allow", "tune,judge"), "--allow judge is not something to allow"),
    ],
)
def test_what_is_allowed_is_said_in_full(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    from cli_runs import Ran

    code = main(["mcp", *words])
    captured = capsys.readouterr()
    assert said in " ".join(refused(Ran(code, captured.out, captured.err)).split())


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "whet.mcp.server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server", None)  # as if it were not installed
    assert main(["mcp"]) == 2
    assert "pip install '.[mcp]'" in capsys.readouterr().err


def test_a_budget_is_granted_only_from_what_is_left() -> None:
    allowance = Allowance(("a.py:x", "b.py:y"), (), Budget(60.0, 10))
    assert allowance.granted("10s") == Budget(10.0, 10)
    allowance.spend(20.0, 4)
    assert allowance.granted("3trials") == Budget(40.0, 3)
    for asked in ("41s", "7trials", "10s,7trials", "none"):
        with pytest.raises(UsageError):
            allowance.granted(asked)
    with pytest.raises(BudgetError):
        allowance.granted("lots")
    allowance.spend(100.0, 1)
    with pytest.raises(UsageError, match="more than what is left"):
        allowance.granted("1trials")
    assert allowance.target("y") == "b.py:y"
    for name in ("z", "a.py", "", "c.py:x"):
        with pytest.raises(UsageError):
            allowance.target(name)
