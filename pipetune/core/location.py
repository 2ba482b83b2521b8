"""Where in the user's source a dataset call stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceLocation:
    """The span of one call expression.

    Lines count from 1, columns from 0 in UTF-8 bytes, as `code.co_positions()` gives them. On one line the
    span is the whole call expression, in a multi-line chain it starts at the method name; the end is the
    same in both, so a call is identified by `file`, `end_line`, `end_column` and `method`.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    method: str  # the public function the user called: "map", "list_files", "image_dataset_from_directory"
    scope: str = "<module>"  # the qualified name of the user's function the call stands in
    exact: bool = True  # False: only the statement is known (calls traced through AutoGraph)
    library: str = ""  # the package of the function the user called, where that is not TensorFlow: "keras"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
