"""One file that holds the page and its data."""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from explorer_samples import HOSTILE, SCRIPT, fill, hostile
from whet.core.errors import UsageError
from whet.explorer.library import Library
from whet.explorer.report import BundlingError, bundled, page, write_report
from whet.store import SqliteStore


def _data(page: str) -> dict[str, Any]:
    found = re.findall(r'<script type="application/octet-stream" id="whet-data">([^<]*)<', page)
    assert len(found) == 1
    return dict(json.loads(gzip.decompress(base64.b64decode(found[0]))))


def _modules(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.js").write_text(text)
    (folder / "style.css").write_text("body { margin: 0 }")
    (folder / "index.html").write_text(
        "<html><head><title>x</title>\n"
        '<link rel="icon" href="static/icon.svg">\n'
        '<link rel="stylesheet" href="static/style.css">\n</head>\n'
        '<body><script type="module" src="static/main.js"></script></body></html>'
    )
    return folder


@pytest.mark.slow
def test_a_report_has_everything_the_page_asks_for_and_fetches_nothing(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db") as store:
        run = fill(store)
        told: list[tuple[int, int]] = []
        size = write_report(
            Library(store), tmp_path / "r.html", done=lambda *parts: told.append(parts)
        )
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    data = _data(text)
    id = run.workload.id
    assert size == len(text.encode())
    assert [line["id"] for line in data["workloads"]] == [id]
    assert data["workloads"][0]["trials"] == {"ok": 30, "resources": 2}
    assert data["columns"][id]["header"]["rows"] == 32
    assert len(base64.b64decode(data["columns"][id]["body"])) > 32 * 30
    assert [one["id"] for one in data["runs"][id]] == [run.id]
    assert data["importance"][id][0]["parameter"] == "BM"
    assert data["timelines"][run.id]["wall"] == {"measure": 3.0, "waiting": 1.0}
    assert data["searches"][f"{id}|run|{run.id}"]["rows"] == list(range(32))
    assert len(data["searches"][f"{id}|random|0|100"]["rows"]) == 32
    assert {f"{id}|random|{seed}|100" for seed in range(20)} < set(data["searches"])
    assert f"{id}|grid|1|100" not in data["searches"], "it is the same whatever the seed"
    assert data["frontier"][id]["series"]
    # The simulations, which take most of the time, are most of what a reader is told is left.
    finished, every = zip(*told, strict=True)
    assert list(finished) == sorted(set(finished))
    assert set(every) == {finished[-1]}
    assert finished[-1] > 60
    first = data["trials"][id]["0"]
    assert first["samples"] == []
    assert first["samples_total"] == 12
    assert len(first["quantiles"]) == 7
    assert first["quantiles"] == sorted(first["quantiles"])
    assert not re.search(r"<(link|script|img)[^>]*\s(src|href)=", text)
    assert "default-src 'none'" in text


@pytest.mark.medium
def test_hostile_text_is_neither_markup_nor_script(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db") as store:
        hostile(store)
        write_report(Library(store), tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert SCRIPT not in text
    assert "onerror='window" not in text
    assert _data(text)["workloads"][0]["kernel"] == HOSTILE
    # The data, the program, and nothing else.
    assert len(re.findall(r"<script", text)) == 2
    assert text.count("</script>") == 2


@pytest.mark.slow
def test_ten_thousand_trials_fit_into_two_megabytes(tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    from explorer_store import fill as fill_many

    fill_many(tmp_path / "many.db", 10_000)
    with SqliteStore(tmp_path / "many.db", read_only=True) as store:
        size = write_report(Library(store), tmp_path / "r.html")
    assert size <= 2_000_000


def test_modules_become_one_script_with_scopes_of_their_own(tmp_path: Path) -> None:
    folder = _modules(
        tmp_path,
        main='import { twice as t, N } from "./a.js";\nimport * as b from "./b.js";\n'
        "const secret = 1;\nglobalThis.result = [t(N), b.name, secret];\n",
        a='import { base } from "./b.js";\nconst secret = 2;\n'
        "export const N = base;\nexport function twice(x) { return 2 * x; }\n",
        b='export const base = 21;\nconst inner = "b";\nexport { inner as name };\n',
    )
    script = bundled(folder)
    assert script.index('["b.js"]') < script.index('["a.js"]') < script.index('["main.js"]')
    assert "import " not in script
    assert "export " not in script
    assert "const { twice: t, N } = $modules" in script
    assert "return { name: inner, base: base }" in script or "base: base, name: inner" in script


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ('import x from "./a.js";', 'import x from "./a.js";'),
        ("export default 1;", "export default 1;"),
        ("export let changing = 1;", "export let changing = 1;"),
        ('import "https://example.org/x.js";', "example.org"),
    ],
)
def test_what_cannot_be_bundled_is_refused(tmp_path: Path, source: str, told: str) -> None:
    folder = _modules(tmp_path, main='import { a } from "./a.js";\na();', a=source)
    with pytest.raises(BundlingError, match=re.escape(told)):
        bundled(folder)


def test_a_cycle_is_refused(tmp_path: Path) -> None:
    folder = _modules(
        tmp_path,
        main='import { a } from "./a.js";\na();',
        a='import { b } from "./b.js";\nexport const a = b;',
        b='import { a } from "./a.js";\nexport const b = a;',
    )
    with pytest.raises(BundlingError, match=r"a\.js imports itself"):
        bundled(folder)


def test_a_script_cannot_end_its_own_element(tmp_path: Path) -> None:
    folder = _modules(tmp_path, main='const text = "</script><!--";')
    made = page("</title><script>", "AAAA", folder)
    assert made.count("</script>") == 2
    assert "<!--" not in made
    assert "<title>&lt;/title&gt;&lt;script&gt;</title>" in made


@pytest.mark.slow
def test_a_report_needs_no_server_package(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db") as store:
        fill(store)
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['starlette', 'uvicorn', 'torch']));"
        "from whet.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["explore", "--out", "r.html", "matmul", "--store", "s.db", "-q"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        r"wrote r\.html: 1 workload, \S+ KiB; open it in any browser\n", done.stdout
    )
    explore = [sys.executable, "-c", code, "explore", "--no-open"]
    done = subprocess.run(explore, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install '.[explorer]'" in done.stderr
    assert "whet explore --out OUT.html" in done.stderr


@pytest.mark.slow
def test_a_report_that_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db") as store:
        fill(store)
        with pytest.raises(UsageError, match="cannot write"):
            write_report(Library(store), tmp_path / "nowhere" / "r.html")
