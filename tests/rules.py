"""Checks that a rule proposes nothing where it must not, and proposes a rewrite where it must.

check_no_proposal("cache", "range 10 | map random elements=10 bytes=1k | batch 2")
rewrites = check_proposes("prefetch", "range 10 | map | batch 2")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipetune.core.edits import Insert, NoProposal, Rewrite, apply_edits
from pipetune.core.pipeline import Pipeline, Value
from pipetune.rewrites import find_rule
from pipetune.rewrites.rule import Rule, RuleContext
from tests.words import parse


def context(
    words: str, *, options: Mapping[str, Value] | None = None, profiled: bool = True, **fields: Any
) -> RuleContext:
    """Returns the context of the pipeline that `words` describe; `fields` go to `RuleContext` (default: two cores)."""
    described = parse(words, options=options)
    fields.setdefault("cores", 2)
    fields.setdefault("profile", described.profile if profiled else None)
    return RuleContext(described.pipeline, **fields)


def proposals(rule: Rule | str, context: RuleContext) -> tuple[list[Rewrite], list[NoProposal]]:
    """Returns the rewrites of one rule and its reasons for no proposal; checks that the rewrites are well formed."""
    rule = find_rule(rule) if isinstance(rule, str) else rule
    rewrites: list[Rewrite] = []
    silences: list[NoProposal] = []
    for proposal in rule.propose(context):
        if isinstance(proposal, NoProposal):
            assert proposal.rule == rule.name and proposal.node in context.pipeline and proposal.why, proposal
            silences.append(proposal)
        else:
            check_rewrite(proposal, context.pipeline, rule=rule.name)
            rewrites.append(proposal)
    return rewrites, silences


def check_no_proposal(rule: Rule | str, words: str, **fields: Any) -> list[NoProposal]:
    """Asserts that `rule` proposes nothing for `words`; returns its reasons."""
    rewrites, silences = proposals(rule, context(words, **fields))
    assert not rewrites, f"must stay silent: {words}\n" + "\n".join(map(repr, rewrites))
    return silences


def check_proposes(rule: Rule | str, words: str, **fields: Any) -> list[Rewrite]:
    """Asserts that `rule` proposes something for `words`; returns the rewrites."""
    rewrites, silences = proposals(rule, context(words, **fields))
    assert rewrites, f"must fire: {words}\n" + "\n".join(silence.why for silence in silences)
    return rewrites


def check_rewrite(rewrite: Rewrite, pipeline: Pipeline, *, rule: str) -> Pipeline:
    """Asserts that `rewrite` applies, changes something and leaves a well-formed pipeline; returns that pipeline."""
    assert rewrite.rule == rule and rewrite.node in pipeline and rewrite.edits and rewrite.group, rewrite
    assert rewrite.summary.endswith("."), rewrite.summary
    for edit in rewrite.edits:
        if isinstance(edit, Insert):
            assert edit.id == f"{edit.op}@{edit.after}", edit
    edited = apply_edits(pipeline, rewrite.edits)
    assert edited != pipeline, f"changes nothing: {rewrite}"
    check_well_formed(edited)
    return edited


def check_well_formed(pipeline: Pipeline) -> None:
    """Asserts that ids are unique, inputs come before their consumers, and every node reaches the output."""
    seen: set[str] = set()
    for node in pipeline:
        assert node.id not in seen, f"{node.id} twice"
        assert set(node.inputs) <= seen, f"{node.id} stands before its input"
        seen.add(node.id)
    reached = {node.id for node in pipeline.upstream(pipeline.output.id)} | {pipeline.output.id}
    assert reached == seen, f"not read by the output: {seen - reached}"
