"""`FILE.py:NAME` or `KIND:TEXT`: from what was typed to the tunable it means."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

from whet.cli.arguments.options import option
from whet.cli.arguments.reading import NothingKnownError, open_known
from whet.core.errors import UsageError, did_you_mean, no_triton
from whet.core.plugins import find_plugin, plugin_names
from whet.engine.policy.checking import KnownKernel
from whet.engine.target import Placeable, Target
from whet.targets.files import file_of_module, guarded, import_by_name, load_module

if TYPE_CHECKING:
    from whet.targets.triton.offline.kernel import Kernel

_KIND = re.compile(r"[A-Za-z][\w.+-]*")


def locate(text: str, *, as_far_as_it_goes: bool = False) -> Target | Kernel:
    """Runs the file and returns its tunable; whatever is wrong with either is a `UsageError`.

    NAME is a target, a kernel decorated with `whet.autotune` or `triton.autotune`, or a function
    without arguments that returns a target, and may be left out where the file has only one of
    them. `as_far_as_it_goes` is content with a file that fails below NAME, and says so on stderr.

    `KIND:TEXT`, where KIND is no file, is a target that an installed package makes of TEXT.
    """
    packaged = of_package(text)
    if packaged is not None:
        return _placed(packaged, text)
    return _in_file(*_split(text), as_far_as_it_goes=as_far_as_it_goes)


def _in_file(path: Path, name: str | None, *, as_far_as_it_goes: bool = False) -> Target | Kernel:
    module = load_module(path, enough=name if as_far_as_it_goes else None)
    found = _tunables(module)
    if name is None:
        if len(found) != 1:
            raise UsageError(_which(path, found))
        [(name, value)] = found.items()
    elif not hasattr(module, name):
        raise UsageError(f"{path} has no '{name}'{did_you_mean(name, found)}")
    else:
        value = getattr(module, name)
    return _tunable(path, name, value, found)


def _tunable(path: Path, name: str, value: Any, found: dict[str, Any]) -> Target | Kernel:
    kernel = _kernel(value) or _stock_kernel(value)
    if kernel is not None:
        return _placed(replace(kernel, where=f"{path}:{name}"), f"{path.resolve()}:{name}")
    return _placed(_target(path, name, value, found), f"{path.resolve()}:{name}")


def locate_recorded(where: str, module: str, allow: Callable[[Path], Path]) -> Target | Kernel:
    """What a recorded call was a call of: the module by its name, if its file is the recorded one
    or that is not here; else `FILE.py:NAME`. Never `KIND:TEXT`: a record may be a stranger's, and
    `allow` says which files of its choice may be run."""
    file, _, name = where.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise UsageError(
            f"its record names '{where}', and only FILE.py:NAME is taken from a record"
        )
    found = file_of_module(module) if module else None
    if found is None or not _is_recorded(found, file):
        return _in_file(allow(_split(where)[0]), name)
    allowed = allow(found)
    try:
        loaded = import_by_name(module)
    except Exception:  # the file by itself may do with less of its package
        return _in_file(allowed, name)
    if not hasattr(loaded, name):
        raise UsageError(f"module {module} has no '{name}'{did_you_mean(name, _tunables(loaded))}")
    return _tunable(found, name, getattr(loaded, name), {})


def _is_recorded(found: Path, recorded: str) -> bool:
    if os.path.isfile(recorded) and os.path.isabs(recorded):
        return os.path.samefile(found, recorded)
    return found.name == os.path.basename(recorded)


def of_package(text: str) -> Target | None:
    """What an installed package makes of `KIND:TEXT`; None where that means a file, or nothing."""
    kind, colon, spec = text.partition(":")
    if not colon or not _may_be_kind(kind):
        return None
    plugin = find_plugin("target", kind)
    if plugin is None:
        return None
    made = plugin.make(spec)
    if not isinstance(made, Target) or isinstance(made, type):
        raise plugin.unfit(f"it made {type(made).__name__!r}, not a Target")
    return made


def _may_be_kind(text: str) -> bool:
    return bool(_KIND.fullmatch(text)) and not text.endswith(".py") and not os.path.exists(text)


def _kinds(text: str) -> str:
    """The end of an error message, where installed packages have targets."""
    kind = text.partition(":")[0]
    names = plugin_names("target") if ":" in text and _may_be_kind(kind) else ()
    if not names:
        return ""
    return f"; no installed package has a target '{kind}'{did_you_mean(kind, names)}"


def _placed(found: Target | Kernel, place: str) -> Target | Kernel:
    """So that results are kept under the name that was typed, too."""
    if not isinstance(found, Target):
        found.tuner.whet_place = place
        return found
    return found.placed(place) if isinstance(found, Placeable) else found


def file_of(text: str) -> Path:
    """The file in `FILE.py:NAME`."""
    return _split(text)[0]


def name_in(text: str) -> str | None:
    """The name in `FILE.py:NAME`."""
    return _split(text)[1]


def _split(text: str) -> tuple[Path, str | None]:
    file, colon, name = text.rpartition(":")
    if not colon or os.path.isfile(text):  # not Path.is_file, which raises for too long a name
        file, name = text, ""
    elif not name.isidentifier():
        raise UsageError(f"'{text}' does not say what to tune; use FILE.py:NAME{_kinds(text)}")
    path = Path(file)
    if os.path.isdir(path):
        raise UsageError(f"{path} is a directory; name a Python file in it, as FILE.py:NAME")
    if not os.path.isfile(path):
        raise UsageError(f"no such file: {path}{_near(path)}{_kinds(text)}")
    if path.suffix != ".py":
        raise UsageError(f"{path} is not a Python file; use FILE.py:NAME")
    return path, name or None


def _near(path: Path) -> str:
    try:
        files = sorted(str(other) for other in path.parent.glob("*.py"))
    except OSError:
        return ""
    return did_you_mean(str(path), files) if 0 < len(files) <= 10 else ""


def _which(path: Path, found: dict[str, Any]) -> str:
    if not found:
        return (
            f"{path} has nothing to tune; use whet.function(…) or whet.native(…), or for a "
            "Triton kernel whet.autotune(…) or triton.autotune(…)"
        )
    names = ", ".join(found)
    return (
        f"{path} has {len(found)} tunables; choose one with {path}:NAME, where NAME is one "
        f"of {names}"
    )


def _tunables(module: ModuleType) -> dict[str, Any]:
    """The targets by name, each once; where there is none, the functions that may return one."""
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    targets: dict[str, Any] = {}
    for name, value in public.items():
        known = any(value is other for other in targets.values())
        if not known and (_is_target(value) or _kernel(value) is not None):
            targets[name] = value
    makers = {
        name: value
        for name, value in public.items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not required_of(value)
        and _may_return_target(value)
    }
    stock = {name: value for name, value in public.items() if _stock_kernel(value) is not None}
    return targets or stock or makers


def _is_target(value: Any) -> bool:
    return isinstance(value, Target) and not isinstance(value, type)


def _kernel(value: Any) -> Kernel | None:
    """Triton is not imported to find out: a file with a decorated kernel has done so."""
    if "whet.targets.triton.autotuner" not in sys.modules:
        return None
    from whet.targets.triton.offline.kernel import kernel_of

    return kernel_of(value)


def _stock_kernel(value: Any) -> Kernel | None:
    """A kernel under Triton's own decorator, taken over."""
    if "triton.runtime.autotuner" not in sys.modules or not _is_plain_kernel(value):
        return None
    from whet.targets.triton.offline.kernel import taken_over

    return taken_over(value)


def _is_plain_kernel(value: Any) -> bool:
    jit = sys.modules.get("triton.runtime.jit")
    return jit is not None and isinstance(value, jit.KernelInterface)


def _may_return_target(maker: Callable[..., Any]) -> bool:
    returns = inspect.signature(maker).return_annotation
    name = returns if isinstance(returns, str) else getattr(returns, "__name__", "")
    return returns is inspect.Signature.empty or "Target" in name


def required_of(maker: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def _target(path: Path, name: str, value: Any, found: dict[str, Any]) -> Target:
    if isinstance(value, Target) and not isinstance(value, type):
        return value
    if _is_plain_kernel(value):
        raise UsageError(
            f"{path}:{name} is a Triton kernel without configs; decorate it with "
            "whet.autotune(…, inputs=…) or triton.autotune(…)"
        )
    if not callable(value):
        kind = type(value).__name__
        raise UsageError(
            f"{path}:{name} has type {kind} and cannot be tuned{did_you_mean(name, found)}"
        )
    needed = required_of(value)
    if needed:
        raise UsageError(
            f"{path}:{name} requires arguments ({', '.join(needed)}); wrap it in "
            "whet.function(…), or in a function without arguments that returns a target"
        )
    made = guarded(path, value)
    if not isinstance(made, Target):
        raise UsageError(
            f"{path}:{name} returned {type(made).__name__}, which cannot be tuned; return the "
            "result of whet.function(…) or whet.native(…)"
        )
    return made


InputsOption = Annotated[
    str | None,
    option(
        "--inputs FILE.py:FUNCTION",
        "A function that creates the kernel's arguments from a key; needed if the "
        "kernel's file has no inputs=.",
    ),
]


def with_inputs(found: Target | Kernel, text: str | None) -> Target | Kernel:
    """The kernel with the function that `text` names as its `inputs`; the same without a text."""
    if text is None:
        return found
    if isinstance(found, Target):
        raise UsageError(f"'{found.name}' takes no --inputs: only Triton kernels have inputs")
    found.tuner.whet_inputs = _function(text, found)
    return replace(found, inputs_from=text)


def _function(text: str, kernel: Kernel) -> Callable[..., Any]:
    path, name = file_of(text), name_in(text)
    module = _loaded(kernel, path) or load_module(path)
    functions = [
        known
        for known, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    if name is None and "inputs" not in functions:
        raise UsageError(f"--inputs {text} names no function; use FILE.py:FUNCTION")
    value = getattr(module, name or "inputs", None)
    if not callable(value):
        raise UsageError(f"{path} has no function '{name}'{did_you_mean(str(name), functions)}")
    return value  # type: ignore[no-any-return]


def _loaded(kernel: Kernel, path: Path) -> ModuleType | None:
    """The kernel's own module where that is of this file, so that it is not run twice."""
    module = sys.modules.get(kernel.tuner.base_fn.__module__)
    file = getattr(module, "__file__", None)
    return module if file is not None and Path(file) == path.resolve() else None


def kernels_in_store(store: str | None) -> list[KnownKernel]:
    """None where there is no store yet."""
    from whet.engine.policy.checking import stored_kernels

    try:
        with open_known(store) as opened:
            workloads = [known.workload for known in opened.workloads()]
            return stored_kernels(workloads, opened.missed(tuned=True))
    except NothingKnownError:
        return []


def install_whet(inductor: bool | None = None) -> None:
    """In place of `triton.autotune`, for what is imported from here on."""
    try:
        from whet.targets.triton.install import install

        install() if inductor is None else install(inductor=inductor)
    except ImportError as error:
        raise UsageError(no_triton(error) or f"cannot import Triton ({error})") from None


def live_tuners(file: str | None, module: str | None) -> list[Any]:
    """Every autotuner there is once the file or the module is imported, with whet behind it."""
    try:
        from whet.targets.triton.adoption import live
        from whet.targets.triton.autotuner import Autotuner
        from whet.targets.triton.install import install
    except ImportError as error:
        raise UsageError(f"cannot import Triton ({error}); install it, or name no file") from None
    install()
    loaded = None
    if file is not None:
        loaded = load_module(file_of(file))
    if module is not None:
        sys.path.insert(0, os.getcwd())
        loaded = guarded(Path(module), lambda: importlib.import_module(module))
    found = [one for one in live() if isinstance(one, Autotuner)]
    del loaded  # held until now: a program's kernels go with it
    return found
