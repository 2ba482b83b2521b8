"""Cells of a notebook as source files: their names, their text, and a patch of them; the IPython shell that runs this
process, if one does (IPython is never imported here).

IPython compiles each cell under the name of a file that does not exist, and keeps its text in `linecache`. Sessions
name cells as the notebook does: "In [3]".
"""

from __future__ import annotations

import enum
import linecache
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from pipetune.core.edits import Plan, needs_comparison
from pipetune.core.pipeline import Pipeline
from pipetune.core.session import PatchResult, Session
from pipetune.source.emit import emit
from pipetune.source.source_files import neighboring_files, read_source
from pipetune.source.unified_diffs import file_diff


def running_shell() -> Any | None:
    """Returns the running `InteractiveShell`, of a terminal or a notebook; None if there is none."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython() if get_ipython is not None else None


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return getattr(running_shell(), "kernel", None) is not None


_FILE = re.compile(r"(?<![\w/])(?:[^\s\"'():,]*/)?(\w+\.py|<ipython-input-[^>]+>)(?::(\d+)\b)?")
"""A file in a text, of which IPython may have made up the name: its last part, and the line."""


_PART = "Only the whole plan was compared with the original, and a part of it cannot be written."


class Cells:
    """The cells that the running shell has compiled so far; none if no shell runs."""

    def __init__(self) -> None:
        shell = running_shell()
        cells = {one: shell.compile.format_code_name(one) for one in list(linecache.cache)} if shell is not None else {}
        self._names = {file: label[1].replace("In[", "In [") for file, label in cells.items() if label is not None}
        self._by_last_part = {os.path.basename(file): name for file, name in self._names.items()}

    def __contains__(self, file: str) -> bool:
        return file in self._names

    def named(self, text: str) -> str:
        """Returns a text with the names of cells in place of their files: "In [3], line 2"."""
        return _FILE.sub(self._named_place, text) if self._names else text

    def _named_place(self, place: re.Match[str]) -> str:
        name = self._by_last_part.get(place[1])
        if name is None:
            return place[0]
        return f"{name}, line {place[2]}" if place[2] else name

    def finish(self, session: Session) -> Session:
        """Returns the session with the names of cells in place of their files, in its patches too."""
        main = session.main_dataset
        if main is not None and any(node.location is not None and node.location.file in self for node in main.pipeline):
            others = [other.pipeline for other in session.datasets if other is not main]
            candidate = main.candidate
            if candidate is not None:
                candidate = replace(candidate, patch=self._patch(main.pipeline, candidate.plan, others))
            session = replace(
                session,
                patch=self._patch(main.pipeline, session.plan, others) if session.plan is not None else None,
                datasets=tuple(replace(one, candidate=candidate) if one is main else one for one in session.datasets),
            )
        return _mapped(session, self.named) if self._names else session

    def _patch(self, pipeline: Pipeline, plan: Plan, others: Sequence[Pipeline]) -> PatchResult:
        """Writes a plan into the text of cells."""
        emission = emit(pipeline, plan, read=self._read, near=self._near, other_pipelines=others)
        covered = [one for one in plan.rewrites if one.key in emission.covered]
        if len(covered) < len(plan.rewrites) and needs_comparison(edit for one in covered for edit in one.edits):
            emission = emission.rejected(covered, _PART)
        diff = "".join(self._diff(path, old, new) for path, (old, new) in emission.files.items())
        return PatchResult(diff, covered=emission.covered, not_covered=emission.not_covered, of_cells=True)

    def _near(self, file: str) -> Iterable[str]:
        """Returns the other cells: what one defines, all may use."""
        return [one for one in self._names if one != file] if file in self else neighboring_files(file)

    def _read(self, file: str) -> str:
        return "".join(linecache.getlines(file)) if file in self else read_source(file)

    def _diff(self, file: str, old: str, new: str) -> str:
        name = self._names.get(file) or os.path.relpath(file)
        hunks = file_diff(name, old, new).split("\n", 2)[2]  # behind a header for programs, which know no cells
        return f"--- {name}\n+++ {name}\n{hunks}"


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Returns a value with every text in it changed; what has none in it is the same object."""
    if isinstance(value, enum.Enum):
        return value
    if isinstance(value, str):
        return change(value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        changed = {name: new for name, part in parts.items() if (new := _mapped(part, change)) != part}
        return replace(value, **changed) if changed else value
    if isinstance(value, tuple):
        return tuple(_mapped(item, change) for item in value)
    if isinstance(value, Mapping):
        return {_mapped(key, change): _mapped(item, change) for key, item in value.items()}
    return value
