"""What people type: constraints, budgets, sizes, settings, keys; and a compiler's text."""

from __future__ import annotations

import itertools
import json
import math
import unicodedata  # noqa: F401 - Python imports it for a name that is not ASCII
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing.target import RUNS_CODE, Target, WrongAnswerError, folder, written
from whet.cli.arguments.options import read_keys
from whet.cli.commands.store_gc import _bytes as typed_bytes
from whet.cli.commands.store_gc import _seconds as typed_seconds
from whet.core.buckets import Buckets
from whet.core.budget import Budget
from whet.core.config import Config
from whet.core.errors import SettingsError, SpaceError, UsageError
from whet.core.space import Space
from whet.engine.settings import SETTINGS, resolve_settings
from whet.targets.triton.compiler.effects import effects

_PARAMETERS: dict[str, list[Any]] = {
    "a": [1, 2, 4, 8],
    "b": [0, 16, -3],
    "f": [0.5, 2.0],
    "s": ["row", "col", "%s"],
    "t": [(1, 2), (2, 1)],
    "n": [None, True],
}

# Each is a way out of an expression that somebody has once used somewhere.
ESCAPES = (
    "a.__class__", "().__class__.__bases__[0].__subclasses__()", "a.bit_length()", "s.upper()",
    "s.format(a)", "'{0.__class__}'.format(a)", "f'{a}'", "f'{a.__class__}'", "s % (a,)",
    "'%9999999999d' % a", "__import__('os').system('true')", "__builtins__", "open('/etc/passwd')",
    "eval('1')", "exec('1')", "compile('1','','eval')", "globals()", "vars()", "getattr(a,'real')",
    "(lambda: a)()", "lambda: a", "[x for x in (1, a)]", "{x for x in (1, a)}", "(x for x in (a,))",
    "{a: 1 for a in (1,)}", "{**a}", "[*s]", "max(*s)", "max(a, key=len)", "max(a, default=1)",
    "(a := 5)", "await a", "(yield a)", "a if a else (yield)", "a ** a ** a ** a ** a",
    "9**9**9**9", "2 ** 100000000 > a", "a << 100000000", "1 << a << a << 99999",
    "(a << 4096) << 4096", "'x' * 1000000000 == s", "s * 1000000000", "t * 1000000000",
    "(a,) * 1000000000", "[a] * 10**9", "10**9 * t", "s + s + s == 'x' * 10**9", "a == 1e999",
    "a == 1j", "a == b'x'", "a == ...", "a is 1", "a is not None", "(" * 100 + "a" + ")" * 100,
    "-" * 1500 + "a", "not " * 400 + "a", "[" * 300 + "a" + "]" * 300, "a" + "+a" * 900,
    "a" + " and a" * 300, "a" + "[0]" * 500, "a if a else " * 150 + "a",
    "len(s) ** len(s) ** 999", "sum((2**4000,) * 1)", "round(a, -10**9)", "round(f, 10**9)",
    "int('9' * 5000)", "int(s)", "int(1e308) ** 40 > a", "lcm(2**4000, 3**2500)", "abs",
    "abs == a", "max", "s[0:1]", "s[::-1]", "t[10**30]", "s['a']", "index(t, a)",
    "index(s, 'x')", "all(s)", "sum(s)", "sum(t, ())", "min(())", "log2(b)",
    "log2(2**5000) > a", "f ** -1e308 > a", "b ** -1", "b ** 0.5 > a", "a % 0", "a // 0",
    "1 / b", "a\x00", "a;b", "a\nb", "a #", "a=1", "print(a)", "a.b = 1", "del a", "import os",
    "a @ b", "~s", "-s", "+t", "\ud800", "s == '\\ud800'", "s == '\\N{SNOWMAN}'", "\uff41",
    "a \u2264 1", "0x" + "f" * 900 + " > a", "9" * 1900 + " > a", "1_000 > a", "0b1 > a",
    "1e400 > a", "'" + "\\x41" * 400 + "' == s",
)  # fmt: skip
_EXPRESSIONS = (
    "a % 2 == 0", "a * b <= 64 and s != 'row'", "s in ('row', 'col')", "t[0] < t[1] or a == 8",
    "(a if b > 0 else b) < 3", "is_pow2(a) and ceil_div(b, a) > 0", "max(a, b) - min(a, b) < 9",
    "n == None or a > 1", "f ** 2 < 1 and a << 2 > 4", "not (a & 1)",
    "index(t, 1) == 0", "round(f, 1) == 0.5", "gcd(a, 4) == lcm(a, 2)", "log2(a) >= 1",
)  # fmt: skip
_TOKENS = (
    "a", "b", "f", "s", "t", "n", " and ", " or ", "not ", " if ", " else ", " in ", "==", "<", "%",
    "**", "<<", ">>", "//", "(", ")", "[", "]", ",", "0", "1", "2**64", "10**9", "'x'", "max(",
    "index(", "round(", "len(", "sum(", "int(", "lcm(", ".", "__class__", "lambda:", ":=", "~", "-",
)  # fmt: skip
_SPACE = Space(_PARAMETERS)


def _constraint(data: bytes) -> None:
    """Read, counted, and asked for every config of a space it may be about."""
    space = Space(_PARAMETERS, [data.decode(errors="surrogateescape")])
    held = list(itertools.islice(space, 300))
    for config in itertools.islice(_SPACE, 0, 288, 7):
        if (space.explain(config) is None) != (config in held):
            raise WrongAnswerError(f"{config} is held to be valid in one way and not in another")


def _space(data: bytes) -> None:
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(given, dict):
        return
    parameters, constraints = given.get("parameters"), given.get("constraints", [])
    if not isinstance(parameters, dict | list) or not isinstance(constraints, list):
        return
    space = Space(parameters, constraints)
    for config in space.sample(np.random.default_rng(0), 5):
        if space.explain(config) is not None:
            raise WrongAnswerError(f"{config} was drawn and is not valid")
    space.id, space.columns, repr(space)


def _config(data: bytes) -> None:
    config = Config.from_json(data.decode(errors="replace"))
    if Config.from_json(config.json).id != config.id:
        raise WrongAnswerError("it comes back as another config")
    str(config), hash(config), config.id


def _budget(data: bytes) -> None:
    budget = Budget.parse(data.decode(errors="replace"))
    seconds, trials = budget.seconds, budget.trials
    if (seconds is not None and not 0 < seconds < math.inf) or (trials is not None and trials < 1):
        raise WrongAnswerError(f"the budget is {budget!r}")
    if Budget.parse(str(budget)) != budget and seconds is None:
        raise WrongAnswerError(f"{budget} is read as another budget")


def _typed(parse: Callable[[str], float]) -> Callable[[bytes], None]:
    def amount(data: bytes) -> None:
        value = parse(data.decode(errors="surrogateescape"))
        if not 0 <= value < math.inf:
            raise WrongAnswerError(f"the amount is {value}")

    return amount


def _buckets(data: bytes) -> None:
    try:
        given, value = json.loads(data)
    except (ValueError, TypeError, RecursionError):
        return
    found = Buckets.of(given, ["M", "N"])
    for name in ("M", "N"):
        bounds = found.bounds(name, value)
        if bounds is not None and not bounds[0] < value <= bounds[1]:
            raise WrongAnswerError(f"{value} is not in its bucket {bounds}")
        found.value(name, value)


def _settings_file(data: bytes) -> None:
    path = written("config.toml", data)
    _check_settings(resolve_settings(environ={"HOME": str(folder())}, file=path))


def _settings_variables(data: bytes) -> None:
    """Lines of NAME=VALUE; a variable holds any bytes but NUL."""
    environ = {"HOME": str(folder())}
    for line in data.replace(b"\0", b"").split(b"\n"):
        name, _, value = line.decode(errors="surrogateescape").partition("=")
        if name not in ("XDG_CONFIG_HOME", "HOME"):
            environ[name] = value
    _check_settings(resolve_settings(environ=environ))


def _check_settings(found: Any) -> None:
    one = found.settings
    numbers = (one.build_limit_s, one.run_limit_s, one.agree_wait_s, one.idle_share, one.jobs)
    sound = all(math.isfinite(number) and number > 0 for number in numbers)
    if not sound or one.seed < 0 or (one.memory_bytes is not None and one.memory_bytes < 1):
        raise WrongAnswerError(f"these are no settings: {one}")
    str(one), [str(source) for source in found.sources.values()]


def _typed_key(data: bytes) -> None:
    for key in read_keys([data.decode(errors="surrogateescape")], None):
        Config(key).id  # noqa: B018


def _keys_file(data: bytes) -> None:
    read_keys([], str(written("keys.json", data)))


def _effects(data: bytes) -> None:
    effects(data.decode(errors="replace")).updated  # noqa: B018


def _setting_seeds() -> list[bytes]:
    return [
        b'budget = "30s"\nseed = 3\nmemory = "8G"\nbuild_limit = "2m"\nlearn = false\n',
        b'store = "results.db"\nl2 = "warm"\nsamples = 5\nidle_share = 0.1\nmode = "cached"\n',
    ]


def _variable_seeds() -> list[bytes]:
    given = {
        "budget": "1h,500trials", "seed": "7", "jobs": "2", "memory": "512M", "l2": "cold",
        "l2_bytes": "64M", "build_limit": "30", "run_limit": "2m", "idle_share": "2%",
        "samples": "3", "learn": "no", "cuda_graph": "yes", "mode": "require",
        "isolate": "1", "agree_wait": "5m", "store": "x.db", "search": "auto",
    }  # fmt: skip
    lines = [f"WHET_{name.upper()}={value}" for name, value in given.items()]
    return ["\n".join(lines).encode(), *(line.encode() for line in lines)]


_AMOUNTS = (
    "30s", "5m", "200trials", "1h", "500ms", "8G", "64MiB", "0", "1e9", "inf", "nan", "-1", "none",
    "1.5", "0x10", "1_000", "٣", "9" * 400, ".", ",", "%", "d", "w", "T", "K", "days", "trial",
)  # fmt: skip
_NAMES = tuple(f"WHET_{name.upper()}=" for name in SETTINGS)
_TTIR = (Path(__file__).parent / "sample.ttir").read_bytes
_TTIR_WORDS = (
    "tt.load", "tt.store", "tt.atomic_rmw", "tt.func public @k(", "tt.func private @f(",
    "tt.call @f", "scf.for", "scf.if", "scf.yield", "scf.while", "scf.condition", "cf.br ^bb1(",
    "^bb1(", "tt.return", "%arg0", "%0", "%0:2", "%0#1", " = ", " : ", "->", "{", "}", "(", ")",
    "!tt.ptr<f32>", "iter_args(", "loc(#loc)", '"tt.reduce"(', "%1:99999999", "%0#99999999",
    "tt.addptr", "arith.select", '"', "<",
)  # fmt: skip
_VALUES = (UsageError,)

TARGETS = (
    Target(
        "constraint", _constraint,
        lambda: [text.encode(errors="surrogateescape") for text in _EXPRESSIONS],
        (SpaceError,), ("core/space",), "text", (*_TOKENS, *ESCAPES), 45_000,
        (*RUNS_CODE, "open", "import"),
    ),
    Target(
        "space", _space,
        lambda: [
            json.dumps({"parameters": _PARAMETERS, "constraints": ["a * 2 > b"]}).encode(),
            json.dumps({"parameters": [{"a": 1, "b": 2}, {"a": 2}], "constraints": []}).encode(),
        ],
        (SpaceError,), ("core/space",), "json", ("parameters", "constraints", *_EXPRESSIONS),
        20_000,
    ),
    Target(
        "config", _config, lambda: [b'{"BM": 64, "tile": [1, [2, "x"]], "f": 0.5, "n": null}'],
        (SpaceError,), ("core/config",), "json", ("BM", "tile"), 60_000,
    ),
    Target(
        "budget", _budget, lambda: [b"30s", b"1h,500trials", b"none", b"500 ms"], _VALUES,
        ("core/budget",), "text", _AMOUNTS, 50_000,
    ),
    Target(
        "age", _typed(typed_seconds), lambda: [b"30d", b"12h", b"5m"], _VALUES, ("cli/store",),
        "text", _AMOUNTS, 40_000,
    ),
    Target(
        "size", _typed(typed_bytes), lambda: [b"100M", b"1.5G", b"4096"], _VALUES, ("cli/store",),
        "text", _AMOUNTS, 40_000,
    ),
    Target(
        "buckets", _buckets,
        lambda: [b'[{"M": "pow2", "N": [16, 256]}, 37]', b'[{"N": [1.5, 2, 1e9]}, 1e5]'],
        _VALUES, ("core/buckets",), "json", ("M", "N", "pow2"), 40_000,
    ),
    Target(
        "settings-file", _settings_file, _setting_seeds, (SettingsError,), ("engine/settings",),
        "text", (*_AMOUNTS, *SETTINGS, " = ", "[", "]", "'", '"', "1979-05-27", "{", "}", "\n"),
        40_000,
    ),
    Target(
        "settings-variables", _settings_variables, _variable_seeds, (SettingsError,),
        ("engine/settings",), "text", (*_AMOUNTS, *_NAMES, "\n"), 40_000,
    ),
    Target(
        "key", _typed_key, lambda: [b"M=4096,N=4096,dtype=float16", b"x=true,y=1.5,z=none"],
        _VALUES, ("cli/keys",), "text", (*_AMOUNTS, "M=", ",", "true", "none"), 40_000,
    ),
    Target(
        "keys-file", _keys_file, lambda: [b'[{"M": 4096, "N": 64}, {"M": 1, "dtype": "f16"}]'],
        _VALUES, ("cli/keys",), "json", ("M", "N"), 40_000,
    ),
    Target(
        "effects", _effects, lambda: [_TTIR()], (), ("targets/triton/effects",), "text",
        _TTIR_WORDS, 20_000,
    ),
)  # fmt: skip
