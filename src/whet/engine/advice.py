"""A model that a strategy may ask: where it is, what is sent there, and the record of it.

Nothing is sent unless `llm_url` is set. The key is read where it is used, and is no part of the
settings, a record, a log or an error; what a server says is cleaned of it.

Why it is so: docs/decisions/agents.md.
"""

from __future__ import annotations

import json
import os
import queue
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from whet.core.budget import Budget
from whet.core.context import AdviceError, Exchange, PromptShown, TuningContext
from whet.core.errors import UsageError
from whet.core.intermediate import FACT, kept_stages
from whet.core.trial import Trial
from whet.core.workload import Workload
from whet.engine.settings import Settings
from whet.engine.target import Target
from whet.store import StoreReader
from whet.store.scanning import advice_file, code_folder

REPLAY = "replay:"
MOST_BYTES = 1 << 20
MOST_TOKENS = 4096
_LONGEST_SECRET = 8192
# Of a budget of time, questions and answers may take this share.
SHARE_OF_BUDGET = 0.5
_STAGES = ("ttgir", "ttir", "mlir", "llir", "ptx")
_VARIABLE = re.compile(r"\$(\w+)")


def secret(named: str) -> str:
    """The text in the environment variable or the file of that name. Errors do not repeat the name:
    it may be the secret itself, put in the wrong place."""
    text = os.environ.get(named)
    if text is None:
        try:
            with open(named, encoding="ascii") as file:
                text = file.read(_LONGEST_SECRET)
        except (OSError, ValueError):
            raise UsageError(
                "llm_key is the name of an environment variable or of a file that has the key, and "
                "there is neither of this name"
            ) from None
    text = text.strip()
    if not text or not text.isascii() or not text.isprintable():
        raise UsageError("what llm_key names has no key: it is empty, or not plain text")
    return text


@dataclass(frozen=True)
class Endpoint:
    """OpenAI's chat completions, or Anthropic's messages where the URL ends like theirs."""

    url: str = field(repr=False)
    model: str
    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    certificates: str | None = None
    timeout_s: float = 60.0

    @classmethod
    def of(cls, settings: Settings) -> Endpoint:
        parts = urlsplit(settings.llm_url or "")
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise UsageError(
                "llm_url is not valid; use https://host/v1 without a password, and llm_key for that"
            )
        if not settings.llm_model:
            raise UsageError("llm_url is set, but no model; set llm_model")
        path = parts.path.rstrip("/")
        anthropic = path.endswith("/messages")
        if not anthropic and not path.endswith("/completions"):
            path += "/chat/completions"
        headers = {"content-type": "application/json", "user-agent": "whet"}
        secrets = [parts.query] if parts.query else []
        if settings.llm_key is not None:
            key = secret(settings.llm_key)
            secrets.append(key)
            headers |= {"x-api-key": key} if anthropic else {"authorization": f"Bearer {key}"}
        headers |= {"anthropic-version": "2023-06-01"} if anthropic else {}
        for name, value in read_headers(settings.llm_headers or ""):
            given = _VARIABLE.sub(lambda found: os.environ.get(found[1], ""), value)
            secrets += [given] if len(given) >= 4 else []
            headers[name.lower()] = given
        url = urlunsplit(parts._replace(path=path, fragment=""))
        timeout_s, certificates = settings.llm_timeout_s, settings.llm_certificates
        return cls(url, settings.llm_model, headers, tuple(secrets), certificates, timeout_s)

    @property
    def _anthropic(self) -> bool:
        return "anthropic-version" in self.headers

    def body(self, prompt: str) -> dict[str, Any]:
        messages = [{"role": "user", "content": prompt}]
        most = {"max_tokens": MOST_TOKENS} if self._anthropic else {}
        return {"model": self.model, **most, "messages": messages}

    def shown(self, prompt: str) -> dict[str, Any]:
        """What would be sent, without what is secret."""
        open_to_all = ("content-type", "user-agent", "anthropic-version")
        headers = {
            name: value if name in open_to_all else "***" for name, value in self.headers.items()
        }
        return {"url": self.url.partition("?")[0], "headers": headers, "body": self.body(prompt)}

    def ask(self, prompt: str, most_s: float) -> str:
        """The text of the answer, within the time, however slowly it comes."""
        deadline = time.monotonic() + min(self.timeout_s, most_s)
        answers: queue.SimpleQueue[tuple[bytes, str]] = queue.SimpleQueue()

        def fetch() -> None:
            try:
                answers.put((self._fetched(prompt, deadline), ""))
            except urllib.error.HTTPError as error:
                answers.put((b"", f"the server answered {error.code} {error.reason}"))
            except (urllib.error.URLError, OSError) as error:
                answers.put((b"", f"it cannot be reached ({getattr(error, 'reason', error)})"))
            except Exception as error:  # such as a header that is none, which the text would quote
                answers.put((b"", f"{type(error).__name__} while asking"))

        threading.Thread(target=fetch, daemon=True).start()
        try:
            data, error = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            data, error = b"", "no answer in time"
        if not error and len(data) > MOST_BYTES:
            error = f"the answer is longer than {MOST_BYTES >> 10:,} KiB"
        if error:
            raise AdviceError(self._cleaned(" ".join(error.split())[:300]))
        return self._cleaned(_text_of(data))

    def _fetched(self, prompt: str, deadline: float) -> bytes:
        import ssl

        context = ssl.create_default_context(cafile=self.certificates)
        opener = urllib.request.build_opener(
            _NoRedirects, urllib.request.HTTPSHandler(context=context)
        )
        data = json.dumps(self.body(prompt)).encode()
        request = urllib.request.Request(self.url, data, dict(self.headers))
        left = max(0.001, deadline - time.monotonic())
        parts: list[bytes] = []
        with opener.open(request, timeout=left) as response:
            while sum(map(len, parts)) <= MOST_BYTES and time.monotonic() < deadline:
                part = response.read1(1 << 16)
                if not part:
                    break
                parts.append(part)
        return b"".join(parts)

    def _cleaned(self, text: str) -> str:
        for one in self.secrets:
            text = text.replace(one, "***")
        return text


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Else the key would go wherever the server says."""

    def redirect_request(self, *_: Any) -> None:
        return None


def read_headers(text: str) -> list[tuple[str, str]]:
    """`x-org: mine; x-key: $KEY` as pairs; a `ValueError` where it is not that."""
    found = []
    for part in filter(None, (one.strip() for one in re.split(r"[;\n]", text))):
        name, colon, value = part.partition(":")
        good = colon and re.fullmatch(r"[\w-]+", name.strip()) and value.strip().isprintable()
        if not good:
            raise ValueError
        found.append((name.strip(), value.strip()))
    return found


def _text_of(data: bytes) -> str:
    """What the model said, in an answer of either kind."""
    try:
        said = json.loads(data)
        found = said["choices"][0]["message"]["content"] if "choices" in said else said["content"]
        if isinstance(found, list):
            found = "".join(str(part.get("text", "")) for part in found)
        if isinstance(found, str):
            return found
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass
    raise AdviceError("the answer is not of the kind that was asked for")


class _Asking:
    """Questions to one endpoint, within a share of the budget's time."""

    def __init__(self, endpoint: Endpoint, budget: Budget) -> None:
        self._endpoint = endpoint
        self._left_s = budget.seconds and SHARE_OF_BUDGET * budget.seconds

    def __call__(self, prompt: str) -> str:
        if self._left_s is None:
            return self._endpoint.ask(prompt, self._endpoint.timeout_s)
        if self._left_s <= 0:
            raise AdviceError("the budget leaves no time for it")
        began = time.monotonic()
        try:
            return self._endpoint.ask(prompt, self._left_s)
        finally:
            self._left_s -= time.monotonic() - began


def context_of(
    target: Target,
    workload: Workload,
    store: StoreReader,
    settings: Settings,
    budget: Budget,
    known: Sequence[Trial],
) -> TuningContext:
    """What there is to know, and whom to ask, where somebody is configured."""
    folder = code_folder(store)
    works = [one for one in known if one.status.measured and FACT in one.facts]
    best = min(works, key=lambda one: one.median_ns or 0.0, default=None)
    kept = {} if folder is None or best is None else kept_stages(folder, best.facts.get(FACT))
    stages = [stage for stage in _STAGES if stage in kept] or list(kept)[:1]
    record = advice_file(store, workload.id)
    url = settings.llm_url
    advise: Any = None
    if url is not None and url.startswith(REPLAY):
        advise = _replayed(Path(url.removeprefix(REPLAY)))
    elif url is not None:
        advise = _Asking(Endpoint.of(settings), budget)

    def keep(exchange: Exchange) -> None:
        if record is None or store.read_only:
            return
        try:
            record.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
                file.write(json.dumps(exchange.to_json()).encode() + b"\n")
        except OSError:  # a record that cannot be written costs nobody a measurement
            return

    return TuningContext(
        kernel=workload.kernel,
        key=workload.key,
        device=workload.device,
        source=str(getattr(target, "source_text", "") or ""),
        code={stage: kept[stage] for stage in stages[:1]},
        advise=advise,
        keep=keep,
    )


def _replayed(path: Path) -> Any:
    from whet.search.llm import recorded

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        exchanges = [json.loads(line) for line in lines]
        if not all(isinstance(one, dict) and "answer" in one for one in exchanges):
            raise ValueError
    except (OSError, ValueError, RecursionError):
        raise UsageError(f"{path} is no record of questions and answers") from None
    return recorded(exchanges)


def show_prompt(
    target: Target,
    workload: Workload,
    store: StoreReader,
    settings: Settings,
    budget: Budget,
    known: Sequence[Trial],
) -> None:
    """Raises `PromptShown`."""
    from dataclasses import replace

    from whet.search.llm import Llm

    url = settings.llm_url
    silent = replace(settings, llm_url=None)
    context = context_of(target, workload, store, silent, budget, known)
    strategy = Llm(target.space, settings.seed, context=replace(context, advise=str))
    strategy.tell(list(known))
    configured = url is not None and not url.startswith(REPLAY)
    nobody = {"url": None, "headers": {}, "body": {"messages": [{"content": strategy.prompt}]}}
    raise PromptShown(Endpoint.of(settings).shown(strategy.prompt) if configured else nobody)
