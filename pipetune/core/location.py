"""The location of a dataset call in the user's source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceLocation:
    """The span of one call expression.

    Lines count from 1, columns from 0 in UTF-8 bytes, as in `code.co_positions()`. On one line the span is the
    whole call expression; in a multi-line chain it starts at the method name. The end is the same in both cases,
    so a call is identified by `file`, `end_line`, `end_column` and `method`.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    method: str  # the public function the user called: "map", "list_files", "image_dataset_from_directory"
    scope: str = "<module>"  # the qualified name of the user's function that contains the call
    exact: bool = True  # False: only the statement is known (calls traced through AutoGraph)
    library: str = ""  # the package of the called function, if it is not TensorFlow: "keras"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
