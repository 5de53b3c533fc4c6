"""A Ray cluster of several node processes on this machine, whose GPUs exist on paper only."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import Any, Self

from whet.core.errors import install_extra


class RayMissingError(Exception):
    """Ray is not installed."""


class LocalCluster:
    """`LocalCluster(3)` has a head and three more nodes, each with `cpus` and one GPU. The head
    cannot be killed, since the tuning is connected to it."""

    def __init__(self, nodes: int = 3, *, cpus: int = 1, head_gpus: int = 1) -> None:
        try:
            import ray  # noqa: F401
            from ray.cluster_utils import Cluster
        except ImportError:
            raise RayMissingError(f"Ray is not installed ({install_extra('ray')})") from None
        logging.getLogger("ray").setLevel(logging.ERROR)
        os.environ.setdefault("RAY_DEDUP_LOGS", "0")
        self._cpus = cpus
        self._cluster: Any = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": cpus, "num_gpus": head_gpus, "include_dashboard": False},
        )
        self.nodes: list[Any] = []
        for _ in range(nodes):
            self.join(wait=False)

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def join(self, *, gpus: int = 1, cpus: int | None = None, wait: bool = True) -> Any:
        count = self._cpus if cpus is None else cpus
        node = self._cluster.add_node(wait=wait, num_cpus=count, num_gpus=gpus)
        self.nodes.append(node)
        return node

    def kill(self, node: Any) -> None:
        """At once, as when its power is cut."""
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        import ray

        ray.shutdown()
        with suppress(Exception):
            self._cluster.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
