"""What the phases of a tuning are called in every report."""

from __future__ import annotations

WALL_NAMES = {
    "measure": "measuring",
    "load": "loading",
    "first_call": "first calls",
    "check": "checking",
    "search": "searching",
    "waiting": "waiting for builds",
    "queue": "waiting for others",
    "idle": "overhead",
}
WORK_NAMES = {
    "build": "building",
    "load": "loading",
    "first_call": "first calls",
    "check": "checking",
    "warmup": "warming up",
    "measure": "measuring",
    "search": "searching",
}
