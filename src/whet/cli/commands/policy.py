"""`whet policy check`: rules of the policy file that match nothing, or disagree."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.options import JsonOption, StoreOption
from whet.core.errors import UsageError

if TYPE_CHECKING:
    from whet.engine.policy.rules import Policy

ABOUT = "Check the policy file, which has settings for single kernels."
_MOST_KEYS = 12

_ONLY_STORED = (
    "Known are the kernels in the store alone; name a FILE.py or a --module to know all of its own."
)

EXAMPLES = """\b
Examples:
  whet policy check
  whet policy check train.py
"""
CHECK_EXAMPLES = """\b
Examples:
  whet policy check                    against the kernels in the store
  whet policy check train.py           and those that train.py imports
  whet policy check --module fla.ops   and those of a library

\b
The file is $WHET_POLICY, or whet.toml beside the program, or whet.toml in the
working directory. The exit code is 1 if something is wrong with it.
"""


def check(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE.py", help="A program whose kernels to look at.", show_default=False
        ),
    ] = None,
    module: Annotated[
        str | None, typer.Option("--module", "-m", metavar="NAME", help="A module to import.")
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Find rules that match no kernel, do not fit, or disagree."""
    from whet.cli.arguments.kernels import kernels_in_store, live_tuners
    from whet.cli.terminal.output import page, print_json, print_lines, wrap
    from whet.engine.policy.checking import KnownKernel, problems
    from whet.engine.policy.finding import current_policy

    tuners = live_tuners(file, module) if file or module else []
    policy = current_policy()
    if policy is None:
        raise UsageError("there is no policy file; write whet.toml, or set WHET_POLICY")
    kernels = kernels_in_store(store)
    if tuners:
        from whet.targets.triton.policy_fitting import kernel_module

        kernels += [KnownKernel(str(t.base_fn.__name__), (kernel_module(t),)) for t in tuners]
    count = len({one.name for one in kernels})
    found = [(one.line, one.text) for one in problems(policy, kernels)]
    found = sorted({*found, *_misfits(policy, tuners)})
    if json:
        lines = [{"line": line, "text": text} for line, text in found]
        print_json({"v": 1, "policy": str(policy.path), "kernels": count, "problems": lines})
    else:
        print_lines([f"{policy.path}:{line}: {text}" for line, text in found])
        print_lines([_summary(policy, count, len(found))])
        if found and kernels and not tuners:
            print_lines(wrap(_ONLY_STORED, page()))
    if found:
        raise typer.Exit(1)


def _misfits(policy: Policy, tuners: list[Any]) -> list[tuple[int, str]]:
    """A rule that names a kernel and does not fit it, and a setting that fits none of the kernels
    that a pattern has met."""
    if not tuners:
        return []
    from whet.targets.triton.policy_fitting import kernel_module, misfits

    met: Counter[tuple[int, str]] = Counter()
    found: dict[tuple[int, str], list[Any]] = {}
    for tuner in tuners:
        rulings = policy.rulings(str(tuner.base_fn.__name__), [kernel_module(tuner)])
        met.update((ruling.rule.number, setting) for setting, ruling in rulings.items())
        own = {(one.ruling.rule.number, one.setting): one for one in misfits(tuner, rulings)}
        for place, one in own.items():
            found.setdefault(place, []).append(one)
    told = []
    for place, several in found.items():
        one, line = several[0], policy.line(several[0].ruling.rule, place[1])
        if one.ruling.exact:
            told.append((line, f"{one.setting} does not fit '{one.kernel}': {one.why}"))
        elif len(several) == met[place]:
            why = one.why if len({each.why for each in several}) == 1 else _summed_up(several)
            told.append((line, f"{one.setting} fits no kernel that the rule matches: {why}"))
    return told


def _summed_up(several: list[Any]) -> str:
    """Reasons that are not the same for all kernels."""
    keys = list(dict.fromkeys(key for one in several for key in one.keys))
    if not keys:
        return f"{several[0].why} ('{several[0].kernel}', for one)"
    name = several[0].setting.partition(".")[2]
    more = ", …" if len(keys) > _MOST_KEYS else ""
    return f"'{name}' is in none of their keys, which have {', '.join(keys[:_MOST_KEYS])}{more}"


def _summary(policy: Policy, kernels: int, found: int) -> str:
    rules = len(policy.rules)
    said = f"{rules:,} rule{'' if rules == 1 else 's'} in {policy.path}"
    if not kernels:
        return f"{said}; the store has no kernels, so name a FILE.py or a --module to match them"
    known = f"{kernels:,} known kernel{'' if kernels == 1 else 's'}"
    problems = f"{found:,} problem{'' if found == 1 else 's'}" if found else "no problems"
    return f"{said}, {known}: {problems}"
