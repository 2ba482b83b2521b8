"""Source files as text: reading and writing them so that no byte changes by accident."""

from __future__ import annotations

import codecs
import io
import re
import tokenize
from pathlib import Path

NEWLINE = re.compile(rb"\r\n|\r|\n")
BYTE_ORDER_MARK = "\ufeff"


def read_source(path: str) -> str:
    """Returns the text of a Python file, with its newlines and byte order mark unchanged.

    Raises:
        OSError: the file cannot be read.
        SyntaxError, UnicodeDecodeError: its bytes do not match its encoding cookie.
    """
    return decode_source(Path(path).read_bytes())


def decode_source(data: bytes) -> str:
    """Decodes source code by its encoding cookie (PEP 263); a byte order mark stays in the text."""
    return data.decode(_encoding(data))


def encode_source(text: str, *, like: bytes) -> bytes:
    """Encodes `text` in the encoding of the source file whose bytes are `like`."""
    return text.encode(_encoding(like))


def _encoding(data: bytes) -> str:
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return "utf-8" if codecs.lookup(encoding).name == "utf-8-sig" else encoding


def line_starts(code: bytes) -> list[int]:
    """Returns the byte offset of every line, as Python counts lines (form feeds and U+2028 do not end one)."""
    return [0, *(match.end() for match in NEWLINE.finditer(code))]


def line_start(code: bytes, offset: int) -> int:
    """Byte offset at which the line that holds `offset` begins."""
    return max(code.rfind(b"\n", 0, offset), code.rfind(b"\r", 0, offset)) + 1


def line_end(code: bytes, offset: int) -> int:
    """Byte offset of the newline that ends the line holding `offset`, or of the end of the text."""
    found = NEWLINE.search(code, offset)
    return found.start() if found else len(code)


def newline_of(code: bytes, offset: int) -> bytes:
    """Newline that ends the line holding `offset`; on the last line, the first one of the text, or a line feed."""
    found = NEWLINE.search(code, offset) or NEWLINE.search(code)
    return found.group() if found else b"\n"
