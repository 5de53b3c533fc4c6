"""A key that was never tuned takes over what is known of the kernel at other keys."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.core.config import Config
from whet.core.frozen import FrozenMap
from whet.core.space import Space
from whet.core.status import Status
from whet.core.timing import Timing
from whet.core.trial import Trial
from whet.core.workload import Device, Workload
from whet.engine.fallback import inheritance
from whet.engine.fallback.inheritance import (
    FolderModels,
    ModelError,
    inheritance_candidates,
    inherited,
    models_beside,
    read_model,
    refresh_models,
)
from whet.store import MemoryStore, SqliteStore, Store
from whet.testing.fake_target import FakeTarget

SPACE = Space({"BM": [16, 32, 64, 128, 256], "stages": [1, 2, 3]})
SIZES = (128, 256, 384, 512, 768, 1536, 2048, 4096)


class Sized(FakeTarget):
    """Eight tiles are best, so that the best config moves with the size."""

    def __init__(self, key: Mapping[str, Any], space: Space = SPACE, **more: Any) -> None:
        super().__init__(space, lambda config: ns_of(config, key["M"]), **more)
        self.key = FrozenMap({"dtype": "f16", **key})

    def workload(self) -> Workload:
        return replace(super().workload(), key=self.key)


def ns_of(config: Any, m: int) -> float:
    away = abs(math.log2(math.ceil(m / int(config["BM"]))) - 3)
    return 1000.0 * (1 + 0.3 * away + 0.1 * int(config["stages"]))


def know(store: Store, workload: Workload) -> None:
    store.put_workload(workload)
    store.append(
        Trial(workload.id, config, Status.OK, Timing((ns_of(config, workload.key["M"]),), "cpu"))
        for config in SPACE
    )


def knowing(*sizes: int, store: Store | None = None) -> Store:
    store = MemoryStore() if store is None else store
    for m in sizes:
        know(store, Sized({"M": m}).workload())
    return store


class TestNearest:
    def test_an_empty_store_gives_nothing(self) -> None:
        assert inherited(Sized({"M": 64}), MemoryStore()) is None
        assert inheritance_candidates(Sized({"M": 64}), MemoryStore(), 3) == []

    def test_one_known_key_is_the_nearest(self) -> None:
        choice = inherited(Sized({"M": 1024}), knowing(512), fit=True)
        assert choice is not None
        assert (choice.source, choice.config) == ("nearest", Config(BM=64, stages=1))
        assert "best at M=512" in choice.reason
        assert "1 tuned key (1.0 doublings away)" in choice.reason

    def test_near_is_by_ratio_not_by_difference(self) -> None:
        choice = inherited(Sized({"M": 1024}), knowing(128, 4096))
        assert choice is not None
        assert choice.config == Config(BM=256, stages=1)

    def test_the_farther_the_less_sure(self) -> None:
        near, far = (inherited(Sized({"M": m}), knowing(512)) for m in (600, 100_000))
        assert near is not None
        assert far is not None
        assert 1 > near.confidence > far.confidence > 0

    @pytest.mark.parametrize("differing", [{"dtype": "f32"}, {"causal": True}, {"N": 8}])
    def test_another_dtype_or_kind_of_key_never_inherits(self, differing: dict[str, Any]) -> None:
        assert inherited(Sized({"M": 512, **differing}), knowing(256, 512)) is None

    def test_a_config_that_is_no_longer_offered_is_never_chosen(self) -> None:
        smaller = Space({"BM": [16, 32, 64], "stages": [1, 2, 3]})
        choice = inherited(Sized({"M": 4096}, smaller), knowing(256, 2048))
        assert choice is not None
        assert choice.config == Config(BM=32, stages=1)
        strange = Space({"BM": [8], "stages": [1, 2, 3]})
        assert inherited(Sized({"M": 4096}, strange), knowing(256, 2048)) is None

    def test_a_config_the_target_rejects_is_never_chosen(self) -> None:
        target = Sized({"M": 2048}, reject=lambda one: "no" if one["BM"] == 256 else None)
        choice = inherited(target, knowing(2048 + 8, 512))
        assert choice is not None
        assert choice.config == Config(BM=64, stages=1)

    def test_other_circumstances_are_said_and_trusted_less(self) -> None:
        store = MemoryStore()
        elsewhere = replace(
            Sized({"M": 512}).workload(), device=Device("another device", "fake", "f1")
        )
        know(store, elsewhere)
        loose, strict = (inherited(Sized({"M": 600}), one) for one in (store, knowing(512)))
        assert loose is not None
        assert strict is not None
        assert "a different device" in loose.reason
        assert loose.confidence < strict.confidence

    def test_the_same_circumstances_come_first(self) -> None:
        store = knowing(4096)
        know(store, replace(Sized({"M": 512}).workload(), fingerprint="older"))
        choice = inherited(Sized({"M": 512}), store)
        assert choice is not None
        assert choice.config == Config(BM=256, stages=1)


class TestModel:
    @pytest.mark.medium
    def test_a_sure_model_is_preferred_to_the_nearest(self) -> None:
        choice = inherited(Sized({"M": 1024}), knowing(*SIZES), fit=True)
        assert choice is not None
        assert (choice.source, choice.config) == ("model", Config(BM=128, stages=1))
        assert 0.7 <= choice.confidence <= 1

    @pytest.mark.medium
    def test_it_is_not_trusted_far_from_what_it_knows(self) -> None:
        choice = inherited(Sized({"M": 10**7}), knowing(*SIZES), fit=True)
        assert choice is not None
        assert choice.source == "nearest"
        assert "not confident" in choice.reason

    def test_without_leave_to_fit_the_nearest_is_used_and_it_says_so(self) -> None:
        choice = inherited(Sized({"M": 1024}), knowing(*SIZES))
        assert choice is not None
        assert choice.source == "nearest"
        assert "cost model" in choice.reason

    @pytest.mark.medium
    def test_its_pick_is_of_the_space_and_not_rejected(self) -> None:
        target = Sized(
            {"M": 1024},
            Space({"BM": [64, 128], "stages": [1, 2, 3, 9]}),
            reject=lambda one: "no" if one["BM"] == 128 else None,
        )
        choice = inherited(target, knowing(*SIZES), fit=True)
        assert choice is not None
        assert choice.config in target.space
        assert choice.config["BM"] == 64

    @pytest.mark.medium
    def test_candidates_are_different_and_begin_with_the_pick(self) -> None:
        target, store, models = Sized({"M": 1024}), knowing(*SIZES), dict[str, str]()
        choice = inherited(target, store, models=models, fit=True)
        candidates = inheritance_candidates(target, store, 3, models=models)
        assert choice is not None
        assert candidates[0] == choice.config
        assert len(set(candidates)) == 3


class TestKeeping:
    @pytest.mark.medium
    def test_a_model_kept_beside_the_store_is_used_without_scikit_learn(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "store.db"
        with SqliteStore(path) as store:
            knowing(*SIZES, store=store)
            assert refresh_models(store)
        code = (
            "import sys; from test_engine_inheritance import Sized; "
            "from whet.engine.fallback.inheritance import inherited; "
            "from whet.store import open_store; "
            "choice = inherited(Sized({'M': 1024}), open_store(sys.argv[1], read_only=True)); "
            "print(choice.source, 'sklearn' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)],
            env={"PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path])},
            check=True,
            capture_output=True,
            text=True,
        )
        assert done.stdout.split() == ["model", "False"]

    @pytest.mark.medium
    def test_it_is_fitted_again_only_when_trials_were_added(self, tmp_path: Path) -> None:
        with SqliteStore(tmp_path / "store.db") as store:
            knowing(*SIZES, store=store)
            models = models_beside(store)
            refresh_models(store)
            (name,) = models
            models[name] = f" {models[name]}"
            refresh_models(store)
            assert models[name].startswith(" ")
            knowing(8192, store=store)
            refresh_models(store)
            assert not models[name].startswith(" ")

    @pytest.mark.medium
    def test_one_new_key_does_not_make_it_useless(self) -> None:
        store, models = knowing(*SIZES), dict[str, str]()
        inherited(Sized({"M": 1024}), store, models=models, fit=True)
        knowing(8192, store=store)
        choice = inherited(Sized({"M": 1024}), store, models=models)
        assert choice is not None
        assert choice.source == "model"
        knowing(*(2**n for n in range(14, 26)), store=store)
        choice = inherited(Sized({"M": 1024}), store, models=models)
        assert choice is not None
        assert "older" in choice.reason

    @pytest.mark.medium
    def test_a_damaged_one_is_said_and_the_nearest_used(self) -> None:
        store, models = knowing(*SIZES), dict[str, str]()
        inherited(Sized({"M": 1024}), store, models=models, fit=True)
        (name,) = models
        models[name] = models[name][:-20]
        choice = inherited(Sized({"M": 1024}), store, models=models)
        assert choice is not None
        assert choice.source == "nearest"
        assert "cannot use" in choice.reason
        assert "\n" not in choice.reason

    @pytest.mark.medium
    def test_a_read_only_store_gets_no_folder(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        knowing(*SIZES, store=SqliteStore(path))
        with SqliteStore(path, read_only=True) as store:
            inherited(Sized({"M": 1024}), store, fit=True)
        assert not Path(f"{path}.models").exists()

    @pytest.mark.medium
    @given(st.text() | st.sampled_from(["[" * 100_000, "{}", "1" * 5000, '{"format": NaN}']))
    def test_any_other_text_is_refused_in_one_line(self, text: str) -> None:
        with pytest.raises(ModelError, match=r"\Acannot use the cost model: [^\n]*\Z"):
            read_model(text)

    def test_a_model_of_another_version_is_refused(self) -> None:
        text = json.dumps({"format": "whet-model", "v": 2})
        with pytest.raises(ModelError, match="its version is not 1"):
            read_model(text)

    @pytest.mark.parametrize("name", ["../out", "a/b", "", ".", "a\0b"])
    def test_a_name_cannot_leave_the_folder(self, tmp_path: Path, name: str) -> None:
        models = FolderModels(tmp_path / "models")
        with pytest.raises(KeyError):
            models[name] = "text"
        assert name not in models
        assert list(tmp_path.iterdir()) == []


@pytest.mark.medium
def test_of_a_kernel_with_very_many_keys_the_list_is_read_once(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store.db") as store:
        for m in range(inheritance.MANY_KEYS):
            workload = Sized({"M": 2 * m + 1}).workload()
            store.put_workload(workload)
            config = Config(BM=16, stages=1)
            store.append([Trial(workload.id, config, Status.OK, Timing((1000.0,), "cpu"))])
        asked: list[str | None] = []
        listing = store.workloads
        store.workloads = lambda kernel=None: asked.append(kernel) or listing(kernel)  # type: ignore[method-assign,func-returns-value]
        for m in (10, 20, 30):
            choice = inherited(Sized({"M": m}), store)
            assert choice is not None
            assert choice.source == "nearest"
    assert len(asked) == 1
