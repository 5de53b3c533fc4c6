"""What whet's functions return."""

from whet.core.run import Choice, Result
from whet.core.status import Status
from whet.core.trial import Trial
from whet.doctor.finding import Diagnosis
from whet.engine.fallback.background import Refinement
from whet.targets.benching import Bench, Timed
from whet.targets.triton.warming.warmup import Warmup

__all__ = [
    "Bench",
    "Choice",
    "Diagnosis",
    "Refinement",
    "Result",
    "Status",
    "Timed",
    "Trial",
    "Warmup",
]
