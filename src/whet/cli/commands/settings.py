"""`whet settings`: each setting, its value and where it came from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.arguments.locate import kernels_in_store, live_tuners
from whet.cli.arguments.options import (
    JsonOption,
    ModuleOption,
    ProgramArgument,
    StoreOption,
    option,
    resolved,
)
from whet.cli.terminal.output import (
    Column,
    bytes_text,
    columns,
    flexible,
    page,
    print_json,
    print_lines,
    table,
    wrap,
)
from whet.core.errors import UsageError
from whet.engine.settings import setting_field
from whet.store import store_place

if TYPE_CHECKING:
    from whet.engine.policy.rules import Policy


def settings(
    program: ProgramArgument = None,
    kernel: Annotated[
        str | None,
        option(
            "--kernel NAME",
            "Show what applies to one kernel: KERNEL, MODULE:KERNEL or FILE.py:KERNEL.",
        ),
    ] = None,
    check: Annotated[
        bool,
        option(
            "--check", "Check the policy file: rules that match no kernel, do not fit, or disagree."
        ),
    ] = False,
    module: ModuleOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Show each setting and where its value comes from, or check the policy file.

    --check compares the rules with the kernels in the store, and with those of FILE.py or a
    --module. The exit code is 1 if something is wrong.

    Examples:
      whet settings                        show every value and its source
      whet settings --kernel matmul        with what the policy file says of it
      WHET_BUDGET=30s whet settings        set a value for one command
      echo 'jobs = 4' >> ~/.config/whet/config.toml
      whet settings --check                against the kernels in the store
      whet settings --check train.py       and those that train.py imports
      whet settings --check -m fla.ops     and those of a library

    Settings:
      store          where results are stored: a path or postgresql://…
      store_wait     how long a call waits for a store's server, once per outage
      trust          results of a shared store that are used: all or promoted
      trusted_keys   use only results signed with one of the keys in this file
      signing_key    sign results with the private key in this file
      bundle         a file from 'whet pack', used where the store has no result
      lock           a file from 'whet lock update', for modes cached and require
      budget         when tuning stops: 30s, 5m, 200trials or 1h,500trials
      seed           random seed; the same seed tries the same configs
      jobs           number of parallel builds
      search         search strategy: {searches}
      effort         try every config (full), or leave out those that are not
                     expected to be worth their builds (quick)
      build_limit    time limit for one build
      run_limit      time limit for running one config
      first_call_limit time limit for the first call of a callable, which may
                     compile (default: run_limit if that is set)
      memory         host memory limit for one config
      device_memory  how much GPU memory tuning itself may allocate
      l2             L2 cache before each timed launch: cold or warm
      l2_bytes       how much memory to read to flush the L2: 64M; 0 disables
      cuda_graph     time launches as CUDA graphs, for a slow host
      samples        take this many samples of every config instead of racing
      learn          start searches from results for other sizes of the kernel
      agree_wait     how long to wait for another process tuning the same kernel
      binaries       a directory from 'whet precompile', used where it matches
      idle_share     share of call time that idle=True may use for tuning
      isolate        measure GPU configs in a separate process that may crash
      keep_ir        keep the intermediate code of every config that is built
      stall_timeout  warn after this long without progress; 0 disables
      record_values  mode 'record' keeps contents of integer tensors with up to
                     this many elements, and ranges of larger ones; 0 keeps none
      wait_limit     how long calls of one kernel may wait for tuning in all; new
                     keys then use the best of the nearest tuned one
      direct         launch tuned Triton kernels without Triton's binder
      inductor       choose kernels for torch.compile, with whet.install()
      llm_url        where search=llm asks: https://host/v1 in OpenAI's protocol,
                     …/v1/messages in Anthropic's (default: nowhere)
      llm_model      the model to ask
      llm_key        the name of the variable or file that has the key
      llm_headers    more headers: Name: value; Name: $VARIABLE
      llm_certificates a file of certificates to trust
      llm_timeout    how long an answer may take
      mode           what a call may do: tune, cached, require, off or record

    Flags override environment variables, which override the config file.
    Each setting has a variable: build_limit is WHET_BUILD_LIMIT, and so on.
    WHET_LOG=info logs each decision; WHET_DEBUG=1 shows tracebacks.
    The config file is $WHET_CONFIG, or ~/.config/whet/config.toml.
    The policy file has rules for single kernels, which override all of these:
    $WHET_POLICY, or whet.toml beside the program or in the working directory.
    """
    if check:
        if kernel is not None:
            raise UsageError("use either --check or --kernel")
        _check(program, module, store, json)
        return
    if program is not None or module is not None:
        raise UsageError("FILE.py and --module are for --check")

    found = resolved(store=store)
    rows = [
        _Row(name, value, shown, found.sources[name].kind, found.sources[name].where)
        for name, (value, shown) in _values(found.settings).items()
    ]
    about: dict[str, Any] = {}
    if kernel is not None:
        ruled = _ruled(kernel, store, found.settings)
        about = {"kernel": kernel, "policy": ruled.path}
        rows = [ruled.rows.pop(row.name, row) for row in rows] + list(ruled.rows.values())
    if json:
        told = {r.name: {"value": r.value, "source": r.kind, "where": r.where} for r in rows}
        print_json({"v": 1, **about, "settings": told})
        return
    layout = [Column("setting"), flexible("value"), flexible("from")]
    lines = [(row.name, row.shown, row.source) for row in rows]
    print_lines(table(layout, lines, columns()))
    if kernel is not None:
        print_lines(["", *wrap(ruled.note, columns())])


_UNKNOWN_MODULE = (
    "The kernel's module is not known, so rules with a module do not count here; give "
    "MODULE:KERNEL."
)
_UNKNOWN_KERNEL = (
    "so its module is not known, and rules with a module do not count here; give MODULE:KERNEL."
)
_KERNEL_NOTE = (
    "A rule of the policy overrides what the kernel's decorator says; where there is none, the "
    "decorator's arguments override these settings."
)
_NO_POLICY = "There is no policy file; write whet.toml, or set WHET_POLICY."


@dataclass(frozen=True)
class _Row:
    name: str
    value: Any
    shown: str
    kind: str
    where: str

    @property
    def source(self) -> str:
        """A policy's path is the same in all rows, and would push the line out of the table."""
        if self.kind == "policy":
            return f"policy line {self.where.rpartition(':')[2]}"
        return f"{self.kind} {self.where}".rstrip()


@dataclass(frozen=True)
class _Ruled:
    """What the policy at `path` says of a kernel, by setting."""

    path: str | None
    rows: dict[str, _Row]
    doubt: str = ""

    @property
    def note(self) -> str:
        if self.path is None:
            return _NO_POLICY
        return f"The policy is {self.path}. {_KERNEL_NOTE} {self.doubt}".rstrip()


def _ruled(kernel: str, store: str | None, settings: Any) -> _Ruled:
    """A kernel without its module is looked up in the store."""
    from whet.engine.policy.checking import modules_of
    from whet.engine.policy.finding import current_policy
    from whet.engine.policy.rules import BUCKETS, SHARED

    policy = current_policy()
    if policy is None:
        return _Ruled(None, {})
    module, _, name = kernel.rpartition(":")
    modules = [*modules_of(kernel)] if module.endswith(".py") else [module]
    stored = kernels_in_store(store)
    named = [one for one in stored if one.name == name]
    if not module:
        modules = [m for one in named for m in one.modules]
    keys = {key for one in named for key in one.keys}
    rulings = policy.rulings(name, modules)
    fields = {setting_field(n): rulings[n].value for n in SHARED if n in rulings}
    shown = _values(replace(settings, **fields))
    rows = {}
    for setting, ruling in rulings.items():
        value, text = shown.get(setting) or _of_kernels(setting, ruling.value)
        place = policy.place(ruling.rule, setting)
        if keys and setting.startswith(BUCKETS) and setting.removeprefix(BUCKETS) not in keys:
            text = f"skipped: not in its key ({', '.join(sorted(keys))})"
        rows[setting] = _Row(setting, value, text, "policy", place)
    return _Ruled(str(policy.path), rows, _doubt(name, bool(modules), [one.name for one in stored]))


def _doubt(name: str, module_known: bool, stored: list[str]) -> str:
    if module_known:
        return ""
    if name in stored:
        return _UNKNOWN_MODULE
    close = get_close_matches(name, stored, n=1, cutoff=0.7)
    meant = f" Did you mean '{close[0]}'?" if close else ""
    return f"Kernel '{name}' is not in the store, {_UNKNOWN_KERNEL}{meant}"


def _of_kernels(setting: str, value: Any) -> tuple[Any, str]:
    """What is no setting of the whole process: buckets, a check, and configs."""
    from whet.engine.policy.rules import BUCKETS

    if value is None or isinstance(value, str):  # a check, or a bucket
        return value, value or "none"
    if setting.startswith(BUCKETS):
        return list(value), ", ".join(map(str, value))
    return [dict(one) for one in value], "; ".join(f"[{one}]" for one in value) or "none"


def _values(settings: Any) -> dict[str, tuple[Any, str]]:
    """By name, for programs and for people."""
    memory, l2_bytes, wait_s = settings.memory_bytes, settings.l2_bytes, settings.wait_limit_s
    on_device, free = settings.device_memory_bytes, "all free memory"
    llm_url = settings.llm_url and settings.llm_url.partition("?")[0]
    samples, stall_s = settings.samples, settings.stall_timeout_s
    return {
        "store": (store_place(settings.store), store_place(settings.store)),
        "store_wait": (settings.store_wait_s, f"{settings.store_wait_s:g} s"),
        "trust": (settings.trust, settings.trust),
        "trusted_keys": (settings.trusted_keys, settings.trusted_keys or "none"),
        "signing_key": (settings.signing_key, settings.signing_key or "none"),
        "bundle": (settings.bundle, settings.bundle or "none"),
        "lock": (settings.lock, settings.lock or "none"),
        "budget": (str(settings.budget), str(settings.budget)),
        "seed": (settings.seed, str(settings.seed)),
        "jobs": (settings.jobs, str(settings.jobs)),
        "search": (settings.search, settings.search),
        "effort": (settings.effort, settings.effort),
        "build_limit": (settings.build_limit_s, f"{settings.build_limit_s:g} s"),
        "run_limit": (settings.run_limit_s, f"{settings.run_limit_s:g} s"),
        "first_call_limit": (settings.first_call_s, f"{settings.first_call_s:g} s"),
        "memory": (memory, free if memory is None else bytes_text(memory)),
        "device_memory": (on_device, free if on_device is None else bytes_text(on_device)),
        "l2": (settings.l2, settings.l2),
        "l2_bytes": (l2_bytes, "size of the L2" if l2_bytes is None else bytes_text(l2_bytes)),
        "cuda_graph": (settings.cuda_graph, "yes" if settings.cuda_graph else "no"),
        "samples": (samples, "as needed" if samples is None else str(samples)),
        "learn": (settings.learn, "yes" if settings.learn else "no"),
        "agree_wait": (settings.agree_wait_s, f"{settings.agree_wait_s:g} s"),
        "binaries": (settings.binaries, settings.binaries or "none"),
        "idle_share": (settings.idle_share, f"{100 * settings.idle_share:g} %"),
        "isolate": (settings.isolate, "yes" if settings.isolate else "no"),
        "keep_ir": (settings.keep_ir, "yes" if settings.keep_ir else "no"),
        "stall_timeout": (stall_s, "none" if stall_s is None else f"{stall_s:g} s"),
        "record_values": (settings.record_values, f"{settings.record_values:,}"),
        "wait_limit": (wait_s, "none" if wait_s is None else f"{wait_s:g} s"),
        "direct": (settings.direct, "yes" if settings.direct else "no"),
        "inductor": (settings.inductor, str(settings.inductor or "no").replace("True", "yes")),
        "llm_url": (llm_url, llm_url or "none, so nothing is sent"),
        "llm_model": (settings.llm_model, settings.llm_model or "none"),
        "llm_key": (_hidden(settings.llm_key), _hidden(settings.llm_key) or "none"),
        "llm_headers": (_hidden(settings.llm_headers), _hidden(settings.llm_headers) or "none"),
        "llm_certificates": (settings.llm_certificates, settings.llm_certificates or "none"),
        "llm_timeout": (settings.llm_timeout_s, f"{settings.llm_timeout_s:g} s"),
        "mode": (settings.mode, settings.mode),
    }


def _hidden(text: str | None) -> str | None:
    return None if text is None else "set, not shown"


_MOST_KEYS = 12

_ONLY_STORED = (
    "Known are the kernels in the store alone; name a FILE.py or a --module to know all of its own."
)


def _check(file: str | None, module: str | None, store: str | None, json: bool) -> None:
    from whet.engine.policy.checking import KnownKernel, problems
    from whet.engine.policy.finding import current_policy

    tuners = live_tuners(file, module) if file or module else []
    policy = current_policy()
    if policy is None:
        raise UsageError("there is no policy file; write whet.toml, or set WHET_POLICY")
    kernels = kernels_in_store(store)
    if tuners:
        from whet.targets.triton.policy import kernel_module

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
    from whet.targets.triton.policy import kernel_module, misfits

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
