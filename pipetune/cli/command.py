"""Shared by the commands: what one answers, as text for people or with --json as one object for programs
(`docs/scripting.md`), and the parsers and values of options (sizes, shares, lists of consents)."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill, indent

from pipetune.core.codec import Json
from pipetune.core.edits import Consent
from pipetune.core.errors import PipetuneError
from pipetune.core.session_file import SESSION_FILE
from pipetune.core.settings import consents_of
from pipetune.supervisor.target import Target, module_target, script_target

_BANDWIDTH = re.compile(r"(\d+(?:\.\d+)?) ?([kKMGT]?)(i?)(B|b|bit|bits)(?:/s|ps)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


def positive_seconds(text: str) -> float:
    """Returns a number of seconds above zero.

    Raises:
        argparse.ArgumentTypeError: as all parsers of this file, if `text` is not valid; says what is expected.
    """
    return _positive(text, "a number of seconds")


def milliseconds(text: str) -> float:
    """Returns a duration given in milliseconds, in seconds; raises as above."""
    return _positive(text, "a number of milliseconds") / 1000


def positive_count(text: str) -> int:
    """Returns a whole number above zero; raises as above."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def byte_size(text: str) -> int:
    """Returns a size in bytes: 2000000, 512M, 4GiB; units are powers of 1024. Raises as above."""
    found = _SIZE.fullmatch(text.strip())
    size = float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " ") if found else 0
    if not 1 <= size < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write 512M or 4GiB")
    return int(size)


def bandwidth(text: str) -> float:
    """Returns a bandwidth in bytes per second: 1GB/s, 500MiB/s, or in bits 10Gb/s, 10Gbps; raises as above.

    Prefixes are decimal unless followed by i.
    """
    found = _BANDWIDTH.fullmatch(text.strip())
    power = " KMGT".index(found[2].upper() or " ") if found else 0
    value = float(found[1]) * (1024 if found[3] else 1000) ** power if found else 0.0
    if not found or not 0 < value < math.inf or (found[3] and not power):
        raise argparse.ArgumentTypeError(f"{text!r} is not a bandwidth above 0; write 1GB/s, or in bits 10Gb/s")
    return value if found[4] == "B" else value / 8


def share(text: str) -> float:
    """Returns a share between 0 and 1: 5%, or 0.05; raises as above."""
    value = _number(text.removesuffix("%"), "a share")
    value = value / 100 if text.endswith("%") else value
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share; write 5% or 0.05")
    return value


def factor(text: str) -> float:
    """Returns a ratio above zero: 1.1, or 1.1x; raises as above."""
    value = _number(text.removesuffix("x"), "a factor")
    if not value > 0 or math.isinf(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a factor above 0; write 1.1")
    return value


def consents(text: str) -> frozenset[Consent]:
    """Returns the consents in a list such as "statistical,reorder"; raises as above."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    try:
        return consents_of(words or [text])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def names(text: str) -> frozenset[str]:
    """Returns the names in a list such as "cache,prefetch"."""
    return frozenset(word.strip() for word in text.split(",") if word.strip())


def _positive(text: str, kind: str) -> float:
    value = _number(text, kind)
    if not value > 0 or math.isinf(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {kind} above 0")
    return value


def _number(text: str, kind: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {kind}")
    return value


def add_target(parser: argparse.ArgumentParser) -> None:
    """Adds SCRIPT or -m MODULE; everything after it is passed to the script unparsed."""
    group = parser.add_argument_group("what to run")
    group.add_argument(
        "-m",
        dest="module",
        metavar="MODULE",
        nargs=argparse.REMAINDER,
        help="MODULE and its arguments, as after `python -m`",
    )
    group.add_argument(
        "script",
        metavar="SCRIPT",
        nargs=argparse.REMAINDER,
        help="the training script; all arguments after it are passed to the script",
    )


def option_strings(parser: argparse.ArgumentParser) -> list[str]:
    """Returns the options of a command, as they are typed."""
    return [option for action in parser._actions for option in action.option_strings]


def target_of(arguments: argparse.Namespace) -> Target:
    """Returns the target from the arguments that `add_target` added.

    Raises:
        PipetuneError: no script or module was named, or it is not valid.
    """
    if arguments.module:
        module, *rest = arguments.module
        return module_target(module, tuple(rest))
    words = arguments.script[1:] if arguments.script[:1] == ["--"] else arguments.script
    if not words:
        raise PipetuneError(
            "No script was given.", hint="pipetune analyze train.py, or pipetune analyze -m package.train"
        )
    script, *rest = words
    return script_target(script, tuple(rest))


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
