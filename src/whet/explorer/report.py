"""`whet explore --out`: the page with its data in one file that needs no server and no network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from whet.core.errors import UsageError
from whet.core.files import write_whole
from whet.core.intermediate import FACT
from whet.core.trial import Trial
from whet.explorer import STATIC
from whet.explorer.answers import (
    Knobs,
    facts_json,
    frontier_json,
    run_json,
    runs_json,
    simulated_json,
    strategies_json,
    timeline_json,
    trial_json,
)
from whet.explorer.columns import LONGEST_ERROR
from whet.explorer.importance import importance
from whet.explorer.library import Library
from whet.explorer.subject import AbsentError, Subject

Done = Callable[[int, int], None]

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
# Of a report's workloads so many are simulated on: it takes seconds each.
SIMULATED = 3
SIMULATED_SEARCHES = ("grid", "random", "gp", "auto")
SEARCH_BUDGET = 100
# Of the first workload, where its space is small; the others show one seed.
SEEDS = 20
# How many times as long as one of its searches, or one more workload, a frontier takes.
FRONTIER_PARTS, QUICK_FRONTIER_PARTS = 14, 3
SMALL_SPACE = 1_000
FRONTIER_RUNS = 8
# A report is for looking at, and a browser reads it in one go.
MOST_TRIALS = 200_000
MOST_DETAILED = 50_000
MOST_SPANS = 20_000
# Characters of intermediate code.
MOST_CODE = 4_000_000

# A trial of which some was kept, and its row.
Coded = tuple[Subject, int, Trial]

INDEX, ENTRY = "index.html", "main.js"

_IMPORT = re.compile(
    r'^import\s+(?:(?P<names>\{[^}]*\})|\*\s+as\s+(?P<all>[\w$]+))\s+from\s+"\./(?P<file>[\w.-]+)";?',
    re.MULTILINE,
)
_EXPORTED = re.compile(
    r"^export\s+(?P<kind>async\s+function\*?|function\*?|class|const)\s+(?P<name>[\w$]+)",
    re.MULTILINE,
)
_EXPORT_LIST = re.compile(r"^export\s+\{(?P<names>[^}]*)\};?", re.MULTILINE)
_LEFT = re.compile(r"^(import|export)\b.*", re.MULTILINE)
_SHEET = re.compile(r'\s*<link rel="stylesheet" href="static/(?P<file>[\w.-]+)">')
_SCRIPT = re.compile(r'<script type="module" src="static/main\.js"></script>')
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_ICON = re.compile(r'\s*<link rel="icon"[^>]*>')


def write_report(
    library: Library,
    path: Path,
    subjects: Sequence[Subject] | None = None,
    done: Done | None = None,
) -> int:
    """Puts the file in place as a whole; how many bytes it has."""
    chosen = library.subjects() if subjects is None else list(subjects)
    data = report_data(library, chosen, done)
    names = sorted({subject.workload.kernel for subject in chosen})
    title = f"whet report: {', '.join(names[:3])}{', …' if len(names) > 3 else ''}"
    # Each is a page in a frame of its own, under this one's policy.
    styles = {style for text in data["journeys"].values() for style in _STYLE.findall(text)}
    body = page(title, packed(data), styles=sorted(styles)).encode(errors="replace")
    try:
        write_whole(path, body)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    return len(body)


def packed(data: dict[str, Any]) -> str:
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def report_data(
    library: Library, subjects: Sequence[Subject], done: Done | None = None
) -> dict[str, Any]:
    data: dict[str, Any] = {
        "about": {**library.about(), "live": False, "report": True},
        "strategies": strategies_json(),
        **{part: {} for part in ("columns", "runs", "importance", "timelines", "trials", "facts")},
        **{part: {} for part in ("searches", "frontier", "ir")},
    }
    left = MOST_DETAILED
    coded: list[Coded] = []
    steps = [
        step
        for number, subject in enumerate(subjects[:SIMULATED])
        for step in _simulations(data, subject, first=number == 0)
    ]
    every = len(subjects) + sum(parts for parts, _ in steps)
    finished = 0
    for parts, act in steps:
        act()
        finished += parts
        if done is not None:
            done(finished, every)
    for subject in subjects:
        left -= _add_workload(data, subject, left, coded)
        finished += 1
        if done is not None:
            done(finished, every)
    _add_code(data, coded)
    # After the columns, which know more of each workload.
    wanted = {subject.id for subject in subjects}
    data["workloads"] = [line for line in library.summaries() if line["id"] in wanted]
    found = {subject.id: subject.journey() for subject in subjects}
    data["journeys"] = {id: page.decode(errors="replace") for id, page in found.items() if page}
    return data


def _add_workload(data: dict[str, Any], subject: Subject, detailed: int, coded: list[Coded]) -> int:
    reading = subject.read()
    rows = reading.columns.rows
    if rows > MOST_TRIALS:
        raise UsageError(
            f"{subject.workload.kernel} has {rows:,} trials; a report holds up to {MOST_TRIALS:,} "
            "of a workload; look at it with 'whet explore'"
        )
    data["columns"][subject.id] = _columns(subject)
    data["importance"][subject.id] = importance(reading.columns)
    runs = subject.runs()
    data["runs"][subject.id] = runs_json(subject)
    for run in runs:
        data["searches"][f"{subject.id}|run|{run.id}"] = run_json(subject, run.id)
        timeline = timeline_json(subject, run.id)
        if len(timeline["spans"]) <= MOST_SPANS:
            data["timelines"][run.id] = timeline
    if rows <= detailed:
        data["facts"][subject.id] = facts_json(subject)
        # What a store got since its columns were read has no row.
        trials = [*enumerate(subject.all_trials()[:rows])]
        data["trials"][subject.id] = {
            str(row): _compact(trial_json(subject, row, trial), trial)
            for row, trial in trials
            if trial is not None
        }
        coded += [(subject, row, one) for row, one in trials if one and FACT in one.facts]
        return rows
    return 0


def _add_code(data: dict[str, Any], coded: Sequence[Coded]) -> None:
    """As much as there is room for; the best config of each workload comes first."""
    bests = {id: one["header"]["best_row"] for id, one in data["columns"].items()}
    room = MOST_CODE
    for subject, row, trial in sorted(coded, key=lambda one: one[1] != bests[one[0].id]):
        stages = subject.stages(trial)
        size = sum(map(len, stages.values()))
        if size > room:
            continue
        room -= size
        data["trials"][subject.id][str(row)]["ir"] = [*stages]
        for stage, text in stages.items():
            data["ir"][f"{subject.id}|{row}|{stage}"] = text


def _columns(subject: Subject) -> dict[str, Any]:
    """The header apart from the arrays, which go as base64."""
    whole = b"".join(subject.encoded(0))
    length = int.from_bytes(whole[:4], "little")
    start = -(-(4 + length) // 8) * 8
    return {
        "header": json.loads(whole[4 : 4 + length]),
        "body": base64.b64encode(whole[start:]).decode(),
    }


def _compact(told: dict[str, Any], trial: Trial) -> dict[str, Any]:
    """Samples as quantiles, five digits of everything, and no more of an error than the columns
    have, unless there is more to say."""
    samples = () if trial.timing is None else trial.timing.samples
    quantiles = _quantiles(sorted(samples)) if samples else []
    kept = {name: value for name, value in told.items() if name not in ("id", "created")}
    kept["samples"] = []
    kept["quantiles"] = quantiles
    kept["error"] = told["error"][: 4 * LONGEST_ERROR]
    return dict(_rounded(kept))


def _quantiles(ordered: Sequence[float]) -> list[float]:
    """Between two samples in proportion, as NumPy has it, which takes ten times as long for few."""
    found = []
    for share in QUANTILES:
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        found.append(ordered[low] + (place - low) * (ordered[high] - ordered[low]))
    return found


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _simulations(
    data: dict[str, Any], subject: Subject, *, first: bool
) -> list[tuple[int, Callable[[], None]]]:
    """What is simulated on a workload, and about how long each takes, in parts."""

    def search(strategy: str, seed: int) -> None:
        key = f"{subject.id}|{strategy}|{seed}|{SEARCH_BUDGET}"
        data["searches"][key] = _or_absent(
            partial(simulated_json, subject, strategy, seed, SEARCH_BUDGET)
        )

    def frontier() -> None:
        data["frontier"][subject.id] = _or_absent(partial(_frontier, subject, first))

    many = first and subject.read().columns.rows <= SMALL_SPACE
    # The grid is the same whatever the seed.
    searches = [
        partial(search, strategy, seed)
        for strategy in SIMULATED_SEARCHES
        for seed in range(SEEDS if many and strategy != "grid" else 1)
    ]
    parts = FRONTIER_PARTS if first else QUICK_FRONTIER_PARTS
    return [*((1, one) for one in searches), (parts, frontier)]


def _frontier(subject: Subject, searched: bool) -> dict[str, Any]:
    """With a strategy's own points only where its model is quick."""
    small = searched and len(subject.recorded().table.configs) <= SMALL_SPACE
    searches = ("auto",) if small else ()
    return frontier_json(subject, Knobs(runs=FRONTIER_RUNS, searches=searches))


def _or_absent(asked: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return asked()
    except AbsentError as error:
        return {"absent": str(error)}


class BundlingError(ValueError):
    """A module has what the report cannot have; it names the file and the line."""


def bundled(folder: Path = STATIC, entry: str = ENTRY) -> str:
    """One script that does what the modules do."""
    modules: dict[str, str] = {}
    _add(folder, entry, modules, ())
    return "\n".join(['"use strict";', "const $modules = {};", *modules.values()])


def page(title: str, data: str, folder: Path = STATIC, styles: Sequence[str] = ()) -> str:
    """The whole document; `data` is base64, `styles` are those of pages within it."""
    text = (folder / INDEX).read_text(encoding="utf-8")
    own = "\n".join(
        (folder / match["file"]).read_text(encoding="utf-8") for match in _SHEET.finditer(text)
    )
    script = bundled(folder).replace("</script", "<\\/script").replace("<!--", "<\\!--")
    own = own.replace("</style", "<\\/style")
    allowed = " ".join(f"'{_hash(style)}'" for style in (own, *styles))
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src {allowed}; "
        "img-src data: blob:; frame-src data:; base-uri 'none'; form-action 'none'"
    )
    text = _ICON.sub("", _SHEET.sub("", text))
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"    <style>{own}</style>\n  </head>"
    )
    text = text.replace("</head>", head, 1)
    text = re.sub(r"<title>.*?</title>", lambda _: f"<title>{html.escape(title)}</title>", text)
    blocks = (
        f'<script type="application/octet-stream" id="whet-data">{data}</script>\n'
        f'    <script type="module">{script}</script>'
    )
    found, count = _SCRIPT.subn(lambda _: blocks, text)
    if count != 1:
        raise BundlingError(f"{INDEX} must have one script of type module: static/{ENTRY}")
    return found


def _add(folder: Path, name: str, modules: dict[str, str], above: tuple[str, ...]) -> None:
    """What a module imports comes before it."""
    if name in above:
        raise BundlingError(f"{name} imports itself, by way of {' and '.join(above[1:])}")
    if name in modules:
        return
    text = (folder / name).read_text(encoding="utf-8")
    for match in _IMPORT.finditer(text):
        _add(folder, match["file"], modules, (*above, name))
    modules[name] = _module(name, text)


def _module(name: str, text: str) -> str:
    exports: dict[str, str] = {}
    for match in _EXPORTED.finditer(text):
        exports[match["name"]] = match["name"]
    for match in _EXPORT_LIST.finditer(text):
        exports |= {outer: inner for inner, outer in _pairs(match["names"])}
    body = _IMPORT.sub(_imported, text)
    body = _EXPORTED.sub(lambda match: f"{match['kind']} {match['name']}", body)
    body = _EXPORT_LIST.sub("", body)
    left = _LEFT.search(body)
    if left is not None:
        raise BundlingError(f"{name}: a report cannot have this import or export: {left[0]}")
    returned = ", ".join(f"{outer}: {inner}" for outer, inner in exports.items())
    return f'$modules["{name}"] = (() => {{\n{body}\nreturn {{ {returned} }};\n}})();'


def _imported(match: re.Match[str]) -> str:
    source = f'$modules["{match["file"]}"]'
    if match["all"]:
        return f"const {match['all']} = {source};"
    names = ", ".join(
        outer if outer == inner else f"{outer}: {inner}"
        for outer, inner in _pairs(match["names"].strip("{}"))
    )
    return f"const {{ {names} }} = {source};"


def _pairs(names: str) -> list[tuple[str, str]]:
    """`a, b as c` is `(a, a)` and `(b, c)`."""
    found = []
    for part in filter(None, (name.strip() for name in names.split(","))):
        before, _, after = part.partition(" as ")
        found.append((before.strip(), (after or before).strip()))
    return found


def _hash(text: str) -> str:
    """As a browser reads the file, which turns every end of line into one character."""
    digest = hashlib.sha256(text.replace("\r\n", "\n").encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
