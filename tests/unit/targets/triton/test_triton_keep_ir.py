"""Intermediate code kept beside the store, and shown by the explorer."""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.core.intermediate import keep_stages, kept_stages
from whet.explorer.answers import stage_text, trial_json
from whet.explorer.library import Library
from whet.explorer.subject import NotThereError
from whet.store import open_store
from whet.testing.fake_triton import FakeTensor, fake_driver, told


def _tune():
    @triton.jit
    def double(out, x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + offsets, 2 * tl.load(x + offsets, mask=offsets < n), mask=offsets < n)

    configs = [triton.Config({"BLOCK": block}) for block in (128, 256)]
    kernel = whet.autotune(configs=configs, key=["n"])(double)
    kernel.whet_timer = told(lambda config: 1000.0 + config.kwargs["BLOCK"])
    with fake_driver():
        kernel[(1,)](FakeTensor([0.0] * 4), FakeTensor([1.0] * 4, address=8192), 4)


@pytest.mark.medium
def test_every_stage_of_every_config_is_kept_where_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "s.db"))
    monkeypatch.setenv("WHET_KEEP_IR", "yes")
    _tune()
    assert len(list((tmp_path / "s.db.ir").iterdir())) == 2
    with open_store(tmp_path / "s.db", read_only=True) as store:
        (subject,) = Library(store).subjects()
        rows = {trial_json(subject, row)["config"]["BLOCK"]: row for row in range(2)}
        stages = trial_json(subject, rows[128])["ir"]
        assert stages[-1] == "ptx"
        assert {"ttir", "ttgir", "llir", "ptx"} <= set(stages)
        assert "tt.func" in stage_text(subject, rows[128], "ttir")
        assert stage_text(subject, rows[128], "ptx") != stage_text(subject, rows[256], "ptx")
        with pytest.raises(NotThereError, match=r"no 'sass' was kept of row .*; there is .*ptx"):
            stage_text(subject, rows[128], "sass")


@pytest.mark.medium
def test_nothing_is_kept_unless_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("WHET_STORE", str(tmp_path / "s.db"))
    _tune()
    assert not (tmp_path / "s.db.ir").exists()
    with open_store(tmp_path / "s.db", read_only=True) as store:
        (subject,) = Library(store).subjects()
        assert trial_json(subject, 0)["ir"] == []
        with pytest.raises(NotThereError, match="tune with --keep-ir"):
            stage_text(subject, 0, "ptx")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "", "a/b", "a.b", None, 7, "é"])
def test_a_store_cannot_name_any_other_file(tmp_path, name):
    (tmp_path / "secret.json.gz").write_bytes(b"x")
    keep_stages(tmp_path / "ir", "fine", {"ttir": "text"})
    assert kept_stages(tmp_path / "ir", "fine") == {"ttir": "text"}
    assert kept_stages(tmp_path / "ir", name) == {}


def test_a_damaged_file_is_as_good_as_none(tmp_path):
    for data in (b"", b"no gzip", b"\x1f\x8b\x08\x00", b"[1]"):
        (tmp_path / "x.json.gz").write_bytes(data)
        assert kept_stages(tmp_path, "x") == {}
