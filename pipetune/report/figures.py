"""How figures are drawn with matplotlib: their colours and style, and files that are the same bytes each time.

No date is in them, ids are salted with a constant, and text is kept as text.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

COLOURS = {
    "model": "#4658c8",
    "load": "#8f4a14",
    "tuned": "#0f7a5c",
    "failed": "#b3321f",
}
PLAIN = "#9aa0ab"


@contextlib.contextmanager
def house_style() -> Iterator[None]:
    """Inside, matplotlib draws as all figures here are drawn; a canvas made without pyplot needs no display."""
    import matplotlib

    settings = matplotlib.rc_context(
        {
            "svg.hashsalt": "pipetune",
            "svg.fonttype": "none",
            "text.parse_math": False,  # a name with dollars is not mathematics
            "font.size": 9.0,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    with settings, warnings.catch_warnings():
        # A name in a script the font lacks shows as boxes; that is nothing a user could act on.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        yield


def save_canvas(canvas: Canvas, path: Path, *, format: str) -> None:
    """Write a figure; the same bytes each time."""
    # Each format names its own date differently; None leaves it out.
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(format, {})
    canvas.savefig(path, format=format, dpi=160, bbox_inches="tight", metadata=dates)
