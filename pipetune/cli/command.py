"""Helpers shared by the parsers of the commands."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pipetune.core.errors import PipetuneError

if TYPE_CHECKING:
    from pipetune.supervisor.target import Target

Subparsers = Any  # the class that `add_subparsers` returns is private in argparse


def add_command(
    subparsers: Subparsers, name: str, *, summary: str, description: str, usage: str | None = None
) -> argparse.ArgumentParser:
    """Adds the parser of one command and returns it.

    Args:
        subparsers: what `add_subparsers` returned.
        name: of the command.
        summary: one line for the list of commands.
        description: the text above the options, printed with its line breaks.
        usage: the usage line; None to let argparse build it.
    """
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=summary,
        description=description,
        usage=usage,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object for programs, and nothing else")
    return parser


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


def target_of(arguments: argparse.Namespace) -> Target:
    """Returns the target from the arguments that `add_target` added.

    Raises:
        PipetuneError: no script or module was named, or it is not valid.
    """
    from pipetune.supervisor.target import module_target, script_target

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
