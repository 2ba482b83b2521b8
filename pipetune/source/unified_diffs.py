"""Unified diffs: writes one that `git apply` and `patch -p1` accept, and reads it back without fuzzy matching."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipetune.core.errors import PipetuneError
from pipetune.core.machine import Machine

if TYPE_CHECKING:
    from pipetune.source.emit import Emission

_Opcode = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]

_CONTEXT_LINES = 3  # unchanged lines around a change, the default of `diff -u`
_NO_NEWLINE = "\\ No newline at end of file\n"
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def patch_header(machine: Machine, *, version: str) -> str:
    """Returns the header of a patch: the machine on which its values were measured."""
    gibibytes = machine.memory_limit_bytes / 2**30
    return (
        f"Made by pipetune {version}. Measured with {machine.cores_granted:g} of {machine.cores_host} cores, "
        f"{gibibytes:.1f} GiB memory,\ndevice {machine.device} ({machine.processor}); other values may "
        "be faster on another machine."
    )


def patch_root(paths: Sequence[str], root: str) -> str:
    """Returns `root`; if a file lies outside of it, the deepest folder that contains all files."""
    absolute = [os.path.abspath(path) for path in paths]
    root = os.path.abspath(root)
    if all(os.path.commonpath([path, root]) == root for path in absolute):
        return root
    return os.path.commonpath([os.path.dirname(path) for path in absolute])


def unified_diff(emission: Emission, *, root: str, header: str = "") -> str:
    """Returns the changed files as one diff, sorted by their paths; empty if nothing changed.

    Args:
        root: the folder the paths in the diff are relative to (see `patch_root`).
        header: lines to prepend as comments, which `patch` and `git apply` skip.
    """
    if not emission.files:
        return ""
    base = patch_root(list(emission.files), root)
    parts = [f"# {line}\n" for line in header.splitlines()]
    for path, (old, new) in sorted(emission.files.items()):
        parts.append(file_diff(Path(os.path.abspath(path)).relative_to(base).as_posix(), old, new))
    return "".join(parts)


def file_diff(name: str, old: str, new: str) -> str:
    """Returns the diff of one file, which is called `name` in it."""
    end = "\t" if " " in name else ""  # git also ends a name that contains spaces with a tab
    diff = [f"--- a/{name}{end}\n", f"+++ b/{name}{end}\n"]
    before, after = _lines(old), _lines(new)
    for group in matcher(before, after).get_grouped_opcodes(_CONTEXT_LINES):
        _, old_start, _, new_start, _ = group[0]
        _, _, old_end, _, new_end = group[-1]
        diff.append(f"@@ -{_range(old_start, old_end)} +{_range(new_start, new_end)} @@\n")
        for tag, i, j, k, m in group:
            diff += [_line(" " if tag == "equal" else "-", line) for line in before[i:j]]
            diff += [_line("+", line) for line in after[k:m] if tag != "equal"]
    return "".join(diff)


def _lines(text: str) -> list[str]:
    """Splits a text as diff tools do: only a line feed ends a line."""
    return re.findall(r"[^\n]*\n|[^\n]+$", text)


def _line(sign: str, line: str) -> str:
    return sign + line if line.endswith("\n") else f"{sign}{line}\n{_NO_NEWLINE}"


def _range(start: int, end: int) -> str:
    length = end - start
    return f"{start + 1 if length else start}" + ("" if length == 1 else f",{length}")


def matcher(before: list[str], after: list[str]) -> SequenceMatcher[str]:
    """Returns a matcher that compares only what lies between the common prefix and the common suffix.

    Nearly all of a patched file is common. Only `get_opcodes`, and what is based on it, gives this result.
    """
    start, shorter = 0, min(len(before), len(after))
    while start < shorter and before[start] == after[start]:
        start += 1
    end = 0
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
    old_end, new_end = len(before) - end, len(after) - end
    middle = SequenceMatcher(None, before[start:old_end], after[start:new_end], autojunk=False).get_opcodes()

    class Whole(SequenceMatcher[str]):
        def get_opcodes(self) -> list[_Opcode]:
            return [
                ("equal", 0, start, 0, start),
                *((tag, i + start, j + start, k + start, m + start) for tag, i, j, k, m in middle),
                ("equal", old_end, len(before), new_end, len(after)),
            ]

    return Whole(None, before, after, autojunk=False)


@dataclass(frozen=True)
class Hunk:
    """A range of lines of a file in the old and the new text; the line numbers count from 0."""

    old_start: int
    new_start: int
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True)
class FilePatch:
    """The hunks of one file."""

    path: str  # relative to the patch's root
    hunks: tuple[Hunk, ...]

    def apply(self, text: str, *, reverse: bool = False) -> str | None:
        """Returns the text with the hunks applied (or reverted); None if they do not fit exactly.

        No offsets and no fuzzy matching: the patch was made for exactly one text.
        """
        lines, result, at = _lines(text), [], 0
        for hunk in self.hunks:
            start = hunk.new_start if reverse else hunk.old_start
            old, new = (hunk.new, hunk.old) if reverse else (hunk.old, hunk.new)
            if start < at or tuple(lines[start : start + len(old)]) != old:
                return None
            result += [*lines[at:start], *new]
            at = start + len(old)
        return "".join((*result, *lines[at:]))


def read_patch(diff: str) -> tuple[FilePatch, ...]:
    """Returns the files of a diff that `unified_diff` wrote, in its order.

    Raises:
        PipetuneError: it is not such a diff.
    """
    lines = _lines(diff)
    files: dict[str, list[Hunk]] = {}
    path, at = "", 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/").rstrip("\t\n")
            files[path] = []
        elif found := _HUNK.match(line):
            if path not in files:
                raise PipetuneError("The patch has a hunk without a file header.")
            hunk, at = _read_hunk(lines, at, found)
            files[path].append(hunk)
            continue
        at += 1
    return tuple(FilePatch(name, tuple(hunks)) for name, hunks in files.items())


def _read_hunk(lines: Sequence[str], at: int, found: re.Match[str]) -> tuple[Hunk, int]:
    old_start, old_count, new_start, new_count = (int(group) if group is not None else 1 for group in found.groups())
    sides: Mapping[str, list[str]] = {"-": [], "+": []}
    at += 1
    while at < len(lines):
        sign, content = lines[at][:1], lines[at][1:]
        if lines[at] == _NO_NEWLINE:
            for side in _sides(lines[at - 1][:1]):
                sides[side][-1] = sides[side][-1].removesuffix("\n")
        elif len(sides["-"]) == old_count and len(sides["+"]) == new_count:
            break
        elif sign in ("-", "+", " "):
            for side in _sides(sign):
                sides[side].append(content)
        else:
            raise PipetuneError(f"The patch is corrupt at line {at + 1}.")
        at += 1
    if len(sides["-"]) != old_count or len(sides["+"]) != new_count:
        raise PipetuneError("The patch ends in the middle of a hunk.")
    return Hunk(old_start - bool(old_count), new_start - bool(new_count), tuple(sides["-"]), tuple(sides["+"])), at


def _sides(sign: str) -> str:
    return "-+" if sign == " " else sign
