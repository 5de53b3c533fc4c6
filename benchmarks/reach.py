"""Whether `whet.install()` reaches every autotuner of flash-linear-attention and mamba.

    python benchmarks/reach.py FOLDER

FOLDER has `fla/` and `mamba_ssm/` of the public repositories in it, and einops where that is not
installed. All submodules that can be imported are imported, once with `install()` before and once
after, each in a process of its own. No kernel is called, and no GPU needed. Exits with 1 where an
autotuner was left alone, or FLA has fewer than `--least`.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import subprocess
import sys
import types
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ORDERS = ("before", "after")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--least", type=int, default=240, help="autotuners that FLA has")
    parser.add_argument("--order", choices=ORDERS, help="in this process")
    asked = parser.parse_args()
    if asked.order is not None:
        return walk(asked.folder.resolve(), asked.order, asked.least)
    arguments = [sys.executable, __file__, str(asked.folder), "--least", str(asked.least)]
    return max(subprocess.call([*arguments, "--order", order]) for order in ORDERS)


def walk(folder: Path, order: str, least: int) -> int:
    import whet

    sys.path.insert(0, str(folder))
    # Its own __init__ imports models, which need more than its kernels do.
    mamba = types.ModuleType("mamba_ssm")
    mamba.__path__ = [str(folder / "mamba_ssm")]
    sys.modules["mamba_ssm"] = mamba
    if order == "before":
        whet.install()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        failed = import_all(("fla", "mamba_ssm"))
    if order == "after":
        whet.install()
    found = whet.installed()
    fla = [one for one in found if str(folder / "fla") in one.place]
    left = [one for one in found if one.how == "left alone"]
    print(f"install() {order} the import: {len(found)} autotuners, {len(fla)} of them FLA's")
    for (how, kind), number in Counter((one.how, one.kind) for one in found).most_common():
        print(f"  {number:4} {how:10} {kind}")
    for one in left:
        print(f"  left alone: {one.kernel} ({one.place}): {one.reason}")
    for reason, number in failed.most_common():
        print(f"  {number} modules not imported: {reason}")
    return int(bool(left) or len(fla) < least)


def import_all(packages: Iterable[str]) -> Counter[str]:
    """Why modules could not be imported, and how many."""
    failed: Counter[str] = Counter()
    for name in packages:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}.", lambda name: None):
            try:
                importlib.import_module(module.name)
            except Exception as error:
                failed[f"{type(error).__name__}: {str(error).splitlines()[0][:60]}"] += 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
