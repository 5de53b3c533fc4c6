"""What all targets have in common whose configs become shared objects."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from whet.core.config import Config, Value
from whet.core.errors import UsageError
from whet.core.timing import Method
from whet.engine.target import BenchLimits
from whet.measure import Bench, RemoteBench
from whet.measure.timers import MakeTimer
from whet.targets.fingerprint import place_of
from whet.targets.native.compile import compiler_version
from whet.targets.native.loader import NativeLoader


class SharedObjectTarget:
    """Built in pool workers, loaded and run in a process of its own. A base of frozen dataclasses,
    which have these as fields or properties."""

    compiler: str
    rtol: float
    atol: float
    file: str
    place: str
    make_timer: MakeTimer

    shares_host = True
    build_mode = "spawn"

    if TYPE_CHECKING:  # a dataclass would take them for the defaults of its fields

        @property
        def args(self) -> Mapping[str, Any]: ...

        @property
        def expected(self) -> dict[str, Any] | None:
            """What the outputs must hold, by name; None where the author gave no reference."""

    @property
    def compared_bits(self) -> tuple[str, ...] | None:
        """The arrays whose bits are to be known; None where nobody asks for them."""
        return None

    @property
    def method(self) -> Method | None:
        return Method(self.make_timer().name)

    def compiler_version(self) -> str:
        version = compiler_version(self.compiler)
        if version is None:
            raise UsageError(
                f"C compiler '{self.compiler}' not found; install one or pass compiler="
            )
        return version

    def reject(self, config: Config) -> str | None:
        return None

    def bench(self, limits: BenchLimits) -> Bench:
        loader = NativeLoader(self.args, self.expected, self.rtol, self.atol, self.compared_bits)
        return RemoteBench(
            _Constant(loader),
            self.make_timer,
            mode="spawn",
            memory_bytes=limits.memory_bytes,
            open_session=limits.open_session,
        )

    def twin(self, config: Config, facts: Mapping[str, Value]) -> Hashable | None:
        return facts.get("sha256")

    def features(self, config: Config) -> Mapping[str, float]:
        return {}

    def defined_at(self) -> str:
        return self.place or place_of(self.file, self)

    def placed(self, place: str) -> Self:
        return replace(self, place=place)  # type: ignore[type-var]

    def call_arguments(self) -> Mapping[str, Any]:
        return self.args

    def tune_key(self) -> None:
        return None

    def tune_remedy(self, command: str) -> str:
        return f"tune it with: {command}"


@dataclass(frozen=True)
class _Constant:
    """A factory that can be sent to another process: `_Constant(x)()` is x."""

    value: NativeLoader

    def __call__(self) -> NativeLoader:
        return self.value
