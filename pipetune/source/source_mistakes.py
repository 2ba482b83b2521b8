"""Mistakes that are visible in the source itself: discarded results of dataset methods."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from pipetune.core.pipeline import SourceLocation
from pipetune.core.profile import Finding
from pipetune.source.call_arguments import METHODS
from pipetune.source.source_files import BYTE_ORDER_MARK, read_source


def dropped_results(locations: Iterable[SourceLocation | None]) -> list[Finding]:
    """Returns findings for statements that call a dataset method and discard the result, such as `ds.shuffle(100)`.

    Args:
        locations: of every dataset built in the run; those that cannot be read or found are skipped.
    """
    alone: dict[str, Mapping[tuple[int, int], ast.Call]] = {}
    found = []
    for location in dict.fromkeys(locations):
        if location is None or not location.exact or location.method not in METHODS:
            continue
        if location.file not in alone:
            alone[location.file] = _statement_calls(location.file)
        call = alone[location.file].get((location.end_line, location.end_column))
        if call is None or not isinstance(call.func, ast.Attribute) or call.func.attr != location.method:
            continue
        name = call.func.value.id if isinstance(call.func.value, ast.Name) else "ds"
        found.append(
            Finding(
                code="dropped-result",
                message=f"The result of .{location.method}(...) is discarded: a dataset method changes nothing "
                "in place, so the line has no effect.",
                hint=f"Write `{name} = {name}.{location.method}(...)`.",
                file=location.file,
                line=location.end_line,
            )
        )
    return list(dict.fromkeys(found))


def _statement_calls(file: str) -> Mapping[tuple[int, int], ast.Call]:
    """Returns the calls that are a whole statement, by line and column (in bytes) of their end."""
    try:
        tree = ast.parse(read_source(file).removeprefix(BYTE_ORDER_MARK))
    except (OSError, SyntaxError, ValueError):
        return {}
    calls = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    return {(call.end_lineno or 0, call.end_col_offset or 0): call for call in calls}
