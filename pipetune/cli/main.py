"""`pipetune`: reads the command line and hands it to one command. Nothing heavy is imported here."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from pipetune.cli import analyze, apply, bench, check, compare, doctor, report, rules, run, size
from pipetune.core.errors import PipetuneError
from pipetune.core.version import VERSION
from pipetune.supervisor.user_files import recover

COMMANDS = (analyze, apply, run, report, compare, check, size, rules, bench, doctor)

_DESCRIPTION = """\
Finds what holds the tf.data input of a training script back, tries legal rewrites
on your machine, proves that the data stay the same, and writes a patch."""

_EPILOG = """\
exit codes:
  0    done; nothing to improve is done too
  1    a check failed
  2    wrong usage
  3    the script failed; its traceback is shown as its own
  4    no dataset was consumed
  5    the target device is absent
  130  interrupted; what was measured is saved

first steps:
  pipetune analyze train.py            measure, and write reports/train/
  pipetune apply reports/train --diff  look at the patch
  pipetune apply reports/train         put it into the source"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of every command."""
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
        subparser.set_defaults(command=command.execute)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    parsed = build_parser().parse_args(arguments)
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
    """One message on standard error: what happened, and what to do."""
    lines = [f"pipetune: {message}", *([f"  {hint}"] if hint else [])]
    print("\n".join(lines), file=sys.stderr)
