"""`pipetune`: parses the command line and dispatches to a command. Nothing heavy is imported here."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence

from pipetune.cli import analyze, apply, bench, check, compare, doctor, report, rules, run, size
from pipetune.core.errors import PipetuneError, did_you_mean
from pipetune.core.version import VERSION

COMMANDS = (analyze, apply, run, report, compare, check, size, rules, bench, doctor)

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


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the whole command line, with a subparser per command."""
    parser = argparse.ArgumentParser(
        prog="pipetune",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"pipetune {VERSION}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = command.add(subparsers)
        subparser.set_defaults(command=command.execute, parser=subparser)
    return parser


def parse(words: Sequence[str]) -> argparse.Namespace | None:
    """Returns the parsed command line; None if it is empty, after printing the help.

    Raises:
        SystemExit: it is invalid; usage, the problem and a suggestion were printed to standard error.
    """
    parser = build_parser()
    names = [command.__name__.rpartition(".")[2] for command in COMMANDS]
    if not words:
        parser.print_help(sys.stderr)
        return None
    options = _option_strings(parser)
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
        meant = did_you_mean(unknown[0].partition("=")[0], _option_strings(used))
        place = " Arguments of the script follow it." if hasattr(parsed, "script") else ""
        used.error(f"unrecognized arguments: {' '.join(unknown)}.{meant}{place}")
    return parsed


def _option_strings(parser: argparse.ArgumentParser) -> list[str]:
    return [option for action in parser._actions for option in action.option_strings]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    parsed = parse(sys.argv[1:] if arguments is None else arguments)
    if parsed is None:
        return 2
    from pipetune.supervisor.user_files import recover  # not for --help

    for text in recover():
        print(f"pipetune: {text}", file=sys.stderr)
    try:
        status: int = parsed.command(parsed)
        sys.stdout.flush()
        return status
    except PipetuneError as error:
        print_error(error.message, error.hint)
        return error.exit_code
    except KeyboardInterrupt:
        print_error("Interrupted.")
        return 130
    except BrokenPipeError:  # as when the output goes to `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def print_error(message: str, hint: str = "") -> None:
    """Prints what happened and what to do about it to standard error."""
    lines = [f"pipetune: {message}", *([f"  {hint}"] if hint else [])]
    print("\n".join(lines), file=sys.stderr)
