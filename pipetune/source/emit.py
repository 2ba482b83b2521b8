"""Writes a plan into the source files that build its pipeline."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pipetune.core.editing import apply_edits
from pipetune.core.edits import (
    Edit,
    Insert,
    Move,
    Plan,
    Remove,
    ReplaceFunction,
    ReplaceOperator,
    ReplaceSource,
    Rewrite,
    SetArgument,
    SetOption,
    SplitFunction,
)
from pipetune.core.errors import CannotExpress, PipetuneError
from pipetune.core.functions import FunctionForm
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.session import Rejection
from pipetune.source.arguments import set_argument
from pipetune.source.branches import merged, refuse_changes_beyond
from pipetune.source.callers import Callers
from pipetune.source.chain import insert_link
from pipetune.source.choices import under_condition
from pipetune.source.conditions import all_of
from pipetune.source.cropping import decode_windows
from pipetune.source.draft import Draft, Function, open_draft
from pipetune.source.forms import fuse, gets_several, vectorize
from pipetune.source.gathering import gather_rows
from pipetune.source.literals import write_call, write_value
from pipetune.source.moving import move, moves_with_condition, remove
from pipetune.source.operators import call_operator
from pipetune.source.options import set_option
from pipetune.source.parsing import parse_batches
from pipetune.source.placement import refuse_behind, refuse_inside_library
from pipetune.source.read_config import by_hand, is_reading, set_read_config
from pipetune.source.receiver import express_behind, express_in_front
from pipetune.source.repeated_calls import done_in_part, refuse_one_of_several
from pipetune.source.separation import spread
from pipetune.source.series import gather_series, made_by_utility
from pipetune.source.sharing import SharedCall, Sharing
from pipetune.source.splitting import split_function
from pipetune.source.text import BYTE_ORDER_MARK, read_source
from pipetune.source.variants import Passage, with_parameter


@dataclass(frozen=True)
class Emission:
    """A plan as changes of source files."""

    files: Mapping[str, tuple[str, str]]  # path -> current text, text with the plan; changed files, sorted
    covered: tuple[str, ...]  # keys of the rewrites that the new texts contain
    not_covered: tuple[Rejection, ...]  # the others, with the reason
    notes: tuple[str, ...] = ()  # for the reader of the patch

    @property
    def paths(self) -> tuple[str, ...]:
        """Changed files, sorted as in the diff."""
        return tuple(sorted(self.files))


def emit(
    pipeline: Pipeline,
    plan: Plan,
    *,
    read: Callable[[str], str] = read_source,
    others: Sequence[Pipeline] = (),
    may_share: Callable[[Rewrite], bool] | None = None,
) -> Emission:
    """Returns the source with as much of `plan` as can be expressed in it.

    A rewrite is written completely or not at all. What its edits mean is defined in `core/editing.py`.

    Args:
        read: returns the text of a file by its path, with its newlines unchanged; raises OSError.
        others: the other pipelines of the run; a call that built operators of theirs, too, is shared.
        may_share: called with a rewrite that cannot be written where it affects this dataset only; returns whether it
            may change every dataset that a shared call builds. If None, such calls only get prefetching and
            parallelism.
    """
    texts: dict[str, str] = {}

    def remembering(path: str) -> str:
        texts[path] = read(path)
        return texts[path]

    draft = untouched = open_draft(pipeline, remembering)
    sharing = Sharing(pipeline, others, callers=Callers(untouched, [pipeline, *others]))
    current = pipeline
    covered: list[Rewrite] = []
    not_covered: list[Rejection] = []
    for rewrite in plan.rewrites:
        try:
            edited = apply_edits(current, rewrite.edits)
            draft = _shared_or_own(draft, rewrite, current, sharing=sharing, may_share=may_share)
        except PipetuneError as error:
            not_covered.append(Rejection(rewrite.rule, rewrite.node, error.message + by_hand(rewrite, current)))
            continue
        current = edited
        covered.append(rewrite)
    in_part = {rewrite.key: why for rewrite in covered if (why := done_in_part(draft, rewrite, current))}
    if in_part:
        rest = Plan(plan.name, tuple(rewrite for rewrite in plan.rewrites if rewrite.key not in in_part))
        said = emit(pipeline, rest, read=read, others=others, may_share=may_share)
        more = [Rejection(one.rule, one.node, in_part[one.key]) for one in plan.rewrites if one.key in in_part]
        return replace(said, not_covered=(*said.not_covered, *more))
    files = {}
    for path, code in sorted(draft.codes.items()):
        mark = BYTE_ORDER_MARK if texts[path].startswith(BYTE_ORDER_MARK) else ""
        if (new := mark + code.decode()) != texts[path]:
            files[path] = (texts[path], new)
    return Emission(files, tuple(rewrite.key for rewrite in covered), tuple(not_covered), draft.notes)


def _shared_or_own(
    draft: Draft,
    rewrite: Rewrite,
    current: Pipeline,
    *,
    sharing: Sharing,
    may_share: Callable[[Rewrite], bool] | None,
) -> Draft:
    """Returns the draft with the rewrite, written where it affects this dataset only.

    If there is no such place, it is written for all datasets of the shared call, or for this one by a parameter.

    Raises:
        CannotExpress: it cannot be expressed in any of these ways.
    """
    try:
        return _express(draft, rewrite, current, sharing=sharing)
    except SharedCall as shared:
        try:
            for_all = _express(draft, rewrite, current, sharing=replace(sharing, all_change=True))
        except CannotExpress as reason:
            if reason.message == shared.message:
                raise
            raise CannotExpress(f"{shared.message} {reason.message}") from reason
        touched = _touched(rewrite, current, sharing)
        run = not any(sharing.callers.not_run(node) for node in touched) if sharing.callers is not None else True
        if run and may_share is not None and may_share(rewrite):
            return for_all
        try:
            for_one = replace(sharing, others_stay=True, functions_stay=True)
            after = _express(draft, rewrite, current, sharing=for_one)
            return _for_one(draft, after, rewrite, touched, sharing=sharing)
        except CannotExpress as reason:
            raise CannotExpress(f"{shared.message} {reason.message}") from reason


def _touched(rewrite: Rewrite, current: Pipeline, sharing: Sharing) -> list[Node]:
    """Returns the captured operators whose calls a rewrite changes or appends to."""
    found: dict[str, Node] = {}
    for edit in rewrite.edits:
        anchor = _captured(current, edit, sharing.pipeline)
        found |= {node.id: node for node in sharing.touched(edit, anchor)}
        current = apply_edits(current, [edit])
    return list(found.values())


def _for_one(
    before: Draft, after: Draft, rewrite: Rewrite, touched: Sequence[Node], *, sharing: Sharing
) -> Draft:
    """Returns the draft in which a parameter of the functions shared with other datasets enables the rewrite."""
    passages = []
    for node in touched:
        if node.id in before.own or node.id not in before.sites:
            continue
        level = sharing.level(node)
        if level and node.id in before.beside:
            raise CannotExpress("A call was moved before, and is not where the other datasets pass it.")
        if level:
            passages.append(Passage(before.sites[node.id], before.ways[node.id][:level]))
    if not passages:
        raise CannotExpress("No call leads to this dataset alone.")
    name = rewrite.rule.replace("-", "_")
    draft = with_parameter(before, after, passages, name=name)
    _refuse_broken(draft, before)
    return draft.note(f"Other datasets are made in the same function: the parameter {name} leaves them as they are.")


def _express(draft: Draft, rewrite: Rewrite, current: Pipeline, *, sharing: Sharing) -> Draft:
    before, first = draft, current
    for edit in rewrite.edits:
        anchor = _captured(current, edit, sharing.pipeline)
        try:
            beside = isinstance(edit, Insert) and edit.after in draft.own
            if beside or (isinstance(edit, Move) and moves_with_condition(draft, edit.node, edit.after)):
                anchor = None  # the shared call stays as it is
            note = sharing.check(rewrite, edit, anchor=anchor, own=draft.own)
        except SharedCall as shared:
            draft = _beside_shared(draft, rewrite, edit, current, sharing=sharing, shared=shared)
        else:
            draft = _apply(draft, edit, current, sharing=sharing)
            draft = draft.note(note) if note else draft
        current = apply_edits(current, [edit])
    for edit in rewrite.edits:
        if isinstance(edit, ReplaceFunction | ReplaceSource):
            draft = spread(draft, edit.gather if isinstance(edit, ReplaceSource) else edit.node)
    if draft.under and not sharing.functions_stay:
        return _express(before, rewrite, first, sharing=replace(sharing, functions_stay=True))
    draft = _under_conditions(before, draft, rewrite, sharing)
    _refuse_broken(draft, before)
    return draft


def _under_conditions(before: Draft, after: Draft, rewrite: Rewrite, sharing: Sharing) -> Draft:
    """Returns the draft with changes restricted to the conditions under which they are known to be correct.

    Maps of `f if training else g` are changed only if the function that ran is chosen: called on batches, the other one
    may give another result. Functions in `after.under` are changed only if their conditions are met.
    """
    on_batches = (FunctionForm.ON_BATCHES, FunctionForm.PARSING)
    changed = [one.node for one in rewrite.edits if isinstance(one, ReplaceFunction) and one.form in on_batches]
    for node in changed:
        if node in before.sites and node in after.sites:
            after = under_condition(before, after, node, called=_called(node, sharing.pipeline))
    conditions: dict[Function, dict[str, None]] = {}
    for function, text in after.under:
        conditions.setdefault(function, {})[text] = None
    for function, texts in conditions.items():
        refuse_changes_beyond(before, after, function)
        after = merged(before, after, function, condition=all_of(list(texts)))
    return replace(after, under=())


def _refuse_broken(draft: Draft, before: Draft) -> None:
    for path, code in draft.codes.items():
        if code is not before.codes.get(path):
            _check_syntax(path, code)


def _beside_shared(
    draft: Draft, rewrite: Rewrite, edit: Edit, current: Pipeline, *, sharing: Sharing, shared: SharedCall
) -> Draft:
    """Returns the draft with the edit written where it affects this dataset only; raises `shared` if that fails."""
    if not isinstance(edit, Insert | Move):
        raise shared
    sharing.check(rewrite, edit, anchor=None, own=draft.own)  # what is moved must not be shared itself
    try:
        return express_in_front(draft, edit, current, sharing=sharing)
    except CannotExpress:
        pass
    try:
        return express_behind(draft, edit, current, sharing=sharing)
    except CannotExpress:
        raise shared from None


def _apply(draft: Draft, edit: Edit, current: Pipeline, *, sharing: Sharing) -> Draft:
    captured = sharing.pipeline
    match edit:
        case SetArgument(node=node) | Remove(node=node) if is_reading(edit, current):
            return set_read_config(draft, edit, current, node=node)
        case SetArgument():
            return _set_argument(draft, edit, current)
        case Insert():
            return _insert(draft, edit, current)
        case Remove(node=node):
            refuse_inside_library(current, node)
            refuse_one_of_several(draft, node, current)
            return remove(draft, node)
        case Move(node=node, after=after):
            refuse_inside_library(current, node)
            refuse_one_of_several(draft, node, current)
            tree, call = draft.find(after)
            refuse_behind(tree, call, current, after)
            return move(draft, node, after, current)
        case ReplaceFunction(node=node, form=FunctionForm.VECTORIZED):
            # As in the captured pipeline: at the place where an edit put the call, its input has another spec.
            return vectorize(draft, node, several=_several(node, current, captured), called=_called(node, captured))
        case ReplaceFunction(node=node, form=FunctionForm.PARSING):
            alone = not sharing.functions_stay and (sharing.all_change or sharing.datasets(captured[node])[0] == 1)
            several = _several(node, current, captured)
            return parse_batches(draft, node, several=several, called=_called(node, captured), alone=alone)
        case ReplaceFunction(node=node, form=FunctionForm.FUSED, first=first):
            for name in (*first, node):
                refuse_inside_library(current, name)
            return fuse(draft, node, first, current)
        case ReplaceFunction(node=node, form=FunctionForm.DECODE_AND_CROP):
            if sharing.functions_stay:
                raise CannotExpress("Its function would change for all of them.")
            return decode_windows(draft, node)
        case SplitFunction(node=node):
            refuse_inside_library(current, node)
            return split_function(draft, edit, kept=sharing.functions_stay)
        case ReplaceFunction():
            return draft  # the position of the call decides what its function gets
        case ReplaceSource(node=node) if edit.windows is None and made_by_utility(current, node):
            return gather_series(draft, edit, current)
        case ReplaceSource(node=node, after=after):
            refuse_inside_library(current, node)
            tree, call = draft.find(after)
            refuse_behind(tree, call, current, after)
            readers = sharing.pipeline.consumers(node)
            window = readers[0].id if edit.windows is not None and readers else ""
            return gather_rows(draft, edit, spec=current[node].spec, window=window)
        case ReplaceOperator(node=node):
            refuse_inside_library(current, node)
            return call_operator(draft, edit)
        case SetOption(name=name, value=value) if current.options.get(name) == value:
            return draft  # already set by another rewrite, or by the script
        case SetOption(name=name, value=value):
            tree, call = draft.find(current.output.id)
            refuse_behind(tree, call, current, current.output.id)
            return set_option(draft, output=current.output.id, name=name, value=value)


def _several(node: str, current: Pipeline, captured: Pipeline) -> bool:
    """Whether a map gets several components; the second part of a split function gets those the first returns."""
    function = current[node].function
    if function is not None and function.part_of and function.cut is not None:
        return function.cut.handed > 1
    return gets_several(captured, node)


def _called(node: str, captured: Pipeline) -> str:
    """Returns the name of the function that was passed to a map, as captured; empty if there is none."""
    function = captured[node].function if node in captured else None
    return function.name if function is not None else ""


def _set_argument(draft: Draft, edit: SetArgument, current: Pipeline) -> Draft:
    node = current[edit.node]
    refuse_inside_library(current, node.id)
    tree, call = draft.find(node.id)
    key = (draft.together(node.id)[0], edit.name)
    by, value = draft.values.get(key, (node.id, edit.value))
    if by != node.id and value != edit.value:
        raise CannotExpress(f"The same call makes {by}, which needs another {edit.name}.")
    text = None
    if edit.value is not None:
        text = write_value(*draft.place_of_names(node.id), edit.value, op=node.op, name=edit.name)
    splices = set_argument(tree, call, op=node.op, name=edit.name, text=text)
    after = draft.splice(draft.sites[node.id].file, splices)
    return replace(_explain(after, text), values={**draft.values, key: (node.id, edit.value)})


def _insert(draft: Draft, edit: Insert, current: Pipeline) -> Draft:
    tree, call = draft.find(edit.after)
    refuse_behind(tree, call, current, edit.after)
    text = write_call(*draft.place_of_names(edit.after), edit.arguments, op=edit.op)
    draft = draft.at_place_of(edit.after, edit.id)
    for other, its in draft.inserted.items():
        behind = draft.together(edit.after)
        if len(behind) > 1 and its == f"{behind[0]}.{text}" and other in draft.sites:
            inserted = {**draft.inserted, edit.id: its}
            return replace(draft.place(edit.id, draft.sites[other]), inserted=inserted)  # already written
    after = insert_link(draft, anchor=edit.after, node=edit.id, text=text.encode())
    inserted = {**draft.inserted, edit.id: f"{draft.together(edit.after)[0]}.{text}"}
    return replace(_explain(after, text), inserted=inserted)


def _explain(draft: Draft, text: str | None) -> Draft:
    if text is not None and "tf.data" not in text and "-1" in text:
        return draft.note("-1 stands for tf.data.AUTOTUNE where the file has no name for TensorFlow.")
    return draft


def _captured(current: Pipeline, edit: Edit, pipeline: Pipeline) -> Node | None:
    """Returns the captured operator that an edit appends to; for an inserted one, the operator upstream of it."""
    name = edit.after if isinstance(edit, Insert | Move | ReplaceSource) else None
    while name is not None and name not in pipeline:
        function = current[name].function if name in current else None
        if function is not None and function.part_of:
            return pipeline[function.part_of]  # the part is in the same chain, directly upstream of it
        name = current[name].inputs[0] if name in current and current[name].inputs else None
    return pipeline[name] if name is not None else None


def _check_syntax(path: str, code: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those about the user's code, such as invalid escapes
        try:
            ast.parse(code.decode(), path)
        except (SyntaxError, ValueError) as error:
            raise CannotExpress(f"The change would break the syntax of {path}.") from error
