"""The page as one file: its modules and styles inlined, nothing left to fetch.

Each module becomes a function that returns what it exports, so that none of the names of one are
seen by another. The policy in the file lets run that one script alone, by its hash: whatever text
a store holds, none of it is ever code.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from pathlib import Path

STATIC = Path(__file__).parent / "static"
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
_ICON = re.compile(r'\s*<link rel="icon"[^>]*>')


class BundlingError(ValueError):
    """A module has what the report cannot have; it names the file and the line."""


def bundled(folder: Path = STATIC, entry: str = ENTRY) -> str:
    """One script that does what the modules do."""
    modules: dict[str, str] = {}
    _add(folder, entry, modules, ())
    return "\n".join(['"use strict";', "const $modules = {};", *modules.values()])


def page(title: str, data: str, folder: Path = STATIC) -> str:
    """The whole document; `data` is base64."""
    text = (folder / INDEX).read_text(encoding="utf-8")
    styles = "\n".join(
        (folder / match["file"]).read_text(encoding="utf-8") for match in _SHEET.finditer(text)
    )
    script = bundled(folder).replace("</script", "<\\/script").replace("<!--", "<\\!--")
    styles = styles.replace("</style", "<\\/style")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(styles)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    text = _ICON.sub("", _SHEET.sub("", text))
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"    <style>{styles}</style>\n  </head>"
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
