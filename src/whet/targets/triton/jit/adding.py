"""Specializations that somebody asks for by hand: `whet jit add scale n=1`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from whet.core.errors import UsageError, did_you_mean
from whet.targets.triton.jit.constants import encoded
from whet.targets.triton.jit.reachable import valued
from whet.targets.triton.jit.specialization import CONSTANT, DIVISIBLE, JitArgument, Specialization


def asked_for(like: Specialization, changes: Sequence[str]) -> Specialization:
    """A recorded specialization with other arguments: `n=1`, `x=*fp16`, `x=*fp16:unaligned`,
    `BLOCK=128`, `num_warps=8`."""
    arguments: dict[str, JitArgument] = {}
    options = dict(like.options)
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals:
            raise UsageError(f"{change!r} is not valid; use NAME=VALUE, such as n=1 or x=*fp16")
        known = like.argument(name)
        if known is not None:
            arguments[name] = _changed(known, text)
        elif name in options:
            options[name] = _constant(text, options[name])
        else:
            names = [*(one.name for one in like.arguments), *options]
            raise UsageError(f"kernel {like.kernel} has no '{name}'{did_you_mean(name, names)}")
    return replace(like.changed(arguments), options=tuple(options.items()))


def _changed(argument: JitArgument, text: str) -> JitArgument:
    if argument.declared == CONSTANT:
        return replace(argument, special=_constant(text, argument.special))
    if text.startswith("*"):
        kind, _, alignment = text.partition(":")
        if alignment not in ("", "unaligned"):
            raise UsageError(f"{text!r} is not valid; use a type such as *fp16 or *fp16:unaligned")
        special = None if not argument.specialize else "" if alignment else DIVISIBLE
        return replace(argument, type=kind, special=special)
    value = _constant(text)
    if value is None:
        return replace(argument, type=CONSTANT, special=None, value=None)
    if type(value) is int and (argument.is_integer or argument.type == CONSTANT):
        return valued(argument, value)
    raise UsageError(
        f"argument {argument.name} is {argument.property_text}; {text!r} is not valid for it"
    )


def _constant(text: str, like: object = None) -> object:
    """As messages show it. A dtype, a member of an enum or a kernel is typed by its name alone, and
    is one where the recorded constant is."""
    if isinstance(like, dict) and text != "None":
        for kind in ("dtype", "torch", "kernel"):
            if kind in like:
                return {kind: text}
        if "enum" in like:
            return {**like, "member": text.rpartition(".")[2]}
        if "constexpr" in like:
            return {"constexpr": _constant(text, like["constexpr"])}
    try:
        return encoded(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return text
