"""`pipetune`: parses the command line and dispatches to a command. Nothing heavy is imported here."""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from pipetune.cli import analyze, apply, bench, check, compare, doctor, report, rules, run, size
from pipetune.cli.command import Answer, Failure, option_strings
from pipetune.core.errors import PipetuneError, did_you_mean
from pipetune.core.version import VERSION

COMMANDS = (analyze, apply, run, report, compare, check, size, rules, bench, doctor)
"""Each has SUMMARY, DESCRIPTION and perhaps USAGE, `add` for its options and `execute`."""

_RUN_TENSORFLOW = (analyze, run, bench, doctor)

_DESCRIPTION = """\
Finds the bottleneck in the tf.data input pipeline of a training script, tries
legal rewrites on your machine, proves that the data stay the same, and writes a
patch."""

_EPILOG = """\
exit codes:
  0    done, also if there is nothing to improve
  1    a check failed
  2    wrong usage
  3    the script failed; its traceback is shown
  4    no dataset was consumed
  5    the target device is absent
  130  interrupted; what was measured is saved

first steps:
  pipetune analyze train.py            measure; reports/train/ shows the results
  pipetune apply reports/train --diff  look at the patch
  pipetune apply reports/train         apply it to the source files"""


class _Parser(argparse.ArgumentParser):
    """A parser that reports wrong usage as an object, too, if the command line asks for one."""

    json = False

    def error(self, message: str) -> NoReturn:
        """Prints the usage and what is wrong with it, and exits."""
        if self.json:
            Answer(failure=Failure(message, exit_code=2)).print_object(self.prog.removeprefix("pipetune").strip())
        super().error(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Names the choice that was probably meant; argparse has an option for it from Python 3.14 on."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            meant = did_you_mean(str(value), map(str, action.choices or ()))
            raise argparse.ArgumentError(action, f"{error.message}.{meant}") from None


def build_parser(*, json: bool = False) -> argparse.ArgumentParser:
    """Returns the parser of the whole command line, with a subparser per command.

    Args:
        json: report wrong usage as an object too.
    """
    parser = _Parser(
        prog="pipetune",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"pipetune {VERSION}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        child = subparsers.add_parser(
            _name(command),
            help=command.SUMMARY,
            description=command.DESCRIPTION,
            usage=getattr(command, "USAGE", None),  # else argparse makes it
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        child.add_argument("--json", action="store_true", help="print one JSON object for programs, and nothing else")
        command.add(child)
        child.json = json
        child.set_defaults(command=command.execute, command_name=_name(command), parser=child)
    parser.json = json
    return parser


def _name(command: ModuleType) -> str:
    return command.__name__.rpartition(".")[2]


def parse(words: Sequence[str]) -> argparse.Namespace | None:
    """Returns the parsed command line; None if it is empty, after printing the help.

    Raises:
        SystemExit: it is invalid; usage, the problem and a suggestion were printed to standard error.
    """
    parser = build_parser(json=_asks_for_json(words))
    names = [_name(command) for command in COMMANDS]
    if not words:
        parser.print_help(sys.stderr)
        return None
    options = option_strings(parser)
    if words[0] == "-m" or words[0].endswith((".py", ".ipynb")):
        parser.error(f"no command was given. Did you mean pipetune analyze {shlex.join(words)}?")
    if words[0].startswith("-") and words[0] not in options:
        parser.error(
            f"there is no option {words[0]!r} before the command.{did_you_mean(words[0], options)} The options of a "
            "command follow it: pipetune analyze --budget 30 train.py"
        )
    if not words[0].startswith("-") and words[0] not in names:
        parser.error(f"there is no command {words[0]!r}.{did_you_mean(words[0], names)}")
    parsed, unknown = parser.parse_known_args(words)
    if unknown:
        used: argparse.ArgumentParser = parsed.parser
        meant = did_you_mean(unknown[0].partition("=")[0], option_strings(used))
        place = " Arguments of the script follow it." if hasattr(parsed, "script") else ""
        used.error(f"unrecognized arguments: {' '.join(unknown)}.{meant}{place}")
    return parsed


def _asks_for_json(words: Sequence[str]) -> bool:
    """Whether the options have --json, as far as a wrong command line tells them from the arguments of a script."""
    options = itertools.takewhile(lambda word: word not in ("-m", "--") and not word.endswith(".py"), words)
    return "--json" in options


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    parsed = parse(sys.argv[1:] if arguments is None else arguments)
    if parsed is None:
        return 2
    from pipetune.supervisor.user_files import recover  # not for --help

    for text in recover():
        print(f"pipetune: {text}", file=sys.stderr)
    status = 0
    try:
        answer = _answer(parsed)
        status = answer.status
        if parsed.json:
            answer.print_object(parsed.command_name)
        else:
            answer.show()
        sys.stdout.flush()
        if answer.failure is not None:
            answer.failure.show()
    except BrokenPipeError:  # as when the output goes to `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _answer(parsed: argparse.Namespace) -> Answer:
    try:
        if parsed.command_name in map(_name, _RUN_TENSORFLOW):
            from pipetune.core.requirements import require_tensorflow

            warning = require_tensorflow()
            if warning and not getattr(parsed, "quiet", False):
                print(f"pipetune: {warning}", file=sys.stderr)
        answer: Answer = parsed.command(parsed)
        return answer
    except PipetuneError as error:
        return Answer(failure=Failure(error.message, error.hint, error.exit_code))
    except KeyboardInterrupt:
        return Answer(failure=Failure("Interrupted.", exit_code=130))
    except Exception as error:
        if parsed.json:  # a mistake in pipetune: its traceback goes to standard error
            Answer(failure=Failure(f"{type(error).__name__}: {error}")).print_object(parsed.command_name)
        raise
