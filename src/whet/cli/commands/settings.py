"""`whet settings`: each setting, its value and where it came from."""

from __future__ import annotations

from typing import Any

from whet.cli.arguments.options import JsonOption, StoreOption, resolved
from whet.cli.terminal.help import SEARCHES

EXAMPLES = f"""\b
Examples:
  whet settings                        show every value and its source
  WHET_BUDGET=30s whet settings        set a value for one command
  echo 'jobs = 4' >> ~/.config/whet/config.toml

\b
Settings:
  store          where results are stored: a path or postgresql://…
  store_wait     how long a call waits for a store's server, once per outage
  bundle         a file from 'whet pack', used where the store has no result
  budget         when tuning stops: 30s, 5m, 200trials or 1h,500trials
  seed           random seed; the same seed tries the same configs
  jobs           number of parallel builds
  search         search strategy: {SEARCHES}
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
  keep_ir        keep Triton's intermediate code of every config it builds
  stall_timeout  warn after this long without progress; 0 disables
  mode           what a call may do: tune, cached, require, off or record

\b
Flags override environment variables, which override the config file.
Each setting has a variable: build_limit is WHET_BUILD_LIMIT, and so on.
WHET_LOG=info logs each decision; WHET_DEBUG=1 shows tracebacks.
The config file is $WHET_CONFIG, or ~/.config/whet/config.toml.
"""


def settings(store: StoreOption = None, json: JsonOption = False) -> None:
    """Show each setting and where its value comes from."""
    from whet.cli.terminal.output import Column, columns, print_json, print_lines, table

    found = resolved(store=store)
    values = _values(found.settings)
    if json:
        print_json(
            {
                "v": 1,
                "settings": {
                    name: {"value": value, "source": source.kind, "where": source.where}
                    for (name, (value, _)), source in zip(
                        values.items(), found.sources.values(), strict=True
                    )
                },
            }
        )
        return
    layout = [Column("setting"), Column("value", flexible=True), Column("from", flexible=True)]
    rows = [(name, shown, str(found.sources[name])) for name, (_, shown) in values.items()]
    print_lines(table(layout, rows, columns()))


def _values(settings: Any) -> dict[str, tuple[Any, str]]:
    """By name, for programs and for people."""
    from whet.cli.terminal.output import bytes_text
    from whet.store import store_place

    memory, l2_bytes = settings.memory_bytes, settings.l2_bytes
    on_device, free = settings.device_memory_bytes, "all free memory"
    samples, stall_s = settings.samples, settings.stall_timeout_s
    return {
        "store": (store_place(settings.store), store_place(settings.store)),
        "store_wait": (settings.store_wait_s, f"{settings.store_wait_s:g} s"),
        "bundle": (settings.bundle, settings.bundle or "none"),
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
        "mode": (settings.mode, settings.mode),
    }
