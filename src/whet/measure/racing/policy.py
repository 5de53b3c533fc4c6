"""How hard to look before a config is out, and before one has won: frozen data."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class RacePolicy:
    """All noises are relative, and the least that anybody may claim: `noise_floor` of one sample,
    `visit_noise` of a kernel's level between two visits, `rerun_noise` between two runs.

    A config is out at once when it is `hopeless` times slower than the best. A closer call waits
    until the device's pace has been checked, which happens every `anchor_every` such calls; one
    that misses by less than `second_visit` times is looked at once more before.
    A warm-up that is `hopeless_warm_up` times slower than the best, and `warm_up_slack_ns` more,
    ends a config without a sample. Rounds end at `finalists` configs, at ±`precision`, or after
    `max_samples` each; while more than `crowd` are left, at most half of them survive a round.
    """

    first_samples: int = 2
    growth: int = 2
    max_samples: int = 32
    finalists: int = 4
    crowd: int = 16
    confidence: float = 0.95
    precision: float = 0.01
    noise_floor: float = 0.005
    visit_noise: float = 0.01
    rerun_noise: float = 0.02
    hopeless: float = 1.5
    hopeless_warm_up: float = 4.0
    warm_up_slack_ns: float = 30_000.0
    anchor_every: int = 4
    second_visit: float = 1.0


@dataclass(frozen=True)
class DuelPolicy:
    """A duel is checked after `first_check` rounds and then ever more rarely, up to `max_rounds`,
    or until `max_seconds` are over and it has had `min_rounds`.

    `confidence` holds for the duel as a whole: over all its checks and all its contestants.
    Two kernels are equal when their ratio is known to lie within ±`equal_within`.
    """

    first_check: int = 6
    growth: float = 1.35
    min_rounds: int = 1
    max_rounds: int = 30
    max_seconds: float | None = 10.0
    confidence: float = 0.95
    equal_within: float = 0.005

    def head_to_head(self, min_rounds: int) -> DuelPolicy:
        """For two of whom one must be shown to be faster, in up to four times the rounds. It is
        checked as soon as anything can be shown and seldom after that: every check makes the others
        stricter."""
        most = 4 * self.max_rounds
        return replace(self, min_rounds=min_rounds, first_check=10, growth=3.0, max_rounds=most)
