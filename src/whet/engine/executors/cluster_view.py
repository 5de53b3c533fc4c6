"""What a tuning over a Ray cluster is doing, as others on the cluster see it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from whet.engine.executors.ray_cluster import BOARD, NAMESPACE, connect, nodes


def read_cluster(address: str) -> dict[str, Any]:
    """Machines of the cluster, and what a tuning that is under way does with them; `devices` is
    missing where there is none. Raises `UsageError` where there is no cluster."""
    own = connect(address)
    import ray

    try:
        found: dict[str, Any] = {
            "v": 1,
            "machines": [
                {"name": one.name, "address": one.address, "cpus": one.cpus, "gpus": one.gpus}
                for one in nodes()
            ],
        }
        with suppress(ValueError):  # there is no such actor
            board = ray.get_actor(BOARD, namespace=NAMESPACE)
            text, age_s = ray.get(board.read.remote(), timeout=10)
            found.update(json.loads(text), age_s=age_s)
        return found
    finally:
        if own:
            ray.shutdown()
