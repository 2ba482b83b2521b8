"""The rules: one module per family of rewrites, found by scanning this package for values of type `Rule`.

To add a rule, add a file; there is no list to maintain. Modules without a `Rule` contain what several of them need.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import replace

from pipetune.core.edits import Consent, NoProposal, Rewrite, Safety, apply_edits
from pipetune.core.errors import PipetuneError, did_you_mean
from pipetune.core.operators import FUSED_SHUFFLE, fused_shuffles
from pipetune.core.pipeline import Node, Pipeline
from pipetune.rewrites.conflicts import concurrent_python, find_conflict
from pipetune.rewrites.parallel_reads import add_read_config_note
from pipetune.rewrites.pricing import format_bytes
from pipetune.rewrites.resuming import adapt_to_resuming
from pipetune.rewrites.rule import Rule, RuleContext, describe_operator
from pipetune.rewrites.threads import limit_to_cores

__all__ = ["Rule", "RuleContext", "find_rule", "find_rules", "propose_all"]


def find_rules() -> tuple[Rule, ...]:
    """Returns all rules of this package, sorted by `order`, then by name."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    found = {value.name: value for module in modules for value in vars(module).values() if isinstance(value, Rule)}
    return tuple(sorted(found.values(), key=lambda rule: (rule.order, rule.name)))


def find_rule(name: str) -> Rule:
    """Returns the rule called `name`.

    Raises:
        PipetuneError: no rule has this name; the hint lists the valid names.
    """
    rules = {rule.name: rule for rule in find_rules()}
    if name in rules:
        return rules[name]
    raise PipetuneError(
        f"There is no rule called {name!r}.{did_you_mean(name, rules)}", hint="Rules: " + ", ".join(rules)
    )


def propose_all(context: RuleContext) -> tuple[list[Rewrite], list[NoProposal]]:
    """Returns the proposals of all rules, and the reasons where a rule proposes nothing.

    If the script resumes earlier runs, the safety class of each rewrite is adapted to that (`resuming`).
    A rewrite that no plan may contain, that alone exceeds the memory limit, or that changes only what a full cache of
    the script makes idle becomes a `NoProposal`. If two rules propose the same edits, the first keeps them. Rewrites
    that leave a value to AUTOTUNE are limited to the available cores. Rewrites chosen from the list are applied in its
    order.
    """
    rewrites: dict[str, Rewrite] = {}
    later_epochs = context.profile is not None and context.profile.cache_seconds is not None
    idle = context.pipeline.idle_operators if later_epochs else {}
    silences: list[NoProposal] = []
    for rule in find_rules():
        for found in rule.propose(context):
            proposal = found if isinstance(found, NoProposal) else _adapted(found, context)
            if isinstance(proposal, NoProposal):
                silences.append(proposal)
                continue
            if why := _obstacle(proposal, context, idle):
                silences.append(NoProposal(proposal.rule, proposal.node, why))
            else:
                rewrites.setdefault(repr(proposal.edits), proposal)
    return list(rewrites.values()), list(dict.fromkeys(silences))


def _adapted(rewrite: Rewrite, context: RuleContext) -> Rewrite | NoProposal:
    """Returns a rewrite with what follows from all its edits: limits, notes and the safety class; or why it is none."""
    rewrite = add_read_config_note(limit_to_cores(rewrite, context), context)
    edited = apply_edits(context.pipeline, rewrite.edits)
    rewrite = _with_python_safety(_with_fusion_safety(rewrite, context, edited), context, edited)
    return adapt_to_resuming(rewrite, context)


def _obstacle(rewrite: Rewrite, context: RuleContext, idle: Mapping[str, Node]) -> str:
    """Returns why no plan may contain a rewrite, a sentence; "" if one may. `idle` has the caches downstream by id."""
    if conflict := find_conflict(context, [rewrite]):
        return f"{conflict[0].upper()}{conflict[1:]}."
    if rewrite.named and all(name in idle for name in rewrite.named):
        return f"Nothing upstream of {describe_operator(idle[rewrite.named[0]])} runs after the first epoch."
    if rewrite.predicted_bytes > context.memory_limit_bytes:
        needed, limit = format_bytes(rewrite.predicted_bytes), format_bytes(context.memory_limit_bytes)
        return f"{rewrite.summary} This would need {needed} more memory, above the limit of {limit}."
    return ""


def _with_python_safety(rewrite: Rewrite, context: RuleContext, edited: Pipeline) -> Rewrite:
    """Returns the rewrite as STATISTICAL, with a consent of its own, if Python code begins to run beside other such."""
    if not concurrent_python(context, edited):
        return rewrite
    note = "Python code of several operators then runs at the same time: it must be thread-safe, and draws vary."
    return replace(
        rewrite,
        safety=max(rewrite.safety, Safety.STATISTICAL),
        needs=rewrite.needs | {Consent.PYTHON_PARALLEL},
        reproducible=False,
        notes=(*rewrite.notes, note),
    )


def _with_fusion_safety(rewrite: Rewrite, context: RuleContext, edited: Pipeline) -> Rewrite:
    """Returns the rewrite as REORDERS if TensorFlow's fusion of shuffle and repeat then changes a seeded order.

    An APPROXIMATE one needs the consent to another order, too.
    """
    if Consent.REORDER in rewrite.consents or fused_shuffles(edited) == fused_shuffles(context.pipeline):
        return rewrite
    safety, needs = max(rewrite.safety, Safety.REORDERS), rewrite.needs
    needs |= {Consent.REORDER} if safety is not Safety.REORDERS else set()
    return replace(rewrite, safety=safety, needs=needs, notes=(*rewrite.notes, f"{FUSED_SHUFFLE}."))
