"""Edits, rewrites and plans in words."""

from __future__ import annotations

from collections.abc import Mapping

from pipetune.core import edits
from pipetune.core.pipeline import AUTOTUNE, INFINITE, Pipeline, Value
from pipetune.report import words

_TUNABLE = frozenset({"num_parallel_calls", "buffer_size", "cycle_length", "num_parallel_reads"})
_SHOWN_ARGUMENTS = ("num_parallel_calls", "num_parallel_reads", "cycle_length", "block_length", "buffer_size",
                    "batch_size", "count", "drop_remainder", "deterministic", "reshuffle_each_iteration", "shuffle",
                    "size", "shift")  # fmt: skip
# Left out where they say nothing; `shuffle=True` of list_files is a default few know of and is shown.
_DEFAULTS: Mapping[str, bool] = {"drop_remainder": False, "reshuffle_each_iteration": True}


def argument_words(name: str, value: Value) -> str:
    """`num_parallel_calls=AUTOTUNE`, `batch_size=32`."""
    if value == AUTOTUNE and not isinstance(value, bool) and name in _TUNABLE:
        return f"{name}=AUTOTUNE"
    if value == INFINITE and not isinstance(value, bool) and name == "count":
        return "count=infinite"
    return words.clean(f"{name}={value}")


def argument_list(arguments: Mapping[str, Value]) -> str:
    return ", ".join(
        argument_words(name, arguments[name])
        for name in _SHOWN_ARGUMENTS
        if arguments.get(name) is not None and arguments[name] is not _DEFAULTS.get(name)
    )


def operator_name(node_id: str, *pipelines: Pipeline | None) -> str:
    """The operator's title; for one that an edit inserts, the name in its id."""
    kind, _, of = node_id.partition("@")
    if kind == edits.HEAD_PREFIX:
        return f"the first part of {operator_name(of, *pipelines)}"
    for pipeline in pipelines:
        if pipeline is not None and node_id in pipeline:
            return words.clean(pipeline[node_id].title)
    return words.clean(kind)


def edit_words(edit: edits.Edit, *pipelines: Pipeline | None) -> str:
    """One edit as a colleague would say it."""
    match edit:
        case edits.SetArgument(node=node, name=name, value=value):
            return f"{operator_name(node, *pipelines)}: {argument_words(name, value)}"
        case edits.Insert(after=after, op=op, arguments=arguments):
            call = f"{words.clean(op)}({argument_list(arguments)})"
            return f"insert {call} after {operator_name(after, *pipelines)}"
        case edits.Remove(node=node):
            return f"remove {operator_name(node, *pipelines)}"
        case edits.Move(node=node, after=after):
            return f"move {operator_name(node, *pipelines)} behind {operator_name(after, *pipelines)}"
        case edits.ReplaceFunction(node=node, form=form):
            return f"{operator_name(node, *pipelines)}: call its function {words.clean(form)}"
        case edits.ReplaceSource(node=node, after=after):
            source, place = operator_name(node, *pipelines), operator_name(after, *pipelines)
            return f"{source}: put out row numbers, and gather the rows behind {place}"
        case edits.SplitFunction(node=node, cut=cut):
            return f"{operator_name(node, *pipelines)}: cut its function in two {words.clean(cut.kind)}"
        case edits.ReplaceOperator(node=node, op=op, arguments=arguments):
            call = f"{words.clean(op)}({argument_list(arguments)})"
            return f"{operator_name(node, *pipelines)}: call {call} in its place"
        case edits.SetOption(name=name, value=value):
            return f"options: {argument_words(name, value)}"


def plan_text(plan: edits.Plan, *pipelines: Pipeline | None) -> tuple[str, str]:
    """The rules of a plan, and the first edits of a single one."""
    rewrites = plan.rewrites
    if not rewrites:
        return words.clean(plan.name) or "nothing changed", ""
    if len(rewrites) > 1:
        return words.clean(" + ".join(rewrite.rule for rewrite in rewrites)), ""
    texts = [edit_words(edit, *pipelines) for edit in rewrites[0].edits]
    more = f" and {words.count(len(texts) - 2, 'edit')} more" if len(texts) > 2 else ""
    return words.clean(rewrites[0].rule), "; ".join(texts[:2]) + more
