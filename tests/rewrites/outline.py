"""Short notation for rewrites, so that tables of expected ones are readable."""

from __future__ import annotations

from pipetune.core.edits import (
    Edit,
    Insert,
    Move,
    Remove,
    ReplaceFunction,
    ReplaceOperator,
    ReplaceSource,
    Rewrite,
    SetArgument,
    SetOption,
    SplitFunction,
)


def outline(rewrite: Rewrite) -> str:
    """ "EXACT n3.num_parallel_calls=2": the class and the edits of a rewrite."""
    return " ".join([rewrite.safety.name, *map(_edit, rewrite.edits)])


def _edit(edit: Edit) -> str:
    match edit:
        case SetArgument(node=node, name=name, value=value):
            return f"{node}.{name}={value}"
        case Insert(after=after, op=op, arguments=arguments):
            return f"{op}({','.join(f'{k}={v}' for k, v in arguments.items())})>{after}"
        case Move(node=node, after=after):
            return f"{node}>{after}"
        case Remove(node=node):
            return f"-{node}"
        case ReplaceFunction(node=node, form=form):
            return f"{node} {form}"
        case ReplaceSource(node=node, after=after):
            return f"{node} numbers, gather>{after}"
        case SplitFunction(node=node, cut=cut):
            return f"{node} cut {cut.kind}"
        case ReplaceOperator(node=node, op=op, arguments=arguments):
            return f"{node} {op}({','.join(f'{k}={v}' for k, v in arguments.items())})"
        case SetOption(name=name, value=value):
            return f"options.{name}={value}"


def outlines(rewrites: list[Rewrite]) -> list[str]:
    return [outline(rewrite) for rewrite in rewrites]
