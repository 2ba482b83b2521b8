"""`pipetune rules`: every rewrite pipetune knows, and when it is legal."""

from __future__ import annotations

import argparse

from pipetune.cli.command import Answer, lines, wrapped

SUMMARY = "every rule: what it does, when it is legal, its safety"

DESCRIPTION = "Lists all rewrite rules, or describes one of them."


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="one rule: parallel-map")


def execute(arguments: argparse.Namespace) -> Answer:
    """Runs the command.

    Raises:
        PipetuneError: there is no rule with this name.
    """
    from pipetune.rewrites import find_rule, find_rules

    rules = (find_rule(arguments.name),) if arguments.name else find_rules()
    data = [{"name": one.name, "summary": one.summary, "legality": one.legality, "safety": one.safety} for one in rules]
    if arguments.name:
        texts = (("what", rules[0].summary), ("legal", rules[0].legality), ("safety", rules[0].safety))
        shown = [rules[0].name, *(wrapped(text, first=f"  {title:<7} ", rest=" " * 10) for title, text in texts)]
    else:
        width = max(len(rule.name) for rule in rules) + 2
        shown = [wrapped(rule.summary, first=f"{rule.name:<{width}}", rest=" " * width) for rule in rules]
    return Answer({"rules": data}, lines(*shown))
