"""Shared by the parsers of the commands: helpers, and the values of options (sizes, shares, lists of consents)."""

from __future__ import annotations

import argparse
import math
import re

from pipetune.core.edits import Consent
from pipetune.core.errors import PipetuneError
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
