"""`whet settings`: each setting, its value and where it came from."""

from __future__ import annotations

from typing import Any

from whet.cli.arguments.options import JsonOption, StoreOption, resolved
from whet.cli.terminal.help import SEARCHES

EXAMPLES = f"""\b
Examples:
  whet settings                        values and where they come from
  WHET_BUDGET=30s whet settings        a variable for one command
  echo 'jobs = 4' >> ~/.config/whet/config.toml

\b
What they mean:
  store          where results are kept: a path or sqlite:///path
  bundle         a file of 'whet pack', asked where the store knows nothing
  budget         when a tuning stops: 30s, 5m, 200trials or 1h,500trials
  seed           the same seed asks for the same configs
  jobs           how many builds at once
  search         the strategy: {SEARCHES}
  build_limit    how long one build may take
  run_limit      how long one config may run
  first_call_limit how long the first call of a callable may take, which
                 may compile; run_limit, if that is set and this is not
  memory         how much of the machine's memory a config may take
  device_memory  how much of a GPU's memory tuning may take for itself
  l2             a GPU's L2 cache before each timed launch: cold or warm
  l2_bytes       how much is read to clear it: 64M; 0 is none
  cuda_graph     time launches as CUDA graphs, for a slow host
  samples        no race: so many samples of every config
  learn          whether a search starts from the kernel's other results
  agree_wait     how long to wait for another process that tunes the same
  binaries       a folder of 'whet precompile', used where it fits
  idle_share     how much of the calls' time idle=True may take
  isolate        run a GPU's configs in a process that may crash or hang
  stall_timeout  warn after this long without progress; 0 disables
  mode           what a call may do: tune, cached, require, off or record

\b
A flag wins over a variable, a variable over the file, the file over defaults.
The variable of build_limit is WHET_BUILD_LIMIT, and so on. With
WHET_LOG=info each choice is printed, with WHET_DEBUG=1 tracebacks.
The file is what WHET_CONFIG names, else ~/.config/whet/config.toml.
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
    on_device, free = settings.device_memory_bytes, "what is free"
    samples, stall_s = settings.samples, settings.stall_timeout_s
    return {
        "store": (store_place(settings.store), store_place(settings.store)),
        "bundle": (settings.bundle, settings.bundle or "none"),
        "budget": (str(settings.budget), str(settings.budget)),
        "seed": (settings.seed, str(settings.seed)),
        "jobs": (settings.jobs, str(settings.jobs)),
        "search": (settings.search, settings.search),
        "build_limit": (settings.build_limit_s, f"{settings.build_limit_s:g} s"),
        "run_limit": (settings.run_limit_s, f"{settings.run_limit_s:g} s"),
        "first_call_limit": (settings.first_call_s, f"{settings.first_call_s:g} s"),
        "memory": (memory, free if memory is None else bytes_text(memory)),
        "device_memory": (on_device, free if on_device is None else bytes_text(on_device)),
        "l2": (settings.l2, settings.l2),
        "l2_bytes": (l2_bytes, "the L2's size" if l2_bytes is None else bytes_text(l2_bytes)),
        "cuda_graph": (settings.cuda_graph, "yes" if settings.cuda_graph else "no"),
        "samples": (samples, "as the race wants" if samples is None else str(samples)),
        "learn": (settings.learn, "yes" if settings.learn else "no"),
        "agree_wait": (settings.agree_wait_s, f"{settings.agree_wait_s:g} s"),
        "binaries": (settings.binaries, settings.binaries or "none"),
        "idle_share": (settings.idle_share, f"{100 * settings.idle_share:g} %"),
        "isolate": (settings.isolate, "yes" if settings.isolate else "no"),
        "stall_timeout": (stall_s, "none" if stall_s is None else f"{stall_s:g} s"),
        "mode": (settings.mode, settings.mode),
    }
