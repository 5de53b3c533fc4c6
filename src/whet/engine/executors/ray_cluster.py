"""What is asked of Ray itself: to connect, which machines there are, an actor on one of them."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from whet.core.errors import UsageError, install_extra
from whet.core.tested import check_tested

NAMESPACE, BOARD = "whet", "whet-board"

# Calls of an actor in this group have a thread of their own, whatever keeps the others busy.
PULSE = "pulse"


@dataclass(frozen=True)
class Node:
    """`name` is what people call it: its host's; where a cluster is tried out on one machine,
    several share that, and the id is part of it."""

    id: str
    name: str
    address: str
    cpus: int
    gpus: int

    def builds(self, build_on: str) -> bool:
        """Whether `--build-on` names it: `all`, `cpu`, `gpu`, or names and addresses."""
        if build_on in ("all", "gpu", "cpu"):
            return build_on == "all" or (self.gpus > 0) == (build_on == "gpu")
        wanted = {part.strip() for part in build_on.split(",")}
        return bool(wanted & {self.name, self.address, self.id, self.name.partition("/")[0]})


def connect(address: str) -> bool:
    """Whether the connection is ours to end."""
    try:
        import ray
    except ImportError:
        raise UsageError(f"--ray needs Ray; install it with {install_extra('ray')}") from None
    check_tested("ray", ray.__version__)
    if ray.is_initialized():
        return False
    _keep_stdout_clean()
    # Ray repeats what its processes print; ours say what there is to say.
    quiet: dict[str, Any] = {
        "namespace": NAMESPACE,
        "log_to_driver": False,
        "logging_level": "ERROR",
        "include_dashboard": False if address == "local" else None,
    }
    try:
        if address == "local":
            ray.init(address="local", **quiet)
        else:
            del quiet["include_dashboard"]
            ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        text = str(error).strip().partition("\n")[0]
        raise UsageError(
            f"no Ray cluster at {address} ({text}); start one with ray start --head"
        ) from None
    return True


def _keep_stdout_clean() -> None:
    """Ray prints what befalls its machines on stdout, where results go, and has no option for it.
    We say which device is lost."""
    with suppress(Exception):
        from ray._private import worker

        worker.print_to_stdstream = lambda *args, **keywords: None


def connected() -> bool:
    import ray

    return bool(ray.is_initialized())


def nodes() -> list[Node]:
    """Those alive, in the order they joined as far as Ray tells."""
    import ray

    alive = [one for one in ray.nodes() if one["Alive"]]
    hosts = Counter(map(_host, alive))
    return [_node(one, alone=hosts[_host(one)] == 1) for one in alive]


def _host(one: dict[str, Any]) -> str:
    return str(one["NodeManagerHostname"] or one["NodeName"])


def _node(one: dict[str, Any], *, alone: bool) -> Node:
    resources, id = one["Resources"], one["NodeID"]
    return Node(
        id=id,
        name=_host(one) if alone else f"{_host(one)}/{id[:6]}",
        address=one["NodeManagerAddress"],
        cpus=int(resources.get("CPU", 0)),
        gpus=int(resources.get("GPU", 0)),
    )


def on_node(kind: type, node: Node, *, gpus: int, cpus: int, threads: int) -> Any:
    """An actor class that is started on this machine or nowhere, and never again elsewhere."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return ray.remote(concurrency_groups={PULSE: 1})(kind).options(
        num_gpus=gpus,
        num_cpus=cpus,
        max_concurrency=threads,
        max_restarts=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
    )
