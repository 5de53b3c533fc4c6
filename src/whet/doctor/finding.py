"""What the doctor reports: a diagnosis of findings, each with evidence, a place and a remedy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.doctor.modes.verdict import TrialOfModes


@dataclass(frozen=True)
class Line:
    """A line of the user's; `line` is 0 where only the file is known, `file` empty where not even
    that."""

    file: str = ""
    line: int = 0
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Remedy:
    """`tried` says what came of it when the doctor applied it to this model; empty where it could
    not, since the code itself has to change. `works` is None then."""

    text: str
    tried: str = ""
    works: bool | None = None


@dataclass(frozen=True)
class Finding:
    """`name` is one of `NAMES`; `code` is the entry in torch's registry of graph breaks; `call` is
    the last call of those tried that was compiled again, from 1 on, for a recompilation; `repro` is
    an expression of `model` that shows it."""

    name: str
    evidence: str
    place: Line
    remedies: tuple[Remedy, ...]
    code: str = ""
    count: int = 1
    call: int = 0
    repro: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


NAMES = {
    "graph-break": "the model is compiled in parts",
    "recompilation": "the model is compiled again and again",
    "upcast": "an operation computes in a wider type than its input",
    "host-copy": "values are copied to the host",
    "input-mutation": "the model changes its input in place",
    "compile-call": "torch.compile is called with arguments it does not take",
    "cuda-graphs": "CUDA graphs are not used",
    "graph-recording": "CUDA graphs are recorded again and again",
    "host-bound": "the device waits for the host",
    "launch-overhead": "launching small kernels takes longer than computing",
    "two-assemblers": "what the autotuner chooses from is built twice",
    "autotune-pick": "a careful timer contradicts the autotuner",
    "vendor-library": "generated kernels lose to the vendor's library",
    "cold-start": "a second process compiles again although the caches are warm",
    "numerics": "results are further from float64 than rounding explains",
    "disabled": "torch.compile is switched off",
    "variable": "an environment variable that torch does not read is set",
    "failing-mode": "a mode of torch.compile fails on the model",
    "not-compiled": "nothing of the model is compiled",
    "compile-error": "the model cannot be compiled",
}


@dataclass(frozen=True)
class Examination:
    """`left_out` has a line for each finding that could not be looked for, and why; `conditions`
    those under which torch silently does less than a mode's name says; `notes` what is worth
    knowing and no fault. `interrupted`: Ctrl-C ended it before its end."""

    findings: tuple[Finding, ...]
    left_out: tuple[str, ...] = ()
    graphs: int | None = None
    operations: int | None = None
    conditions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    interrupted: bool = False


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
