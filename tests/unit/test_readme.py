"""What the README shows is what is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("example", ["blocked_norm", "dot"])
def test_examples_are_shown_as_they_are(example):
    assert f"```python\n{(ROOT / 'examples' / f'{example}.py').read_text()}```" in README


def test_every_file_it_points_to_exists():
    linked = re.findall(r"\]\(([\w./]+)\)", README)
    run = re.findall(r"benchmarks/\w+\.py|examples/\w+\.py", README)
    assert linked
    assert run
    for path in (*linked, *run):
        assert (ROOT / path).exists(), path
