"""Two sources of whet side by side: each benchmark in turns, with the scripts of its own source.

    python benchmarks/beside.py --base ../whet-0.1 engine_overhead startup
    python benchmarks/beside.py --base ../whet-0.1 --rounds 3 dispatch stored_call

`--base` is a checkout to compare with. Every figure that both report is shown: the median of the
rounds on each side with the lowest and the highest, and the ratio of the medians. What the machine
does between two rounds hits both sides alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]


def one_round(root: Path, name: str, more: list[str], limit_s: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as home:
        file = Path(home, "result.json")
        wanted = [str(file)] if name == "suite" else []  # the only one that writes a file
        done = subprocess.run(
            [sys.executable, f"benchmarks/{name}.py", *more, "--json", *wanted],
            cwd=root,
            env={
                **os.environ,
                "PYTHONPATH": str(root / "src"),
                "WHET_STORE": str(Path(home, "store.db")),
                "TRITON_CACHE_DIR": str(Path(home, "triton")),
            },
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
        text = file.read_text() if file.exists() else done.stdout
    try:
        return dict(numbers(json.loads(text)))
    except ValueError:
        raise SystemExit(f"{name} of {root}: {done.stderr.strip()[-2000:]}") from None


def numbers(data: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a JSON value, by the path to it."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from numbers(value, f"{name}.{key}" if name else str(key))
    elif isinstance(data, list):
        for at, value in enumerate(data):
            yield from numbers(value, f"{name}[{at}]")
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield name, float(data)


def shown(values: list[float]) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{f'{middle:.4g} ({low:.4g}–{high:.4g})':>27}"


def compare(name: str, base: Path, options: argparse.Namespace) -> dict[str, Any]:
    sides: dict[str, list[dict[str, float]]] = {"base": [], "here": []}
    for turn in range(options.rounds):
        order = (("base", base), ("here", HERE))
        for side, root in order if turn % 2 == 0 else reversed(order):
            sides[side].append(one_round(root, name, options.arguments, options.limit))
    shared = [
        figure
        for figure in sides["base"][0]
        if all(figure in one for side in sides.values() for one in side)
    ]
    return {
        figure: {side: [one[figure] for one in rounds] for side, rounds in sides.items()}
        for figure in shared
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", help="benchmarks, without .py")
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one round")
    parser.add_argument("--arguments", type=str.split, default=[], help="for each benchmark")
    parser.add_argument("--only", default="", help="figures whose name has this in it")
    parser.add_argument("--json", metavar="FILE", type=Path)
    options = parser.parse_args()
    found = {}
    for name in options.names:
        found[name] = compare(name, options.base.resolve(), options)
        print(f"{name}, {options.rounds} rounds{'base':>40} {'here':>27} {'ratio':>7}")
        for figure, both in found[name].items():
            if options.only in figure:
                middle = {side: statistics.median(values) for side, values in both.items()}
                ratio = middle["here"] / middle["base"] if middle["base"] else float("nan")
                print(f"  {figure:<40}{shown(both['base'])} {shown(both['here'])} {ratio:7.3f}")
        sys.stdout.flush()
        if options.json:
            options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
