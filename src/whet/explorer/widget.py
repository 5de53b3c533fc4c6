"""A workload's space as a widget of notebooks; `notebook.py` imports it where anywidget is."""

from __future__ import annotations

from typing import Any, ClassVar

import anywidget
import numpy as np
import traitlets

from whet.explorer import STATIC
from whet.explorer.columns import Rows
from whet.explorer.drawings import varied
from whet.explorer.notebook import SpaceView
from whet.explorer.report import bundled
from whet.explorer.subject import Subject

_ENTRY = "widget.js"
# A cell may be narrow; a tip lies above the page, outside the widget.
_MORE = """
.whet-widget { padding: 8px; overflow: hidden; }
.whet-widget h2 { white-space: normal; }
.whet-widget table { color: inherit; }
body > #tip { position: fixed; z-index: 9999; pointer-events: none; max-width: 420px; }
body > #tip { padding: 7px; border-radius: 6px; }
body > #tip { background: #17202b; color: #fff; font: 12px/1.5 sans-serif; }
body > #tip .tip-row { display: flex; justify-content: space-between; gap: 12px; }
body > #tip[hidden] { display: none; }
"""


def _style() -> str:
    """The explorer's own, for nothing but what is in the widget."""
    sheet = (STATIC / "style.css").read_text(encoding="utf-8")
    own = sheet.replace(":root", "&").replace("\nbody {", "\n& {")
    return f".whet-widget {{\n{own}}}\n{_MORE}"


def _received(value: Any, _: Any) -> bytes | None:
    return None if value is None else bytes(value)


class SpaceWidget(SpaceView, anywidget.AnyWidget):  # type: ignore[misc]
    """`brush` says what is selected, by axis: the texts of values, or `["LOW..HIGH"]`. It can be
    set; the notebook's page then says which `rows` are left."""

    _esm: ClassVar[str] = (
        f"{bundled(entry=_ENTRY)}\nexport default {{ render: $modules['{_ENTRY}'].render }};\n"
    )
    _css: ClassVar[str] = _style()
    columns = traitlets.Bytes().tag(sync=True)
    line = traitlets.Dict().tag(sync=True)
    axes = traitlets.List().tag(sync=True)
    brush = traitlets.Dict().tag(sync=True)
    rows = traitlets.Bytes(None, allow_none=True).tag(sync=True, from_json=_received)

    def __init__(self, subject: Subject) -> None:
        SpaceView.__init__(self, subject)
        read = self.reading
        parts = read.columns.encoded(0, read.total, read.complete, read.epoch, read.pointed)
        anywidget.AnyWidget.__init__(
            self,
            columns=b"".join(parts),
            line=self.summary,
            axes=varied(read.columns),
        )

    def selected_rows(self) -> Rows:
        return super().selected_rows() if self.rows is None else np.frombuffer(self.rows, np.uint32)
