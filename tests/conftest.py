"""Keeps tests away from the user's own store and settings, and GPU tests away from no GPU."""

from __future__ import annotations

import itertools
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from fork_server import ForkedWorkers, ForkServer, one_server
from postgres_server import PgBouncer, PostgresMissingError, PostgresServer, new_namespace

# How long an example takes says nothing on a machine that pauses.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")

pytest_plugins = ("costs", "goes")

_XDG = ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")


def _isolate(patch: pytest.MonkeyPatch, home: Path) -> None:
    for name in [name for name in os.environ if name.startswith("WHET_")]:
        patch.delenv(name)
    for name in _XDG:
        patch.setenv(name, str(home / name.lower()))


@pytest.fixture(autouse=True, scope="session")
def _isolated_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For fixtures that live longer than one test."""
    with pytest.MonkeyPatch.context() as patch:
        _isolate(patch, tmp_path_factory.mktemp("session-home"))
        yield


_homes = itertools.count()


@pytest.fixture(autouse=True)
def _isolated_test(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # not mktemp, which lists the folders of all tests before it names one
    _isolate(monkeypatch, tmp_path_factory.getbasetemp() / f"home-{next(_homes)}")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One for all tests; those that stop it start one of their own."""
    with _postgres_or_skip() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    with _postgres_or_skip() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """Of a namespace that nobody else uses."""
    return postgres_server.url(new_namespace())


@pytest.fixture
def pgbouncer(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    """Before the server of all tests: its clients share four sessions."""
    try:
        made = PgBouncer(postgres_server, sessions=4)
    except PostgresMissingError as missing:
        warnings.warn(f"tests behind PgBouncer are skipped: {missing}", stacklevel=1)
        pytest.skip(str(missing))
    with made as pooler:
        yield pooler


def _postgres_or_skip() -> PostgresServer:
    try:
        return PostgresServer()
    except PostgresMissingError as missing:
        if os.environ.get("CI"):
            raise
        warnings.warn(f"tests of the PostgreSQL store are skipped: {missing}", stacklevel=1)
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Triton's cache for all processes that run tests: what one has compiled the others find."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "binaries"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    with one_server() as server:
        yield server


@pytest.fixture
def forked_workers(fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes are forked from one that has imported torch and Triton."""
    from whet.workers import process

    monkeypatch.setattr(process, "subprocess", ForkedWorkers(fork_server))


@pytest.fixture(autouse=True)
def _own_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Files that one test has loaded are forgotten before the next."""
    modules, path = set(sys.modules), list(sys.path)
    yield
    base = str(tmp_path_factory.getbasetemp())
    for name in set(sys.modules) - modules:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if name.startswith("whet_file_") or file.startswith(base):
            del sys.modules[name]
    sys.path[:] = path


@pytest.fixture(autouse=True, scope="module")
def _no_worker_outlives_its_tests() -> Iterator[None]:
    """What one file leaves open, reaper included, would be there for all that come after."""
    yield
    supervisor = sys.modules.get("whet.workers.supervisor")
    deadline = time.monotonic() + 20.0
    while supervisor is not None and supervisor._current is not None:
        assert time.monotonic() < deadline, "a pool or session was never closed"
        time.sleep(0.01)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    faking = [item for item in items if _fakes_a_driver(item)]
    if not wanting and not faking:
        return
    for item in faking if _has_cuda() else wanting:
        reason = "a real driver is here; tests/gpu uses it" if item in faking else "needs a GPU"
        item.add_marker(pytest.mark.skip(reason=reason))


def _fakes_a_driver(item: pytest.Item) -> bool:
    """In one process with a real driver, Triton's caches would know kernels of both."""
    return "triton" in item.path.name and item.path.name != "test_gpu_autotune.py"


def _has_cuda() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
