"""Tables of what a rule proposes and where it stays silent, and the tests that they become.

A row is (words, expected) or (words, fields of `RuleContext`, expected). `[a or b]` in the words stands for one row
with `a` and one with `b`. In a table of silence, expected is a part of the only reason that the rule gives, "" if it
gives none, or None if it may; in a table of proposals, the outlines of the rewrites.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pipetune.core import edits
from pipetune.core.edits import Consent, Edit, Rewrite
from pipetune.rewrites import propose_all
from pipetune.rewrites.conflicts import find_conflict
from pipetune.rewrites.rule import RuleContext
from tests.rules import check_no_proposal, check_proposes, context

Row = tuple[str, Any] | tuple[str, dict[str, Any], Any]

_REASONS = {
    "unknown": "nothing is known about",
    "python": "runs Python",
    "random": "draws random numbers",
    "seeded": "draws random numbers",
    "python_random": "draws random numbers",
    "variable=w": "reads the variable w",
    "writes": "writes a variable",
    "table": "uses a table that can change",
    "print": "has a side effect (PrintV2)",
    "file": "has a side effect (WriteFile)",
    "raises": "validates values",
}
"""What a rule says of a function about which this word of a stage is true."""


def functions(words: str, kinds: str, *, whose: str = "") -> list[Row]:
    """Returns a row of silence for each kind of function, for which `?` stands; the reason names the kind."""
    return [(words.replace("?", kind), f"{whose}{_REASONS[kind]}") for kind in kinds.split()]


def rows(table: Sequence[Row]) -> list[tuple[str, dict[str, Any], Any]]:
    """Returns the words, the fields and what is expected of each row, one by one for all alternatives."""
    found = []
    for words, *fields, expected in table:
        parts = re.split(r"\[(.*?)\]", words)
        choices = [part.split(" or ") if place % 2 else [part] for place, part in enumerate(parts)]
        for chosen in itertools.product(*choices):
            text = re.sub(" +", " ", "".join(chosen)).strip()
            found.append((text, fields[0] if fields else {}, expected))
    return found


def silent_test(rule: str, table: Sequence[Row], *, one_reason: bool = True) -> Callable[..., None]:
    """Returns the test that a rule proposes nothing for the rows, each for one reason or for one of several."""

    @pytest.mark.parametrize(("words", "fields", "why"), rows(table))
    def test(words: str, fields: dict[str, Any], why: str | None) -> None:
        reasons = [silence.why for silence in check_no_proposal(rule, words, **fields)]
        if why:
            assert any(why in reason for reason in reasons), reasons
            assert len(reasons) == 1 or not one_reason, reasons
        assert why != "" or not reasons

    return test


def proposal_test(
    rule: str, table: Sequence[Row], *, group: str = "", consent: Callable[[str], Iterable[Consent]] = lambda words: ()
) -> Callable[..., None]:
    """Returns the test that a rule proposes the outlined rewrites for the rows of a table.

    `group` is a pattern of the group of each rewrite, by default the rule's name at the operator; `consent` returns
    what the rewrites for some words need.
    """

    @pytest.mark.parametrize(("words", "fields", "expected"), rows(table))
    def test(words: str, fields: dict[str, Any], expected: list[str]) -> None:
        rewrites = check_proposes(rule, words, **fields)
        assert outlines(rewrites) == expected
        for rewrite in rewrites:
            assert re.fullmatch(group or f"{rule}@{rewrite.node}", rewrite.group)
            assert rewrite.needs == frozenset(consent(words))

    return test


def with_profile(described: RuleContext, **changes: Any) -> RuleContext:
    assert described.profile is not None
    return replace(described, profile=replace(described.profile, **changes))


def with_measured(described: RuleContext, *nodes: str, **changes: Any) -> RuleContext:
    """Returns a context with these fields of the profile of some operators changed; without names, of all."""
    assert described.profile is not None
    operators = described.profile.operators
    changed = (replace(one, **changes) if one.node in nodes or not nodes else one for one in operators)
    return with_profile(described, operators=tuple(changed))


def first(rewrites: Iterable[Rewrite], rule: str, node: str = "") -> Rewrite:
    return next(one for one in rewrites if one.rule == rule and node in ("", one.node))


def conflict(words: str, *wanted: str) -> str:
    """Returns the conflict of the first rewrites of some rules, each named as in "cache n2"."""
    described = context(words)
    rewrites, _ = propose_all(described)
    return find_conflict(described, [first(rewrites, *one.split()) for one in wanted])


def outlines(rewrites: list[Rewrite]) -> list[str]:
    """Returns the class and the edits of each rewrite: "EXACT n3.num_parallel_calls=2"."""
    return [" ".join([rewrite.safety.name, *map(_outline, rewrite.edits)]) for rewrite in rewrites]


def _outline(edit: Edit) -> str:
    match edit:
        case edits.SetArgument(node=node, name=name, value=value):
            return f"{node}.{name}={value}"
        case edits.Insert(after=after, op=op, arguments=arguments):
            return f"{op}({','.join(f'{k}={v}' for k, v in arguments.items())})>{after}"
        case edits.Move(node=node, after=after):
            return f"{node}>{after}"
        case edits.Remove(node=node):
            return f"-{node}"
        case edits.ReplaceFunction(node=node, form=form):
            return f"{node} {form}"
        case edits.ReplaceSource(node=node, after=after):
            return f"{node} numbers, gather>{after}"
        case edits.SplitFunction(node=node, cut=cut):
            return f"{node} cut {cut.kind}"
        case edits.ReplaceOperator(node=node, op=op, arguments=arguments):
            return f"{node} {op}({','.join(f'{k}={v}' for k, v in arguments.items())})"
        case edits.SetOption(name=name, value=value):
            return f"options.{name}={value}"
