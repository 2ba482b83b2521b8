"""The rules: one module per rewrite, found by scanning this package for modules that define a `RULE`.

To add a rule, add a file; there is no list to maintain. Modules without a `RULE` hold shared code.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Edit, Rewrite, Safety, Silence
from pipetune.core.errors import PipetuneError
from pipetune.core.fused_shuffles import FUSED_SHUFFLE, fused_shuffles
from pipetune.core.pipeline import Pipeline
from pipetune.core.spelling import did_you_mean
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.conflicts import remainder_conflict, shuffle_conflict
from pipetune.rules.granted_cores import bounded
from pipetune.rules.pricing import as_size
from pipetune.rules.resuming import as_resumed
from pipetune.rules.tfds import as_read_config

__all__ = ["Rule", "RuleContext", "find_rule", "find_rules", "propose_all"]


def find_rules() -> tuple[Rule, ...]:
    """Returns all rules of this package, sorted by `turn`, then by name."""
    found = []
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        rule = getattr(module, "RULE", None)
        if isinstance(rule, Rule):
            found.append(rule)
    return tuple(sorted(found, key=lambda rule: (rule.turn, rule.name)))


def find_rule(name: str) -> Rule:
    """Returns the rule called `name`.

    Raises:
        PipetuneError: no rule has this name; the hint lists the valid names.
    """
    rules = find_rules()
    for rule in rules:
        if rule.name == name:
            return rule
    names = [rule.name for rule in rules]
    raise PipetuneError(
        f"There is no rule called {name!r}.{did_you_mean(name, names)}", hint="Rules: " + ", ".join(names)
    )


def propose_all(context: RuleContext) -> tuple[list[Rewrite], list[Silence]]:
    """Collects the proposals of all rules, and the reasons where a rule proposes nothing.

    If the script resumes earlier runs, the safety class of each rewrite is adapted to that (`resuming`).
    If two rules propose the same edits, the first keeps them, and takes over `equal_is_enough` and the notes of a
    second that sets it. Rewrites that leave a value to AUTOTUNE are limited to the available cores, and a rewrite that
    alone exceeds the memory limit becomes a `Silence`. Rewrites chosen from the list are applied in its order.
    """
    rewrites: dict[str, Rewrite] = {}
    silences: list[Silence] = []
    for rule in find_rules():
        for found in rule.propose(context):
            proposal = found if isinstance(found, Silence) else as_resumed(found, context)
            if isinstance(proposal, Silence):
                silences.append(proposal)
                continue
            proposal = as_read_config(bounded(proposal, context), context)
            edited = apply_edits(context.pipeline, proposal.edits)
            proposal = _in_its_class(proposal, context, edited)
            same = rewrites.get(identity := _identity(proposal.edits))
            if why_not := remainder_conflict(context, edited) or shuffle_conflict(context, edited):
                silences.append(Silence(proposal.rule, proposal.node, f"{why_not[0].upper()}{why_not[1:]}."))
            elif proposal.predicted_bytes > context.memory_limit_bytes:
                silences.append(_too_large(proposal, context.memory_limit_bytes))
            elif same is None:
                rewrites[identity] = proposal
            elif proposal.equal_is_enough:
                notes = (*same.notes, *proposal.notes)
                rewrites[identity] = replace(same, equal_is_enough=True, notes=notes)
    return list(rewrites.values()), list(dict.fromkeys(silences))


def _in_its_class(rewrite: Rewrite, context: RuleContext, edited: Pipeline) -> Rewrite:
    """Returns the rewrite as REORDERS if TensorFlow's fusion of shuffle and repeat then changes a seeded order."""
    if rewrite.safety >= Safety.REORDERS or not any(node.op == "shuffle" for node in context.pipeline):
        return rewrite
    if fused_shuffles(edited) == fused_shuffles(context.pipeline):
        return rewrite
    return replace(rewrite, safety=Safety.REORDERS, notes=(*rewrite.notes, f"{FUSED_SHUFFLE}."))


def _identity(edits: tuple[Edit, ...]) -> str:
    return repr(edits)


def _too_large(rewrite: Rewrite, limit: float) -> Silence:
    why = (
        f"{rewrite.summary} It would add {as_size(rewrite.predicted_bytes)}, "
        f"more than the limit of {as_size(limit)}."
    )
    return Silence(rewrite.rule, rewrite.node, why)
