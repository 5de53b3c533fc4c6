"""Results of a choice travel like any others: packed, shipped with a package, found again."""

import subprocess
import sys
import time

import pytest

import whet
from whet.engine.fallback import calls


def slow(x):
    time.sleep(0.004)
    return x + x


def fast(x):
    return 2 * x


@pytest.fixture
def shipped(monkeypatch):
    """Nothing that one test ships is there for the next."""
    monkeypatch.setattr(calls, "_shipped", {})


def double():
    return whet.choice({"slow": slow, "fast": fast}, name="double")


@pytest.mark.medium
@pytest.mark.usefixtures("shipped")
def test_a_shipped_bundle_answers_where_nothing_was_tuned(monkeypatch, tmp_path):
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "there.db"))
    double()(3)
    bundle = tmp_path / "results.whet"
    words = [sys.executable, "-m", "whet", "pack", str(bundle)]
    subprocess.run([*words, "--store", str(tmp_path / "there.db")], check=True)
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "here.db"))
    calls.ship(bundle)
    here = double()
    with whet.mode("require"):
        assert here(3) == 6
    assert list(here.picks.values()) == ["fast"]
    with whet.mode("tune"):
        assert double()(3) == 6
    if (tmp_path / "here.db").exists():
        with whet.open_store(tmp_path / "here.db", read_only=True) as store:
            assert not [one for known in store.workloads() for one in store.runs(known.workload.id)]


@pytest.mark.medium
@pytest.mark.usefixtures("shipped")
def test_a_shipped_bundle_that_cannot_be_read_stops_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
    broken = tmp_path / "broken.whet"
    broken.write_bytes(b"no bundle")
    calls.ship(broken)
    with pytest.warns(RuntimeWarning, match="the bundle will not be used"):
        assert double()(3) == 6


def test_the_source_depends_on_names_code_and_what_is_captured():
    def made(factor, name="double"):
        def scaled(x):
            return factor * x

        return whet.choice({"slow": slow, "scaled": scaled}, name=name).source.fingerprint

    assert made(2) == made(2)
    assert made(2) != made(3)
    assert made(2) != made(2, name="other")
    assert (
        double().source.fingerprint != whet.choice({"slow": slow}, name="double").source.fingerprint
    )
