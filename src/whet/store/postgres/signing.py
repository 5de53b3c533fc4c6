"""Signed entries: Ed25519 over stated bytes, by keys that a reader lists.

The bytes of an entry are the line `whet 1 trial`, `whet 1 run` or `whet 1 promotion`, and a line of
JSON: in ASCII, keys sorted, no spaces, and a number without a fraction written as an integer. A
trial is signed whole. A run is signed with the id of its workload in place of the workload, and
without `after` and `taken`, which say how it came into a store.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.core.errors import UsageError, install_extra
from whet.core.run import Outcome, Run
from whet.core.trial import Trial
from whet.store.rows import storable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_INSTALL = (
    "signed entries need the package cryptography, which is not installed; "
    f"install it with {install_extra('postgres')}"
)
_NO_STORE_FIELDS = ("after", "taken", "writer")


@dataclass(frozen=True)
class Promotion:
    """Which trial of which run is promoted for a workload, by their ids."""

    workload_id: str
    run_id: str
    trial_id: str

    def to_json(self) -> dict[str, Any]:
        return {"workload": self.workload_id, "run": self.run_id, "trial": self.trial_id}


Signable = Trial | Run | Promotion


def canonical_bytes(thing: Signable) -> bytes:
    data = thing.to_json()
    if isinstance(thing, Run):
        data = {name: value for name, value in data.items() if name not in _NO_STORE_FIELDS}
        data["workload"] = thing.workload.id
    elif isinstance(thing, Trial):
        data["error"] = storable(thing.error)
    text = json.dumps(_plain(data), sort_keys=True, separators=(",", ":"))
    return f"whet 1 {type(thing).__name__.lower()}\n{text}\n".encode()


class SigningKey:
    """`id` is made of the public key, so that nobody can claim another's."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = private.public_key().public_bytes_raw()
        self.id = key_id(self.public)

    @classmethod
    def read(cls, path: str) -> SigningKey:
        crypto = _cryptography()
        try:
            private = crypto.load_pem_private_key(Path(path).read_bytes(), password=None)
        except OSError as error:
            raise UsageError(
                f"cannot read the signing key {path}: {error.strerror}; create one with "
                f"'whet store key --new {path}'"
            ) from None
        except (ValueError, TypeError):
            private = None
        if not isinstance(private, crypto.Ed25519PrivateKey):
            raise UsageError(
                f"{path} is not an Ed25519 private key in PEM without a password; create one "
                f"with 'whet store key --new {path}'"
            )
        return cls(private)

    @classmethod
    def create(cls, path: str) -> SigningKey:
        """Writes it for its owner's eyes only; never over another file."""
        crypto = _cryptography()
        private = crypto.Ed25519PrivateKey.generate()
        pem = private.private_bytes(
            crypto.Encoding.PEM, crypto.PrivateFormat.PKCS8, crypto.NoEncryption()
        )
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise UsageError(f"cannot create {path}: {error.strerror}; use another path") from None
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
        return cls(private)

    def line(self, name: str) -> str:
        """The line of a list of trusted keys."""
        return f"{self.id} {base64.b64encode(self.public).decode()} {name}".rstrip()

    def sign(self, thing: Signable) -> str:
        made = self._private.sign(canonical_bytes(thing))
        return f"{self.id}:{base64.b64encode(made).decode()}"


class TrustedKeys:
    """A text file with a line for each key, `ID PUBLIC-KEY NAME`, and one for each that counts no
    longer, `revoked ID REASON`."""

    def __init__(self, keys: Mapping[str, tuple[bytes, str]], revoked: Mapping[str, str]) -> None:
        crypto = _cryptography()
        self._keys = {
            id: (crypto.Ed25519PublicKey.from_public_bytes(public), name)
            for id, (public, name) in keys.items()
        }
        self._bad: type[Exception] = crypto.InvalidSignature
        self.revoked = dict(revoked)

    @classmethod
    def read(cls, path: str) -> TrustedKeys:
        try:
            lines = Path(path).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"cannot read the trusted keys in {path} ({error}); use a file with the lines "
                "that 'whet store key --new' prints"
            ) from None
        keys: dict[str, tuple[bytes, str]] = {}
        revoked: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            words = line.split(maxsplit=2)
            if not words or line.lstrip().startswith("#"):
                continue
            if words[0] == "revoked" and len(words) > 1:
                revoked[words[1]] = words[2] if len(words) > 2 else ""
                continue
            public = _public(words[1]) if len(words) > 1 else None
            if public is None or key_id(public) != words[0]:
                raise UsageError(
                    f"line {number} of {path} is not a key; use the lines that "
                    "'whet store key --new' prints, and 'revoked ID REASON'"
                )
            keys[words[0]] = public, words[2] if len(words) > 2 else ""
        return cls(keys, revoked)

    def why_refused(
        self, thing: Signable, signature: str | None, revoked: Mapping[str, str]
    ) -> str | None:
        """None where a trusted key has signed it. `revoked` are more keys that do not count."""
        if not signature:
            return "is not signed"
        id, _, made = signature.partition(":")
        if id in self.revoked or id in revoked:
            reason = self.revoked.get(id) or revoked.get(id)
            return f"is signed with key {id}, which is revoked" + (f" ({reason})" if reason else "")
        if id not in self._keys:
            return f"is signed with key {id}, which is not among the trusted keys"
        key, name = self._keys[id]
        by = f"{id} ({name})" if name else id
        try:
            raw = base64.b64decode(made, validate=True)
        except (binascii.Error, ValueError):
            return f"has a signature of key {by} that cannot be read"
        for one in _as_signed(thing):
            try:
                key.verify(raw, canonical_bytes(one))
            except self._bad:
                continue
            return None
        return f"does not match its signature of key {by}: it is forged or was altered"


def key_id(public: bytes) -> str:
    return hashlib.sha256(public).hexdigest()[:16]


def _as_signed(thing: Signable) -> list[Signable]:
    """A run that came too late to be the choice is kept as one that was cut short, under the
    signature of the one that finished."""
    if isinstance(thing, Run) and thing.outcome is Outcome.INTERRUPTED:
        return [thing, replace(thing, outcome=Outcome.FINISHED)]
    return [thing]


def _public(text: str) -> bytes | None:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == 32 else None


def _plain(value: Any) -> Any:
    """A sample of 1000 ns may come back as 1000.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def _cryptography() -> Any:
    """Imported when used: few sign, and it takes its time."""
    from types import SimpleNamespace

    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise UsageError(_INSTALL) from None
    return SimpleNamespace(
        **{name: getattr(serialization, name) for name in ("Encoding", "PrivateFormat")},
        NoEncryption=serialization.NoEncryption,
        load_pem_private_key=serialization.load_pem_private_key,
        Ed25519PrivateKey=ed25519.Ed25519PrivateKey,
        Ed25519PublicKey=ed25519.Ed25519PublicKey,
        InvalidSignature=InvalidSignature,
    )
