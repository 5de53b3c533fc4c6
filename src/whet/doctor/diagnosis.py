"""What the doctor found, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whet.doctor.finding import Examination
from whet.doctor.modes.verdict import TrialOfModes


@dataclass(frozen=True)
class Diagnosis:
    """`trial` is None where modes were not to be timed, or could not; `problem` says why the model
    could not be made."""

    name: str
    place: str
    torch: str
    examination: Examination
    trial: TrialOfModes | None = None
    problem: str = ""
    device: str = ""

    @property
    def interrupted(self) -> bool:
        return self.examination.interrupted or (self.trial is not None and self.trial.interrupted)

    def to_json(self) -> dict[str, Any]:
        looked = self.examination
        return {
            "v": 1,
            "name": self.name,
            "place": self.place,
            "torch": self.torch,
            "device": self.device,
            "problem": self.problem,
            "interrupted": self.interrupted,
            "graphs": looked.graphs,
            "operations": looked.operations,
            "findings": [finding.to_json() for finding in looked.findings],
            "left_out": list(looked.left_out),
            "conditions": list(looked.conditions),
            "notes": list(looked.notes),
            "trial": None if self.trial is None else self.trial.to_json(),
        }
