"""Scripts with random mistakes are refused where they are wrong, or compute the right thing."""

import random

import pytest

import whet
from whet.core.errors import TuningFailedError, UsageError
from whet.store.memory import MemoryStore
from whet.targets.schedule.payloads import matmul, matmul_bias_relu

pytest.importorskip("torch_mlir", reason="schedules need torch-mlir: pip install 'whet[mlir]'")
pytestmark = pytest.mark.slow


def mutant(text: str, rng: random.Random) -> str:
    lines = text.splitlines()
    body = range(3, len(lines) - 3)
    one, other = rng.choice(body), rng.choice(body)
    kind = rng.choice(["drop", "repeat", "swap", "word"])
    if kind == "drop":
        del lines[one]
    elif kind == "repeat":
        lines.insert(other, lines[one])
    elif kind == "swap":
        lines[one], lines[other] = lines[other], lines[one]
    else:
        words = lines[one].split(" ")
        words[rng.randrange(len(words))] = rng.choice(text.split())
        lines[one] = " ".join(words)
    return "\n".join(lines)


def outcome(payload, text: str) -> str:
    try:
        first = whet.schedule(payload, text).space.first
        if first is None:
            return "refused"
        only = [f"{name} == {value!r}" for name, value in first.items()]
        whet.tune(whet.schedule(payload, text, constraints=only), store=MemoryStore(), jobs=1)
    except UsageError as error:
        return "refused" if str(error).startswith("script:") else str(error)
    except TuningFailedError as error:
        return "refused" if "build_error" in str(error) and "script:" in str(error) else str(error)
    return "right"


@pytest.mark.parametrize("payload", [matmul, matmul_bias_relu])
def test_every_mutant_is_refused_with_its_place_or_right(payload):
    made = payload(16, 32, 16)
    text = whet.schedule(made).script.text
    rng = random.Random(7)
    texts = [mutant(text, rng) for _ in range(30)]
    outcomes = {one: outcome(made, one) for one in texts}
    assert {*outcomes.values()} == {"refused", "right"}, [
        (one, said) for one, said in outcomes.items() if said not in ("refused", "right")
    ]
