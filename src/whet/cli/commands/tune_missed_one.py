"""One key that was met where nothing may be tuned, tuned now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whet.cli.arguments.tuning import run_tuning
from whet.core.errors import UsageError, WhetError
from whet.core.miss import Miss

if TYPE_CHECKING:
    from whet.cli.arguments.missed import LocatedMiss
    from whet.core.run import Result
    from whet.engine.settings import Settings
    from whet.engine.target import Target
    from whet.targets.triton.offline.kernel import Kernel


# What the same problem may differ in by now; the old miss is settled by the new result.
_GROWN = {"fingerprint", "toolchain"}


_BUCKETS = "; use the policy file it was recorded with, since that decides on buckets"


@dataclass(frozen=True)
class Settled:
    """A missed key and what came of it; without a result, `why` says why and what to do."""

    miss: Miss
    result: Result | None
    why: str = ""


class TuningInterrupted(Exception):
    """Ctrl-C: what was tuned so far is told, and nothing more is begun."""


@dataclass(frozen=True)
class Offline:
    """How everything is tuned that this command line asks for."""

    flags: Mapping[str, str | None]
    settings: Settings
    quiet: bool

    def settle(self, one: LocatedMiss) -> Settled:
        from whet.engine.target import Target
        from whet.store.matching import differences

        found, miss = one.found, one.miss
        if found is None:
            return Settled(miss, None, one.why)
        try:
            if isinstance(found, Target):
                result = self._target(found, miss)
            else:
                result = self._kernel(found, one.path, miss)
        except WhetError as error:
            return Settled(miss, None, str(error))
        differs = set(differences(miss.workload, result.run.workload)) - _GROWN
        if differs:
            what = f"{result.run.workload} instead; differs: {', '.join(sorted(differs))}"
            if isinstance(found, Target) or found.tuner.whet_inputs is not None:
                return Settled(miss, None, f"its inputs= produce {what}")
            return Settled(miss, None, f"the recorded call is {what}{_BUCKETS}")
        if result.source == "waited":
            return Settled(miss, None, result.notes[-1])
        return Settled(miss, result)

    def _target(self, target: Target, miss: Miss) -> Result:
        from whet.store.matching import differences

        differs = set(differences(miss.workload, target.workload())) - _GROWN
        if differs:
            raise UsageError(
                f"{miss.where} is now {target.workload()}; tune it with the arguments it was "
                f"called with (differs: {', '.join(sorted(differs))})"
            )
        result, interrupted = run_tuning(target, self.settings, quiet=self.quiet)
        if interrupted or result is None:
            raise TuningInterrupted
        return result

    def _kernel(self, kernel: Kernel, path: Path, miss: Miss) -> Result:
        """By the kernel's own `inputs`, else by what was recorded of the call."""
        from whet.cli.arguments.missed import making_again
        from whet.cli.commands.tune_keys import tune_keys
        from whet.targets.triton.offline.tuning import check_device, check_ready

        with making_again(kernel, miss) as key:
            check_ready(kernel)
            check_device(miss.workload.device)
            store = self.settings.store
            done, interrupted = tune_keys(
                kernel, [dict(key)], self.flags, store=store, path=path, quiet=self.quiet
            )
        if interrupted:
            raise TuningInterrupted
        if done[0].result is None:
            raise WhetError(done[0].why)
        return done[0].result
