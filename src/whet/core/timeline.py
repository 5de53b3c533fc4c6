"""`Timeline`: what every worker and the device did during one run, and when."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# What a packed timeline starts with; the last byte is the version of what follows.
_MAGIC = b"wtl\x01"
_LENGTH = struct.Struct("<I")

# Some ten million spans, far more than a run has.
_MOST_BYTES = 256 << 20

# One after another behind the header, each as long as there are spans: indexes into the header's
# lists, how deep, and in microseconds the start and the length.
_COLUMNS = (
    ("lane", "<u2"),
    ("name", "<u2"),
    ("config", "<u4"),
    ("depth", "u1"),
    ("start", "<i8"),
    ("length", "<i8"),
)
_SPAN_BYTES = sum(np.dtype(kind).itemsize for _, kind in _COLUMNS)


@dataclass(frozen=True)
class Span:
    """Something that took `seconds`, beginning `start_s` after the run did.

    `lane` is who was busy: `worker 3`, `device` or `engine`. A span of depth 1 is part of the span
    of depth 0 around it: a stage of a build, a phase of a visit to the device.
    """

    lane: str
    name: str
    start_s: float
    seconds: float
    config_id: str = ""
    depth: int = 0

    @property
    def end_s(self) -> float:
        return self.start_s + self.seconds


@dataclass(frozen=True)
class Timeline:
    """Spans in no particular order. Packed, they are kept to the microsecond."""

    spans: tuple[Span, ...] = ()

    def packed(self) -> bytes:
        lanes, lane = _indexed([span.lane for span in self.spans])
        names, name = _indexed([span.name for span in self.spans])
        configs, config = _indexed([span.config_id for span in self.spans])
        start_s = np.array([span.start_s for span in self.spans])
        seconds = np.array([span.seconds for span in self.spans])
        start = _microseconds(start_s)
        columns = {
            "lane": lane,
            "name": name,
            "config": config,
            "depth": [span.depth for span in self.spans],
            "start": start,
            # Of a rounded end, so that neighbours which touch do so ever after.
            "length": _microseconds(start_s + seconds) - start,
        }
        header = json.dumps(
            {"spans": len(self.spans), "lanes": lanes, "names": names, "configs": configs},
            separators=(",", ":"),
        ).encode()
        body = b"".join(np.asarray(columns[name], kind).tobytes() for name, kind in _COLUMNS)
        return _MAGIC + zlib.compress(_LENGTH.pack(len(header)) + header + body, level=1)

    @classmethod
    def from_packed(cls, data: bytes) -> Timeline:
        """Raises ValueError for what `packed` has not made."""
        try:
            return cls(_unpacked(data))
        except (zlib.error, struct.error, LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"damaged timeline ({type(error).__name__}: {error})") from error

    def to_perfetto(
        self,
        names: Mapping[str, str],
        *,
        process: str = "whet",
        number: int = 1,
        offset_s: float = 0.0,
    ) -> dict[str, Any]:
        """Chrome's trace-event JSON, which ui.perfetto.dev opens: one track for each lane.

        `names` says what a config is called. Several runs share one file by their `process`,
        its `number` and the `offset_s` at which each began.
        """
        lanes = sorted({span.lane for span in self.spans}, key=_lane_order)
        tracks = {lane: place for place, lane in enumerate(lanes, start=1)}
        events: list[dict[str, Any]] = [_label(number, 0, "process_name", name=process)]
        for lane, track in tracks.items():
            events.append(_label(number, track, "thread_name", name=lane))
            events.append(_label(number, track, "thread_sort_index", sort_index=track))
        # The viewer takes the first of two that start together for the outer one.
        for span in sorted(self.spans, key=lambda span: (span.start_s, span.depth, -span.seconds)):
            start = round(1e6 * (offset_s + span.start_s))
            end = round(1e6 * (offset_s + span.end_s))
            config = names.get(span.config_id, span.config_id)
            events.append(
                {
                    "ph": "X",
                    "pid": number,
                    "tid": tracks[span.lane],
                    "ts": start,
                    "dur": end - start,
                    "name": config if config and span.depth == 0 else span.name,
                    "cat": span.lane.partition(" ")[0],
                    "args": {"what": span.name, **({"config": config} if config else {})},
                }
            )
        return {"displayTimeUnit": "ms", "traceEvents": events}


def _indexed(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """`["a", "b", "a"]` is `["a", "b"]` and `[0, 1, 0]`."""
    places: dict[str, int] = {}
    indexes = [places.setdefault(text, len(places)) for text in texts]
    return list(places), indexes


def _microseconds(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    return np.rint(seconds * 1e6).astype(np.int64)


def _unpacked(data: bytes) -> tuple[Span, ...]:
    if not data.startswith(_MAGIC):
        raise ValueError("not a timeline, or written by a newer version of whet")
    inflate = zlib.decompressobj()
    raw = inflate.decompress(data[len(_MAGIC) :], _MOST_BYTES)
    if not inflate.eof:
        raise ValueError(f"damaged timeline (truncated, or more than {_MOST_BYTES >> 20} MiB)")
    (length,) = _LENGTH.unpack_from(raw)
    header = json.loads(raw[_LENGTH.size : _LENGTH.size + length])
    count, at = int(header["spans"]), _LENGTH.size + length
    if len(raw) != at + count * _SPAN_BYTES:
        raise ValueError("damaged timeline (wrong length)")
    columns: dict[str, list[int]] = {}
    for name, kind in _COLUMNS:
        column = np.frombuffer(raw, kind, count, at)
        columns[name], at = column.tolist(), at + column.nbytes
    lanes, names, configs = header["lanes"], header["names"], header["configs"]
    rows = zip(*(columns[name] for name, _ in _COLUMNS), strict=True)
    return tuple(
        Span(lanes[lane], names[name], start / 1e6, length / 1e6, configs[config], depth)
        for lane, name, config, depth, start, length in rows
    )


def _lane_order(lane: str) -> tuple[int, int, str]:
    """The engine, the device, then the workers by number."""
    kind, _, number = lane.partition(" ")
    first = {"engine": 0, "device": 1, "worker": 2}.get(kind, 3)
    return first, int(number) if number.isdigit() else 0, lane


def _label(process: int, track: int, what: str, **arguments: Any) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": track, "name": what, "args": arguments}
