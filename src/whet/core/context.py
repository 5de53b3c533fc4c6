"""`TuningContext`: what a strategy may know of what is tuned besides its space, for those that want
more than outcomes: source, intermediate code, the device, and a model to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from whet.core.workload import Device


class AdviceError(Exception):
    """Nobody has answered; the message says why, and has no secrets in it."""


@dataclass(frozen=True)
class Exchange:
    """A question that was asked, and what became of the answer: the configs that were taken, each
    with its reason, and why others were not."""

    prompt: str
    answer: str
    taken: tuple[tuple[Mapping[str, Any], str], ...] = ()
    refused: tuple[str, ...] = ()
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "v": 1,
            "prompt": self.prompt,
            "answer": self.answer,
            "taken": [{"config": dict(config), "reason": why} for config, why in self.taken],
            "refused": list(self.refused),
            "error": self.error,
        }


@dataclass(frozen=True)
class TuningContext:
    """Texts are empty where they are not known. `advise` gives a model's answer to a prompt, or
    raises `AdviceError`; None where no model may be asked. `keep` is told of every exchange."""

    kernel: str = ""
    key: Mapping[str, Any] = field(default_factory=dict)
    device: Device | None = None
    source: str = ""
    code: Mapping[str, str] = field(default_factory=dict)
    advise: Callable[[str], str] | None = None
    keep: Callable[[Exchange], None] | None = None


class PromptShown(BaseException):
    """In place of a tuning, what it would have sent first. No `except Exception` is meant by it."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        super().__init__()
        self.told = told


_showing: ContextVar[bool] = ContextVar("showing", default=False)


@contextmanager
def showing_prompts() -> Iterator[None]:
    """Tunings in here raise `PromptShown`; nothing is sent, built or stored."""
    token = _showing.set(True)
    try:
        yield
    finally:
        _showing.reset(token)


def shows_prompts() -> bool:
    return _showing.get()
