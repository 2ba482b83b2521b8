"""JPEGs of every usual kind, made of noise: a pixel taken from the wrong place always shows."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

KINDS = ("4:2:0", "4:2:2", "4:4:4", "gray", "CMYK", "progressive")


def jpeg(kind: str, height: int, width: int, *, seed: int = 0) -> bytes:
    draw = np.random.default_rng(seed)
    mode, channels = {"gray": ("L", 1), "CMYK": ("CMYK", 4)}.get(kind, ("RGB", 3))
    noise = draw.integers(0, 256, height * width * channels).astype(np.uint8)
    buffer = io.BytesIO()
    options = {"subsampling": kind} if kind.startswith("4:") else {"progressive": kind == "progressive"}
    Image.frombytes(mode, (width, height), noise.tobytes()).save(buffer, format="JPEG", quality=90, **options)
    return buffer.getvalue()


def png(height: int, width: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height)).save(buffer, format="PNG")
    return buffer.getvalue()


def photo(kind: str, height: int, width: int, *, seed: int = 0) -> bytes:
    """The bytes of one image whose colours change slowly, as in most photographs."""
    draw = np.random.default_rng(seed)
    few = Image.fromarray(draw.integers(0, 256, (5, 6, 3)).astype(np.uint8))
    image, buffer = few.resize((width, height), Image.Resampling.BICUBIC), io.BytesIO()
    if kind == "gray":
        image.convert("L").save(buffer, format="JPEG", quality=92)
    else:
        image.save(buffer, format="JPEG", quality=92, subsampling=kind)
    return buffer.getvalue()
