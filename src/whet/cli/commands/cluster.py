"""`whet cluster`: who does what in a tuning over a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption

EXAMPLES = """\b
Examples:
  whet cluster                   the cluster of this machine
  whet cluster 10.0.0.1:6379     another one
  whet cluster --json            the same as JSON
"""


def cluster(
    address: Annotated[
        str,
        typer.Argument(metavar="ADDRESS", help="Address of the Ray cluster (default: auto)."),
    ] = "auto",
    json: JsonOption = False,
) -> None:
    """Show what each machine of a Ray cluster is doing for whet.

    Lists the devices that measure, the machines that build, and those that are not used, with the
    reason.
    """
    from whet.cli.terminal.output import columns, print_json, print_lines
    from whet.engine.executors.cluster_view import read_cluster

    found = read_cluster(address)
    if json:
        print_json(found)
    else:
        print_lines(cluster_text(found, columns()))


def cluster_text(found: Mapping[str, Any], width: int) -> list[str]:
    from whet.cli.terminal.output import Column, table

    machines = [
        (one["name"], str(one["cpus"]), str(one["gpus"]), _building(found, one["name"]))
        for one in found["machines"]
    ]
    layout = [
        Column("machine"),
        Column("cores", align="right"),
        Column("GPUs", align="right"),
        Column("building", flexible=True),
    ]
    lines = table(layout, machines, width)
    if "devices" not in found:
        return [*lines, "", "no tuning is under way"]
    devices = [(name, doing or "idle") for name, doing in found["devices"].items()]
    lines += ["", *table([Column("device"), Column("doing", flexible=True)], devices, width)]
    return [*lines, *(["", *found["refused"]] if found["refused"] else [])]


def _building(found: Mapping[str, Any], name: str) -> str:
    one = found.get("builds", {}).get(name)
    if one is None:
        return "–"
    return ", ".join(one["building"]) or "idle"
