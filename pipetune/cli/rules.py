"""`pipetune rules`: every rewrite pipetune knows, and when it is legal."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipetune.cli.answer import Answer, lines, wrapped
from pipetune.cli.command import Subparsers, add_command
from pipetune.core.codec import Json

if TYPE_CHECKING:
    from pipetune.rewrites.rule import Rule


def add(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = add_command(
        subparsers,
        "rules",
        summary="every rule: what it does, when it is legal, its safety",
        description="Lists all rewrite rules, or describes one of them.",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="one rule: parallel-map")
    return parser


def execute(arguments: argparse.Namespace) -> Answer:
    """Runs the command.

    Raises:
        PipetuneError: there is no rule with this name.
    """
    from pipetune.rewrites import find_rule, find_rules

    if arguments.name:
        rule = find_rule(arguments.name)
        texts = (("what", rule.summary), ("legal", rule.legality), ("safety", rule.safety))
        shown = [wrapped(text, first=f"  {title:<7} ", rest=" " * 10) for title, text in texts]
        return Answer(_data([rule]), lines(rule.name, *shown))
    rules = find_rules()
    width = max(len(rule.name) for rule in rules) + 2
    shown = [wrapped(rule.summary, first=f"{rule.name:<{width}}", rest=" " * width) for rule in rules]
    return Answer(_data(rules), lines(*shown))


def _data(rules: Sequence[Rule]) -> dict[str, Json]:
    return {
        "rules": [
            {"name": rule.name, "summary": rule.summary, "legality": rule.legality, "safety": rule.safety}
            for rule in rules
        ]
    }
