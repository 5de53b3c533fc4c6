"""A machine that pauses, to run tests on: a command while the cores are taken away in bursts.

    sudo python tests/pauses.py --share 0.6 -- .venv/bin/python -m pytest -n 2 -m slow tests/unit

Hosts that lend more cores than they have do just that, for seconds at times. A test that fails
here relies on a clock.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from typing import NoReturn

PRIORITY = 50
LONGEST_S = 5.0


def pause(core: int, share: float, mean_s: float, dice: random.Random) -> NoReturn:
    """Takes a core for as much as `share` of the time, in bursts."""
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    while True:
        burst_s = min(LONGEST_S, dice.expovariate(1 / mean_s))
        end = time.monotonic() + burst_s
        while time.monotonic() < end:
            pass
        time.sleep(burst_s * (1 - share) / share)


def main() -> int:
    parser = argparse.ArgumentParser(description="run a command on a machine that pauses")
    parser.add_argument("--share", type=float, default=0.6, help="of each core that is taken away")
    parser.add_argument("--mean", type=float, default=0.5, help="seconds of a pause")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    pauses = []
    for core in sorted(os.sched_getaffinity(0)):
        pid = os.fork()
        if pid == 0:
            pause(core, asked.share, asked.mean, random.Random(asked.seed + core))
        pauses.append(pid)
    try:
        return subprocess.run(asked.command, check=False).returncode
    finally:
        for pid in pauses:
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
