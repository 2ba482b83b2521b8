"""`pipetune rules`: every rewrite pipetune knows, and when it is legal."""

from __future__ import annotations

import argparse
import textwrap

from pipetune.cli.command import Subparsers, add_command


def add(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Adds the parser of this command and returns it."""
    parser = add_command(
        subparsers,
        "rules",
        summary="every rule: what it does, when it is legal, its safety",
        description="Lists all rewrite rules, or describes one of them.",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="one rule: parallel-map")
    return parser


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command and returns its exit code."""
    from pipetune.rewrites import find_rule, find_rules

    if arguments.name:
        rule = find_rule(arguments.name)
        print(rule.name)
        for title, text in (("what", rule.summary), ("legal", rule.legality), ("safety", rule.safety)):
            print(_wrapped(text, first=f"  {title:<7} ", rest=" " * 10))
        return 0
    rules = find_rules()
    width = max(len(rule.name) for rule in rules) + 2
    for rule in rules:
        print(_wrapped(rule.summary, first=f"{rule.name:<{width}}", rest=" " * width))
    return 0


def _wrapped(text: str, *, first: str, rest: str) -> str:
    return textwrap.fill(text, width=80, initial_indent=first, subsequent_indent=rest)
