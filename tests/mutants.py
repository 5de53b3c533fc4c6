"""Changes one thing in the code at a time, and sees whether a test notices.

    python tests/mutants.py [FOLDER …] [--sample 150] [--seed 1] [--json FILE]

A mutant is the code with one operator, number, condition or call changed. Only the tests that enter
the changed function are run, or for a constant those that enter a function which names it: those of
its own room first, and the cheapest of them, until one fails. What hangs is noticed too. Which test
enters what is recorded once and kept until the test or the code changes. A survivor is a number or
a branch that no test holds.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import pytest

FOLDERS = ("src/whet/learn", "src/whet/search", "src/whet/measure/racing")
ROOMS = ("learn", "search", "measure", "engine", "replay")
TESTS = (*(f"tests/unit/{room}" for room in ROOMS), "tests/contract/test_contract_strategy.py")
# Imported once, where tests name them, in the process that all mutants are forked from.
SHARED = ("numpy", "scipy.stats", "sklearn.ensemble", "sklearn.gaussian_process")
# Tests of so many seconds in all are tried on a mutant; what only others would notice survives.
MOST_S = 8.0
# So much longer, in processor time, and a mutant hangs; or so long by the clock, however busy the
# machine is.
HANGS_S, SLEEPS_S = 20.0, 600.0
# Tests that are tried before the files of all the others are read.
FIRST = 30

# What takes the place of an operator, by the names that `ast` has for them.
_SWAPS = """
    Lt: LtE GtE, LtE: Lt Gt, Gt: GtE LtE, GtE: Gt Lt, Eq: NotEq, NotEq: Eq, Is: IsNot, IsNot: Is,
    In: NotIn, NotIn: In, Add: Sub, Sub: Add, Mult: Div, Div: Mult, FloorDiv: Mult, Mod: FloorDiv,
    Pow: Mult, BitAnd: BitOr, BitOr: BitAnd, And: Or, Or: And
"""
_SWAP = {one.strip(): to.split() for one, to in (pair.split(":") for pair in _SWAPS.split(","))}
_OTHERS = [("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("any", "all")]
_OTHERS += [("nanmin", "nanmax"), ("floor", "ceil")]
_OTHER = {one: other for pair in _OTHERS for one, other in (pair, pair[::-1])}
# What is only read by people, or only there for the type checker.
_UNSEEN = (ast.Raise, ast.Assert, ast.JoinedStr, ast.arguments, ast.Import, ast.ImportFrom)
# What these give is a number, so that it may be given with the other sign.
_NUMBERS = re.compile(r"float|int|Floats|Singles|Array")


@dataclass(frozen=True)
class Mutant:
    """`text` in place of the bytes from `start` to `end`. `owner` is the function that it is in, or
    empty where it is in the value of `names`, for whose users it then matters."""

    path: str
    start: int
    end: int
    text: str
    owner: str
    names: tuple[str, ...]

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]

    def line(self, source: bytes) -> int:
        return source.count(b"\n", 0, self.start) + 1

    def described(self, source: bytes) -> str:
        at = self.line(source) - 1
        before, after = (text.decode().splitlines() for text in (source, self.applied(source)))
        return f"{self.path}:{at + 1}  {before[at].strip()}  →  {after[at].strip()}"


class _Sites(ast.NodeVisitor):
    """Collects, for each place where something can be changed, the ways to change it."""

    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[list[Mutant]] = []
        self._path = path
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._classes: list[str] = []
        self._owner = ""
        self._names: tuple[str, ...] = ()

    def _add(self, node: ast.expr | ast.stmt, *ways: ast.AST | str) -> None:
        if not self._owner and not self._names:
            return
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._lines[node.lineno - 1] + node.col_offset
        end = self._lines[node.end_lineno - 1] + node.end_col_offset
        texts = [one if isinstance(one, str) else f"({ast.unparse(one)})" for one in ways]
        ends = (start, end)
        made = [Mutant(self._path, *ends, text, self._owner, self._names) for text in texts]
        if made:
            self.found.append(made)

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, _UNSEEN):
            return
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            if ast.unparse(node.test) == "TYPE_CHECKING":
                return
            if not isinstance(node.test, ast.UnaryOp):
                self._add(node.test, f"(not ({ast.unparse(node.test)}))")
        super().visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any("Protocol" in ast.unparse(base) for base in node.bases):
            return
        self._classes.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._classes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outermost = not self._owner
        if outermost:
            self._owner = ".".join([*self._classes, node.name])
        gives = ast.unparse(node.returns) if node.returns else ""
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        for given in (one for one in ast.walk(node) if isinstance(one, ast.Return)):
            if given.value is not None and gives == "bool":
                self._add(given.value, f"(not ({ast.unparse(given.value)}))")
            elif given.value is not None and _NUMBERS.fullmatch(gives):
                self._add(given.value, f"(-({ast.unparse(given.value)}))")
        if outermost:
            self._owner = ""

    def visit_Assign(self, node: ast.Assign) -> None:
        names = [one.id for target in node.targets for one in _plain_names(target)]
        if "__all__" not in names:
            with self._naming(names):
                self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            with self._naming([one.id for one in _plain_names(node.target)]):
                self.visit(node.value)

    @contextlib.contextmanager
    def _naming(self, names: Sequence[str]) -> Iterator[None]:
        self._names = () if self._owner else tuple(names)
        yield
        self._names = ()

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "pass")
        swapped = _swapped(node.op)
        self._add(
            node, *(ast.unparse(ast.AugAssign(node.target, op, node.value)) for op in swapped)
        )
        self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._add(node, "pass")
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for at, op in enumerate(node.ops):
            changed = [[*node.ops[:at], one, *node.ops[at + 1 :]] for one in _swapped(op)]
            self._add(node, *(ast.Compare(node.left, ops, node.comparators) for ops in changed))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._add(node, *(ast.BoolOp(op, node.values) for op in _swapped(node.op)))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not any(_is_listed(one) for one in (node.left, node.right)):
            self._add(node, *(ast.BinOp(node.left, op, node.right) for op in _swapped(node.op)))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self._add(node, node.operand)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func
        if isinstance(name, ast.Name) and name.id in _OTHER:
            self._add(name, _OTHER[name.id])
        elif isinstance(name, ast.Attribute) and name.attr in _OTHER:
            self._add(name, f"{ast.unparse(name.value)}.{_OTHER[name.attr]}")
        elif isinstance(name, ast.Name) and name.id in ("isinstance", "cast"):
            return
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg == "axis":
            self._add(node.value, "0" if ast.unparse(node.value) == "1" else "1")
        elif node.arg != "strict":  # which only says what is so
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._add(node, repr(not value))
        elif isinstance(value, int | float):
            ways = [value * 2, value * 10, value + 1, -value]
            self._add(node, *dict.fromkeys(f"({one!r})" for one in ways if one != value))


def _swapped(op: ast.AST) -> list[Any]:
    return [getattr(ast, other)() for other in _SWAP.get(type(op).__name__, ())]


def _plain_names(target: ast.AST) -> list[ast.Name]:
    return [one for one in ast.walk(target) if isinstance(one, ast.Name)]


def _is_listed(node: ast.AST) -> bool:
    text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return text or isinstance(node, ast.List | ast.ListComp | ast.Tuple | ast.JoinedStr)


def sites_of(path: str, source: bytes) -> list[list[Mutant]]:
    sites = _Sites(path, source)
    sites.visit(ast.parse(source))
    return sites.found


def sampled(root: Path, folders: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """One mutant of each of so many places, in the order of the files."""
    sites: list[list[Mutant]] = []
    for folder in folders:
        for file in sorted((root / folder).rglob("*.py")):
            sites += sites_of(file.relative_to(root).as_posix(), file.read_bytes())
    rng = random.Random(seed)
    chosen = sorted(rng.sample(range(len(sites)), min(count, len(sites))))
    return [rng.choice(sites[at]) for at in chosen]


class Users:
    """Which functions name what, themselves or by a constant that is made of it."""

    def __init__(self, files: Sequence[tuple[str, ast.Module]]) -> None:
        self._functions: dict[str, set[str]] = defaultdict(set)
        self._constants: dict[str, set[str]] = defaultdict(set)
        for path, tree in files:
            self._read(path, "", tree.body)

    def _read(self, path: str, prefix: str, body: Sequence[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                self._read(path, f"{prefix}{node.name}.", node.body)
                continue
            used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
            used |= {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
            for name in used:
                if isinstance(node, ast.FunctionDef):
                    self._functions[name].add(f"{path}::{prefix}{node.name}")
                elif isinstance(node, ast.Assign | ast.AnnAssign):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    made = {one.id for target in targets for one in _plain_names(target)}
                    self._constants[name] |= made - {name}

    def of(self, mutant: Mutant) -> set[str]:
        if mutant.owner:
            return {f"{mutant.path}::{mutant.owner}"}
        names, new = set(mutant.names), set(mutant.names)
        while new:
            new = {made for name in new for made in self._constants[name]} - names
            names |= new
        return {function for name in names for function in self._functions[name]}


class _Steady:
    """Hypothesis without chance, memory or shrinking: a mutant has the same fate in every run."""

    def pytest_sessionstart(self) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "mutants", hypothesis.settings(), derandomize=True, database=None, phases=phases
        )
        hypothesis.settings.load_profile("mutants")


class Recording(_Steady):
    """What each test that passes enters, by file and name, and how long it takes."""

    def __init__(self, root: Path) -> None:
        self._root = f"{root}{os.sep}"
        self.tests: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        entered: dict[int, CodeType] = {}

        def enter(frame: FrameType, event: str, _: object) -> None:
            if event == "call":
                entered[id(frame.f_code)] = frame.f_code

        began = time.perf_counter()
        sys.setprofile(enter)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            functions = {
                f"{code.co_filename.removeprefix(self._root)}::{_outermost(code.co_qualname)}"
                for code in entered.values()
                if code.co_filename.startswith(self._root)
            }
            took = time.perf_counter() - began
            self.tests[item.nodeid] = {"seconds": took, "functions": sorted(functions)}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.tests.pop(report.nodeid, None)


def _outermost(name: str) -> str:
    return name.partition(".<locals>")[0]


class _Chosen(_Steady):
    """Runs these tests only, in this order, and says which was the first to fail."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._places = {test: at for at, test in enumerate(tests)}
        self.failed: str | None = None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._places]
        items.sort(key=lambda item: self._places[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = report.nodeid


class _Swap(SourceFileLoader):
    """Gives one module another source."""

    def __init__(self, name: str, path: Path, source: bytes) -> None:
        super().__init__(name, str(path))
        self._source = source

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, name: str) -> CodeType:
        code: CodeType = compile(self._source, self.path, "exec")
        return code


def _pytest(root: Path, files: Sequence[str], plugin: _Steady, *options: str) -> int:
    fixed = ("-q", "--rootdir", str(root), "-p", "no:cacheprovider", "-o", "timeout=0")
    return int(pytest.main([*fixed, *options, *files], plugins=[plugin]))


def forked(answer: Callable[[], Any], limit_s: float | None, scratch: Path) -> Any:
    """What `answer` gives in a process of its own; None where that takes too long or dies. The
    limit is on what it computes."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        with contextlib.suppress(BaseException):
            os.setsid()
            if limit_s is not None:
                resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit_s), math.ceil(limit_s)))
            with (scratch / "output").open("w") as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            said = json.dumps(answer()).encode()
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(said)
            status = 0
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        if limit_s is not None:
            signal.signal(signal.SIGALRM, lambda *_: os.killpg(child, signal.SIGKILL))
            signal.setitimer(signal.ITIMER_REAL, SLEEPS_S)
        said = pipe.read()
        signal.setitimer(signal.ITIMER_REAL, 0)
    os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return json.loads(said) if said else None


class Hunt:
    def __init__(self, root: Path, package: str, tests: Sequence[str], scratch: Path) -> None:
        self._root, self._package, self._scratch = root, package, scratch
        self._kept = root / ".pytest_cache" / "mutants.json"
        sources = sorted((root / package).rglob("*.py"))
        self._test_files = sorted(
            file for test in tests for file in _python_files(root / test) if file.is_file()
        )
        files = [(self._relative(file), ast.parse(file.read_bytes())) for file in sources]
        self._sources = hashlib.sha256("".join(ast.dump(tree) for _, tree in files).encode())
        files += [(self._relative(one), ast.parse(one.read_bytes())) for one in self._test_files]
        self._users = Users(files)
        self._tests: dict[str, dict[str, Any]] = {}

    def _relative(self, file: Path) -> str:
        return file.relative_to(self._root).as_posix()

    def share_imports(self) -> None:
        text = b"".join(file.read_bytes() for file in self._test_files)
        for name in SHARED:
            if name.partition(".")[0].encode() in text:
                import_module(name)

    def record(self) -> None:
        """Files whose tests, and all code, are as they were are not run again."""
        kept = json.loads(self._kept.read_text()) if self._kept.exists() else {}
        known: dict[str, Any] = {}
        stale: dict[str, str] = {}
        for file in self._test_files:
            if file.name.startswith("test_"):
                digest = self._sources.copy()
                for beside in sorted({file, *_python_files(file.parent)} - set(self._others(file))):
                    digest.update(beside.read_bytes())
                path, key = self._relative(file), digest.hexdigest()
                if kept.get(path, {}).get("key") == key:
                    known[path] = kept[path]
                else:
                    stale[path] = key
        if stale:
            print(f"recording what the tests of {len(stale)} files enter", flush=True)
            found = forked(lambda: self._recorded(list(stale)), None, self._scratch)
            assert found is not None, f"recording failed: {self._scratch / 'output'}"
            for path, key in stale.items():
                mine = {test: one for test, one in found.items() if test.partition("::")[0] == path}
                known[path] = {"key": key, "tests": mine}
            self._kept.parent.mkdir(exist_ok=True)
            self._kept.write_text(json.dumps(known))
        self._tests = {test: one for path in known for test, one in known[path]["tests"].items()}

    def _others(self, file: Path) -> list[Path]:
        return [one for one in file.parent.glob("test_*.py") if one != file]

    def _recorded(self, files: Sequence[str]) -> dict[str, Any]:
        recording = Recording(self._root)
        _pytest(self._root, files, recording, "-m", "not slow and not gpu")
        return recording.tests

    def noticed(self, mutant: Mutant) -> str | None:
        """By what: the first test to fail, or `hangs`; None for a survivor."""
        users = self._users.of(mutant)
        entering = [test for test, one in self._tests.items() if users & set(one["functions"])]
        room = Path(mutant.path).relative_to(self._package).parts[0]
        entering.sort(key=lambda test: (f"/{room}/" not in test, self._tests[test]["seconds"]))
        tests, total = [], 0.0
        for test in entering:
            total += self._tests[test]["seconds"]
            if total > MOST_S:
                break
            tests.append(test)
        if not tests:
            return None
        limit_s = HANGS_S + 3 * min(total, MOST_S)
        said = forked(lambda: self._fate(mutant, tests), limit_s, self._scratch)
        return "hangs" if said is None else said["failed"]

    def _fate(self, mutant: Mutant, tests: Sequence[str]) -> dict[str, str | None]:
        file = self._root / mutant.path
        parts = file.relative_to((self._root / self._package).parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        sys.meta_path.insert(0, _Swap(name, file, mutant.applied(file.read_bytes())))
        for some in (tests[:FIRST], tests[FIRST:]):
            chosen = _Chosen(some)
            files = sorted({test.partition("::")[0] for test in some})
            if files:
                _pytest(self._root, files, chosen, "-x", f"--basetemp={self._scratch / 'tests'}")
            if chosen.failed:
                return {"failed": chosen.failed}
        return {"failed": None}


def _python_files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def hunt(root: Path, package: str, tests: Sequence[str], mutants: Sequence[Mutant]) -> list[Any]:
    sys.path.insert(0, str((root / package).parent))
    os.chdir(root)
    fates: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        made = Hunt(root, package, tests, Path(folder))
        made.share_imports()
        made.record()
        for number, mutant in enumerate(mutants, 1):
            began = time.perf_counter()
            by = made.noticed(mutant)
            shutil.rmtree(Path(folder) / "tests", ignore_errors=True)
            text = mutant.described((root / mutant.path).read_bytes())
            fate = "survived" if by is None else "noticed"
            took = time.perf_counter() - began
            print(f"{number}/{len(mutants)} {fate} {took:.1f} s  {text}", flush=True)
            fates.append({**asdict(mutant), "text": text, "by": by})
    return fates


def print_table(folders: Sequence[str], fates: Sequence[dict[str, Any]]) -> None:
    for fate in fates:
        if fate["by"] is None:
            print(f"survivor  {fate['text']}")
    print(f"{'folder':28} {'noticed':>8} {'survived':>9} {'share':>7}")
    for folder in folders:
        mine = [fate for fate in fates if fate["path"].startswith(f"{folder}/")]
        noticed = sum(fate["by"] is not None for fate in mine)
        share = f"{noticed / len(mine):.0%}" if mine else "–"
        print(f"{folder:28} {noticed:8} {len(mine) - noticed:9} {share:>7}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", default=FOLDERS, metavar="FOLDER")
    parser.add_argument("--sample", type=int, default=150, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to write what became of each")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--package", default="src/whet")
    parser.add_argument("--tests", nargs="+", default=TESTS)
    given = parser.parse_args()
    root, folders = given.root.resolve(), [str(Path(one)) for one in given.folders]
    output = given.json and given.json.resolve()
    fates = hunt(root, given.package, given.tests, sampled(root, folders, given.sample, given.seed))
    print_table(folders, fates)
    if output:
        output.write_text(json.dumps(fates, indent=1) + "\n")


if __name__ == "__main__":
    main()
