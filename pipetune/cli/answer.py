"""What a command answers: text for people or, with --json, one object for programs (`docs/scripting.md`)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill, indent

from pipetune.core.codec import Json
from pipetune.core.session_file import SESSION_FILE

_KINDS = {2: "usage", 3: "script", 4: "no-dataset", 5: "device", 130: "interrupted"}  # by exit code


@dataclass(frozen=True)
class Failure:
    message: str
    hint: str = ""
    exit_code: int = 1
    traceback: str = ""  # of the script
    output: str = ""  # the end of what was printed by `printed_by`
    printed_by: str = "the script"
    confidential: bool = False  # programs get none of the user's code and paths

    @property
    def data(self) -> dict[str, Json]:
        """The failure for programs."""
        return {
            "kind": _KINDS.get(self.exit_code, "failed"),
            "message": self.message,
            "hint": "" if self.confidential else self.hint,
            "exit_code": self.exit_code,
            "traceback": "" if self.confidential else self.traceback,
            "output": "" if self.confidential else self.output,
        }

    def show(self) -> None:
        """Prints what happened and what to do about it to standard error."""
        if self.output:
            print(f"The output of {self.printed_by} ends:\n{indent(self.output, '  ')}", file=sys.stderr)
        if self.traceback:
            print(self.traceback.rstrip(), file=sys.stderr)
        print(f"pipetune: {self.message}", *([f"  {self.hint}"] if self.hint else []), sep="\n", file=sys.stderr)


@dataclass(frozen=True)
class Answer:
    """What a command answers.

    Args:
        data: for programs.
        show: prints the answer for people to standard output.
        paths: files and folders that the answer is about; those that do not exist are omitted.
        exit_code: without a failure.
        failure: why the command did not finish; None if it did.
    """

    data: Mapping[str, Json] = field(default_factory=dict)
    show: Callable[[], object] = lambda: None
    paths: Mapping[str, Path] = field(default_factory=dict)
    exit_code: int = 0
    failure: Failure | None = None

    @property
    def status(self) -> int:
        return self.failure.exit_code if self.failure is not None else self.exit_code

    def print_object(self, command: str) -> None:
        """Prints the answer to the command of this name as an object."""
        paths: dict[str, Json] = {name: str(path.absolute()) for name, path in self.paths.items() if path.exists()}
        error: dict[str, Json] = {"error": self.failure.data} if self.failure is not None else {}
        answer = {"command": command, "exit_code": self.status, **self.data, "paths": paths, **error}
        print(json.dumps(answer, indent=1, allow_nan=False))


def lines(*texts: str) -> Callable[[], object]:
    """Returns a function that prints these lines."""
    return lambda: [print(text) for text in texts]


def wrapped(text: str, *, first: str, rest: str) -> str:
    """Returns text in lines of 80 columns, with what the first one and the others begin with."""
    return fill(text, width=80, initial_indent=first, subsequent_indent=rest, break_long_words=False)


def session_file_of(session: str) -> Path:
    """Returns the session.json that a command line names, itself or by its folder."""
    path = Path(session)
    return path / SESSION_FILE if path.is_dir() else path
