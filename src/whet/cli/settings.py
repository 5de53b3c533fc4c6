"""`whet settings`: each setting, its value and where it came from."""

from __future__ import annotations

from typing import Any

from whet.cli.options import JsonOption, StoreOption, resolved

EXAMPLES = """\b
Examples:
  whet settings                        values and where they come from
  WHET_BUDGET=30s whet settings        a variable for one command
  echo 'jobs = 4' >> ~/.config/whet/config.toml

\b
A flag wins over a variable, a variable over the file, the file over defaults.
Variables: WHET_STORE, WHET_BUNDLE, WHET_BUDGET, WHET_SEED, WHET_JOBS,
WHET_SEARCH, WHET_BUILD_LIMIT, WHET_RUN_LIMIT, WHET_MEMORY, WHET_L2,
WHET_L2_BYTES, WHET_CUDA_GRAPH, WHET_SAMPLES, WHET_RACE, WHET_LEARN,
WHET_AGREE_WAIT, WHET_BINARIES.
The file: what WHET_CONFIG names, else ~/.config/whet/config.toml.
"""


def settings(store: StoreOption = None, json: JsonOption = False) -> None:
    """Show each setting and where its value comes from."""
    from whet.cli.output import Column, columns, print_json, print_lines, table

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
    from whet.cli.output import bytes_text
    from whet.cli.reading import store_place

    memory, l2_bytes = settings.memory_bytes, settings.l2_bytes
    on_device, free = settings.device_memory_bytes, "what is free"
    samples, wedge_s = settings.samples, settings.wedge_s
    return {
        "store": (store_place(settings.store), store_place(settings.store)),
        "bundle": (settings.bundle, settings.bundle or "none"),
        "budget": (str(settings.budget), str(settings.budget)),
        "seed": (settings.seed, str(settings.seed)),
        "jobs": (settings.jobs, str(settings.jobs)),
        "search": (settings.search, settings.search),
        "build_limit": (settings.build_limit_s, f"{settings.build_limit_s:g} s"),
        "run_limit": (settings.run_limit_s, f"{settings.run_limit_s:g} s"),
        "memory": (memory, free if memory is None else bytes_text(memory)),
        "device_memory": (on_device, free if on_device is None else bytes_text(on_device)),
        "l2": (settings.l2, settings.l2),
        "l2_bytes": (l2_bytes, "the L2's size" if l2_bytes is None else bytes_text(l2_bytes)),
        "cuda_graph": (settings.cuda_graph, "yes" if settings.cuda_graph else "no"),
        "samples": (samples, "as the race wants" if samples is None else str(samples)),
        "race": (settings.race, settings.race),
        "learn": (settings.learn, "yes" if settings.learn else "no"),
        "agree_wait": (settings.agree_wait_s, f"{settings.agree_wait_s:g} s"),
        "binaries": (settings.binaries, settings.binaries or "none"),
        "idle_share": (settings.idle_share, f"{100 * settings.idle_share:g} %"),
        "isolate": (settings.isolate, "yes" if settings.isolate else "no"),
        "wedge": (wedge_s, "none" if wedge_s is None else f"{wedge_s:g} s"),
        "mode": (settings.mode, settings.mode),
    }
