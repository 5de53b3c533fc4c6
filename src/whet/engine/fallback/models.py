"""Fitted cost models, kept as text beside the store so that using one needs no fitting: one for
each family of workloads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from whet.core.errors import UsageError
from whet.learn.costmodel import CostModel
from whet.store import StoreReader
from whet.store.beside import MOST_BYTES, FolderModels
from whet.store.protocol import Models

FORMAT, VERSION = "whet-model", 1

__all__ = ["FolderModels", "KeptModel", "ModelError", "Models", "models_beside", "read_model"]


class ModelError(UsageError):
    """A text that is no model of ours, or a damaged one."""


@dataclass(frozen=True, eq=False)
class KeptModel:
    """`taught` has the workloads it was fitted to, and how many trials each had then."""

    kernel: str
    taught: Mapping[str, int]
    model: CostModel

    def to_text(self) -> str:
        data = {
            "format": FORMAT,
            "v": VERSION,
            "kernel": self.kernel,
            "taught": dict(self.taught),
            "model": self.model.to_json(),
        }
        return json.dumps(data, separators=(",", ":"))


@lru_cache(maxsize=8)
def read_model(text: str) -> KeptModel:
    """A `ModelError` says in one line what is wrong with the text. Nothing in it is executed."""
    try:
        if len(text) > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(f"it is not a {FORMAT}")
        if data.get("v") != VERSION:
            raise ValueError(f"its version is not {VERSION}")
        kernel = data.get("kernel")
        if not isinstance(kernel, str):
            raise ValueError("it does not name its kernel")
        return KeptModel(
            kernel, _counts(data.get("taught")), CostModel.from_json(data.get("model"))
        )
    except (ValueError, RecursionError) as error:
        first = str(error).partition("\n")[0][:200]
        raise ModelError(f"cannot use the cost model: {first}; delete it or tune again") from None


def _counts(taught: Any) -> dict[str, int]:
    if not isinstance(taught, dict) or not all(type(one) is int for one in taught.values()):
        raise ValueError("it does not list its training data")
    return taught


def models_beside(store: StoreReader) -> Models:
    """Those that are kept with a store, and with the bundle under it; for a store that keeps none
    an empty mapping."""
    return store.models
