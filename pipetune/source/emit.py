"""Writes a plan into the source files that build its pipeline."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import libcst as cst

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
    Safety,
    SetArgument,
    SetOption,
    SplitFunction,
    apply_edits,
)
from pipetune.core.errors import CannotExpress, PipetuneError
from pipetune.core.functions import GRAPH_EDITS, FunctionVariant
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.session import Rejection
from pipetune.core.storage import read_config_field
from pipetune.source.call_arguments import set_argument, write_call, write_value
from pipetune.source.call_moves import (
    move,
    move_out_of_list_files,
    moves_with_condition,
    refuse_append,
    refuse_inside_library,
    remove,
    restrict_cache,
)
from pipetune.source.chain import insert_link, split_long_statement
from pipetune.source.dataset_options import manual_hint, set_option, set_read_config
from pipetune.source.draft import CallSite, Draft, FunctionKey, open_draft, relocated, tracking
from pipetune.source.function_splitting import split_function
from pipetune.source.function_variants import (
    CallPath,
    add_switch_parameter,
    fuse,
    gets_components,
    switch_name,
    turn_on,
    use_parse_example,
    vectorize,
)
from pipetune.source.gathering import gather_rows, gather_timeseries_windows, is_made_by_timeseries_utility
from pipetune.source.map_functions import restrict_to_choice
from pipetune.source.operator_replacement import replace_operator
from pipetune.source.own_place import (
    NotInBranch,
    express_after_helper,
    express_before_consumer,
    express_before_helper,
    express_in_argument,
    move_copied_shuffle,
    move_into_own_branch,
)
from pipetune.source.shared_calls import (
    Callers,
    SharedCall,
    SharingRules,
    excess_change,
    find_joint_rewrites,
    refuse_partial_change,
)
from pipetune.source.skipped_code import may_draw_in_another_run
from pipetune.source.source_files import BYTE_ORDER_MARK, neighboring_files, read_source
from pipetune.source.statements import conjunction, statement_of
from pipetune.source.version_merging import merge_versions, path_of, refuse_changes_beyond


@dataclass(frozen=True)
class Emission:
    """A plan as changes of source files."""

    files: Mapping[str, tuple[str, str]]  # path -> current text, text with the plan; changed files, sorted
    covered: tuple[str, ...]  # keys of the rewrites that the new texts contain
    not_covered: tuple[Rejection, ...]  # the others, with the reason
    notes: tuple[str, ...] = ()  # for the reader of the patch
    moved: Mapping[CallSite, CallSite] = field(default_factory=dict)  # calls of other pipelines: captured, and now

    def rejected(self, rewrites: Iterable[Rewrite], why: str) -> Emission:
        """Returns the emission of no change: all that was covered is not, with the reason."""
        left_out = (Rejection(one.rule, one.node, why) for one in rewrites)
        return Emission({}, (), (*self.not_covered, *left_out))


def emit(
    pipeline: Pipeline,
    plan: Plan,
    *,
    read: Callable[[str], str] = read_source,
    near: Callable[[str], Iterable[str]] = neighboring_files,
    other_pipelines: Sequence[Pipeline] = (),
    may_share: Callable[[Rewrite], bool] | None = None,
    switches: Mapping[str, str] | None = None,
    validated_in: str = "",
) -> Emission:
    """Returns the source with as much of `plan` as can be expressed in it.

    A rewrite is written completely or not at all. What its edits mean is defined in `core/edits.py`.

    Args:
        read: returns the text of a file by its path, with its newlines unchanged; raises OSError.
        near: returns the paths of the other files that may use what a file defines.
        other_pipelines: the other pipelines of the run; a call that built operators of theirs, too, is shared.
        may_share: whether a rewrite that cannot be written where it affects this dataset only may change every dataset
            that a shared call builds. If None, such calls only get prefetching and parallelism.
        switches: by the key of a rewrite, a parameter by which the source already has the same for another dataset.
        validated_in: the file in which `fit` gets the dataset as `validation_data`; empty if none does.
    """
    original = functools.cache(read)
    untouched = open_draft(pipeline, original, near)
    draft = tracking(untouched, [pipeline, *other_pipelines])
    callers = Callers(untouched, [pipeline, *other_pipelines])
    sharing = SharingRules(
        pipeline,
        other_pipelines,
        callers=callers,
        may_share=may_share,
        switches=switches or {},
        validated_in=validated_in,
    )
    current = pipeline
    covered: list[Rewrite] = []
    not_covered: dict[str, Rejection] = {}
    for rewrite in plan.rewrites:
        if rewrite in covered:
            continue
        rest = [one for one in plan.rewrites if one is not rewrite and one not in covered]
        try:
            draft, written = _write_with_alike(draft, rewrite, rest, current, sharing=sharing)
            current = apply_edits(current, [edit for one in written for edit in one.edits])
        except PipetuneError as error:
            why = error.message + manual_hint(rewrite, current)
            not_covered[rewrite.key] = Rejection(rewrite.rule, rewrite.node, why)
            continue
        covered += written
        not_covered = {key: one for key, one in not_covered.items() if key not in {done.key for done in written}}
    in_part = {rewrite.key: why for rewrite in covered if (why := excess_change(draft, rewrite, current))}
    if in_part:
        others = Plan(plan.name, tuple(rewrite for rewrite in plan.rewrites if rewrite.key not in in_part))
        remainder = emit(
            pipeline,
            others,
            read=read,
            near=near,
            other_pipelines=other_pipelines,
            may_share=may_share,
            switches=switches,
            validated_in=validated_in,
        )
        more = [Rejection(one.rule, one.node, in_part[one.key]) for one in plan.rewrites if one.key in in_part]
        return replace(remainder, not_covered=(*remainder.not_covered, *more))
    files = {}
    for path, code in sorted(draft.codes.items()):
        old = original(path)
        mark = BYTE_ORDER_MARK if old.startswith(BYTE_ORDER_MARK) else ""
        if (new := mark + code.decode()) != old:
            files[path] = (old, new)
    keys = tuple(rewrite.key for rewrite in covered)
    return Emission(files, keys, tuple(not_covered.values()), draft.notes, draft.tracked)


def emit_more(
    first: Emission,
    pipeline: Pipeline,
    plan: Plan,
    *,
    other_pipelines: Sequence[Pipeline] = (),
    switches: Mapping[str, str] | None = None,
    validated_in: str = "",
) -> Emission:
    """Returns the source with another dataset's plan written into it after `first`; the result has both.

    `covered`, `not_covered` and `notes` are those of the second plan; shared calls are changed for it alone.

    Args:
        first: the changes so far, emitted with `pipeline` among the others.
        pipeline: as it was captured, with the edits that `first` has made in it.
        switches: of rewrites that `first` has for its own dataset by a parameter; the others are as in `emit`.
    """
    pipeline, *others = (relocated(one, first.files, first.moved) for one in (pipeline, *other_pipelines))

    def changed(path: str) -> str:
        return first.files[path][1] if path in first.files else read_source(path)

    second = emit(pipeline, plan, read=changed, other_pipelines=others, switches=switches, validated_in=validated_in)
    files = {path: (first.files.get(path, texts)[0], texts[1]) for path, texts in second.files.items()}
    return replace(second, files=dict(sorted({**first.files, **files}.items())))


def _write_with_alike(
    draft: Draft, rewrite: Rewrite, rest: Sequence[Rewrite], current: Pipeline, *, sharing: SharingRules
) -> tuple[Draft, list[Rewrite]]:
    """Returns the draft with the rewrite, and what was written: it, and those of `rest` that are the same change."""
    apply_edits(current, rewrite.edits)
    why = None
    joint = find_joint_rewrites(draft, rewrite, rest, current)
    alone = replace(sharing, pipeline=joint.count_as_one(sharing.pipeline)) if joint is not None else sharing
    if joint is not None and all(map(alone.is_unshared, _affected_operators(rewrite, current, alone))):
        try:
            apply_edits(current, [*rewrite.edits, *joint.edits])
            written = _write_edits(joint.hide_others(draft), rewrite, current, sharing=alone)
            return joint.show_others(written), [rewrite, *joint.others]
        except PipetuneError as error:
            why = error
    try:
        return _write_rewrite(draft, rewrite, current, sharing=sharing), [rewrite]
    except CannotExpress as error:
        raise why or error from None


def _write_rewrite(draft: Draft, rewrite: Rewrite, current: Pipeline, *, sharing: SharingRules) -> Draft:
    """Returns the draft with the rewrite, written where it affects this dataset only.

    If there is no such place, it is written for all datasets of the shared call, or for this one by a parameter.
    """
    try:
        return _write_edits(draft, rewrite, current, sharing=sharing)
    except SharedCall as shared:
        try:
            for_all = _write_edits(draft, rewrite, current, sharing=replace(sharing, allow_all=True))
        except CannotExpress as reason:
            if isinstance(reason, SharedCall):
                raise
            raise CannotExpress(_both(shared, reason)) from reason
        touched = _affected_operators(rewrite, current, sharing)
        run = not any(sharing.callers.unrecorded_builder_reference(node) for node in touched)
        if run and sharing.may_share is not None and sharing.may_share(rewrite):
            return for_all
        try:
            if rewrite.key in sharing.switches:
                name = sharing.switches[rewrite.key]
                return turn_on(draft, _paths_to_own_calls(draft, touched, sharing=sharing), name=name)
            for_one = replace(sharing, others_unaffected=True, keep_functions=True)
            after = _write_edits(draft, rewrite, current, sharing=for_one)
            paths, name = _paths_to_own_calls(draft, touched, sharing=sharing), switch_name(rewrite)
            after = add_switch_parameter(draft, after, paths, name=name)
            _refuse_broken(after, draft)
            note = f"The same function builds other datasets: the new parameter {name} leaves them unchanged."
            return after.with_note(note)
        except CannotExpress as reason:
            raise CannotExpress(_both(shared, reason)) from reason


def _both(shared: SharedCall, reason: CannotExpress) -> str:
    """Returns why a change is not written for all datasets of a call, and why not for one of them if that says more."""
    more = not isinstance(reason, NotInBranch) and reason.message not in shared.message
    return f"{shared.message} {reason.message}" if more else shared.message


def _affected_operators(rewrite: Rewrite, current: Pipeline, sharing: SharingRules) -> list[Node]:
    """Returns the captured operators whose calls a rewrite changes or appends to."""
    found: dict[str, Node] = {}
    for edit in rewrite.edits:
        anchor = _captured_anchor(current, edit, sharing.pipeline)
        found |= {node.id: node for node in sharing.affected_operators(edit, anchor)}
        current = apply_edits(current, [edit])
    return list(found.values())


def _paths_to_own_calls(draft: Draft, touched: Sequence[Node], *, sharing: SharingRules) -> list[CallPath]:
    """Returns the calls from those of operators outward to the first that builds this dataset only, or refuses."""
    found = []
    for node in touched:
        if node.id in draft.exclusive or node.id not in draft.sites:
            continue
        level = sharing.exclusive_depth(node)
        if level and node.id in draft.moved_beside:
            raise CannotExpress("A call was moved before, and is not where the other datasets pass it.")
        if level:
            found.append((draft.sites[node.id], *draft.call_stacks[node.id][:level]))
    if not found:
        raise CannotExpress("No call builds only this dataset.")
    return found


def _write_edits(draft: Draft, rewrite: Rewrite, current: Pipeline, *, sharing: SharingRules) -> Draft:
    before, first = draft, current
    for edit in rewrite.edits:
        anchor = _captured_anchor(current, edit, sharing.pipeline)
        try:
            exclusive = isinstance(edit, Insert) and edit.after in draft.exclusive
            if exclusive or (isinstance(edit, Move) and moves_with_condition(draft, edit.node, edit.after)):
                anchor = None  # the shared call stays as it is
            note = sharing.sharing_note(rewrite, edit, anchor=anchor, exclusive=draft.exclusive)
        except SharedCall as shared:
            draft = _write_beside_shared_call(draft, rewrite, edit, current, sharing=sharing, shared=shared)
        else:
            try:
                draft = _apply(draft, edit, current, sharing=sharing)
            except CannotExpress as reason:  # as behind a call that returns a pair
                if not isinstance(edit, Insert):
                    raise
                draft = _write_elsewhere(draft, edit, current, sharing=sharing, reason=reason)
            draft = draft.with_note(note) if note else draft
        current = apply_edits(current, [edit])
    for edit in rewrite.edits:
        if isinstance(edit, ReplaceFunction | ReplaceSource):
            draft = split_long_statement(draft, edit.gather if isinstance(edit, ReplaceSource) else edit.node)
        elif isinstance(edit, Move) and not _in_one_statement(before, edit) and _in_one_statement(draft, edit):
            draft = split_long_statement(draft, edit.node)
    if draft.conditional_functions and not sharing.keep_functions:
        return _write_edits(before, rewrite, first, sharing=replace(sharing, keep_functions=True))
    draft = _restrict_to_conditions(before, draft, rewrite, sharing, current=current)
    _refuse_broken(draft, before)
    return draft


def _in_one_statement(draft: Draft, edit: Move) -> bool:
    """Whether one statement calls the operator that moves, and the one that is to be upstream of it."""
    calls = [draft.find(node) for node in (edit.node, edit.after) if node in draft.sites]
    statements = [statement_of(tree, call) for tree, call in calls]
    return len({one.small for one in statements if one is not None}) == 1 < len(statements)


def _restrict_to_conditions(
    before: Draft, after: Draft, rewrite: Rewrite, sharing: SharingRules, *, current: Pipeline
) -> Draft:
    """Returns the draft with changes restricted to the conditions under which they are known to be correct.

    Maps of `f if training else g` are changed only if the function that ran is chosen: called on batches, the other one
    may give another result, and a cache below it might keep its draws. Functions in `after.conditional_functions` are
    changed only if their conditions are met.

    Args:
        current: the pipeline after the rewrite.
    """
    on_batches = (FunctionVariant.ON_BATCHES, FunctionVariant.PARSING)
    changed = [one.node for one in rewrite.edits if isinstance(one, ReplaceFunction) and one.form in on_batches]
    for node in changed:
        if node in before.sites and node in after.sites:
            after = restrict_to_choice(before, after, node, function_name=_function_name(node, sharing.pipeline))
    for cache in [
        one.id for one in rewrite.edits if isinstance(one, Insert) and one.op == "cache" and one.id in after.sites
    ]:
        for above in current.upstream(cache):
            function = above.function
            idle = function is not None and not (function.random or function.random_python or function.python)
            if idle and above.id in before.sites and may_draw_in_another_run(before, above.id):
                raise CannotExpress("A function above the cache draws in another run, under a condition in its code.")
            if above.op == "map" and above.id in before.sites and above.id in after.sites and above.id not in changed:
                name = _function_name(above.id, sharing.pipeline)
                refused = CannotExpress("The map above the cache may get another function, whose draws would be kept.")
                try:
                    chosen = restrict_to_choice(before, after, above.id, function_name=name)
                except CannotExpress as error:
                    raise refused from error
                if chosen is not after and _place(before, above.id) != _place(after, cache):
                    raise refused
                after = chosen
    conditions: dict[FunctionKey, dict[str, None]] = {}
    for place, text in after.conditional_functions:
        conditions.setdefault(place, {})[text] = None
    for place, texts in conditions.items():
        refuse_changes_beyond(before, after, place)
        after = merge_versions(before, after, place, condition=conjunction(list(texts)))
    return replace(after, conditional_functions=())


def _place(draft: Draft, node: str) -> FunctionKey:
    """Returns the function that the call of an operator is in; its path is empty for one in none."""
    tree, call = draft.find(node)
    function = tree.around(call, cst.FunctionDef)
    return draft.sites[node].file, path_of(tree, function) if function is not None else ()


def _refuse_broken(draft: Draft, before: Draft) -> None:
    """Raises CannotExpress if a file that changed is no valid Python any more."""
    changed = {path: code for path, code in draft.codes.items() if code is not before.codes.get(path)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those about the user's code, such as invalid escapes
        for path, code in changed.items():
            try:
                ast.parse(code.decode(), path)
            except (SyntaxError, ValueError) as error:
                raise CannotExpress(f"The change would break the syntax of {path}.") from error


def _write_beside_shared_call(
    draft: Draft, rewrite: Rewrite, edit: Edit, current: Pipeline, *, sharing: SharingRules, shared: SharedCall
) -> Draft:
    """Returns the draft with the edit written where it affects this dataset only; raises `shared` if that fails."""
    if not isinstance(edit, Insert | Move) or (isinstance(edit, Move) and current[edit.node].made_by_list_files):
        raise shared
    try:  # what is moved must not be shared itself
        sharing.sharing_note(rewrite, edit, anchor=None, exclusive=draft.exclusive)
    except SharedCall:
        if not isinstance(edit, Move) or rewrite.safety is not Safety.EXACT:
            raise
        try:
            return move_copied_shuffle(draft, edit, current)
        except CannotExpress as reason:
            raise SharedCall(_both(shared, reason)) from None
    try:
        return _write_elsewhere(draft, edit, current, sharing=sharing, reason=shared)
    except CannotExpress:
        if isinstance(edit, Insert):
            raise
    try:
        return move_into_own_branch(draft, edit, current)
    except CannotExpress as reason:
        raise SharedCall(_both(shared, reason)) from None


def _write_elsewhere(
    draft: Draft, edit: Insert | Move, current: Pipeline, *, sharing: SharingRules, reason: CannotExpress
) -> Draft:
    """Returns the draft with the edit written at another place; raises `reason` if there is none."""
    for express in (express_before_consumer, express_after_helper, express_before_helper, express_in_argument):
        with contextlib.suppress(CannotExpress):
            return express(draft, edit, current, sharing=sharing)
    raise reason


def _apply(draft: Draft, edit: Edit, current: Pipeline, *, sharing: SharingRules) -> Draft:
    captured = sharing.pipeline
    match edit:
        case SetArgument(node=node) | Remove(node=node) if read_config_field(current, edit) is not None:
            return set_read_config(draft, edit, current, node=node)
        case SetArgument():
            return _set_argument(draft, edit, current)
        case Insert():
            return _insert(draft, edit, current, sharing=sharing)
        case Remove(node=node):
            refuse_inside_library(current, node)
            refuse_partial_change(draft, node, current)
            return remove(draft, node)
        case Move(node=node, after=after) if current[node].made_by_list_files:
            return move_out_of_list_files(draft, node, after, current)
        case Move(node=node, after=after):
            refuse_inside_library(current, node)
            refuse_partial_change(draft, node, current)
            refuse_append(draft, current, after)
            try:
                return move(draft, node, after, current)
            except CannotExpress as reason:
                try:
                    return move_into_own_branch(draft, edit, current)  # a variable in between is read elsewhere
                except CannotExpress:
                    raise reason from None
        case ReplaceFunction(node=node, form=FunctionVariant.VECTORIZED):
            # As in the captured pipeline: at the place where an edit put the call, its input has another spec.
            several = _gets_components(node, current, captured)
            return vectorize(draft, node, tuple_input=several, function_name=_function_name(node, captured))
        case ReplaceFunction(node=node, form=FunctionVariant.PARSING):
            alone = node not in captured  # the first part of a split function, which nothing else calls
            alone = alone or sharing.allow_all or sharing.count_datasets(captured[node])[0] == 1
            alone = alone and not sharing.keep_functions
            several, name = _gets_components(node, current, captured), _function_name(node, captured)
            return use_parse_example(draft, node, tuple_elements=several, function_name=name, unshared=alone)
        case ReplaceFunction(node=node, form=FunctionVariant.FUSED, first=first):
            for name in (*first, node):
                refuse_inside_library(current, name)
            return fuse(draft, node, first, current)
        case ReplaceFunction(node=node, form=form) if form in GRAPH_EDITS:
            if sharing.keep_functions:
                raise CannotExpress("The function would change for the other datasets, too.")
            # Each of these variants has a module here, whose `write` changes the function of a map, given as captured.
            module = importlib.import_module(f"{__package__}.{GRAPH_EDITS[form].module}")
            write: Callable[[Draft, Node], Draft] = module.write
            return write(draft, captured[node])
        case SplitFunction(node=node):
            refuse_inside_library(current, node)
            return split_function(draft, edit, keep_original=sharing.keep_functions)
        case ReplaceFunction():
            return draft  # the position of the call decides what its function gets
        case ReplaceSource(node=node) if edit.windows is None and is_made_by_timeseries_utility(current, node):
            return gather_timeseries_windows(draft, edit, current)
        case ReplaceSource(node=node, after=after):
            refuse_inside_library(current, node)
            refuse_append(draft, current, after)
            readers = sharing.pipeline.consumers(node)
            window = readers[0].id if edit.windows is not None and readers else ""
            return gather_rows(draft, edit, spec=current[node].element_spec, window=window)
        case ReplaceOperator(node=node):
            refuse_inside_library(current, node)
            return replace_operator(draft, edit, current)
        case SetOption(name=name, value=value) if current.options.get(name) == value:
            return draft  # already set by another rewrite, or by the script
        case SetOption(name=name, value=value):
            refuse_append(draft, current, current.output.id)
            return set_option(draft, output=current.output.id, name=name, value=value)


def _gets_components(node: str, current: Pipeline, captured: Pipeline) -> bool:
    """Whether a map gets several components; the second part of a split function gets those the first returns."""
    function = current[node].function
    if function is None or not function.part_of or function.cut is None:
        return gets_components(captured, node)
    return function.cut.handed > 1 if node in captured else gets_components(captured, function.part_of)


def _function_name(node: str, captured: Pipeline) -> str:
    """Returns the name of the function that was passed to a map, as captured; empty if there is none."""
    function = captured[node].function if node in captured else None
    return function.name if function is not None else ""


def _set_argument(draft: Draft, edit: SetArgument, current: Pipeline) -> Draft:
    node = current[edit.node]
    refuse_inside_library(current, node.id)
    tree, call = draft.find(node.id)
    key = (draft.built_by_same_call(node.id)[0], edit.name)
    by, value = draft.set_arguments.get(key, (node.id, edit.value))
    if by != node.id and value != edit.value:
        raise CannotExpress(f"The same call builds {by}, which needs another {edit.name}.")
    text = None
    if edit.value is not None:
        text = write_value(*draft.original_calls[node.id], edit.value, op=node.op, name=edit.name)
    splices = set_argument(tree, call, op=node.op, name=edit.name, text=text)
    after = draft.splice(draft.sites[node.id].file, splices)
    return replace(_note_autotune(after, [text]), set_arguments={**draft.set_arguments, key: (node.id, edit.value)})


def _insert(draft: Draft, edit: Insert, current: Pipeline, *, sharing: SharingRules) -> Draft:
    refuse_append(draft, current, edit.after)
    # A parameter that only the calls of this dataset set leaves nothing to a condition which these calls decide.
    draft = restrict_cache(draft, edit, current, undecided=sharing.others_unaffected)
    tree, call = draft.original_calls[edit.after]
    text = write_call(tree, call, edit.arguments, op=edit.op)
    values = [write_value(tree, call, value, op=edit.op, name=name) for name, value in edit.arguments.items()]
    draft = draft.with_position_of(edit.after, edit.id)
    behind = draft.built_by_same_call(edit.after)
    inserted = {**draft.inserted, edit.id: f"{behind[0]}.{text}"}
    for other, text_of_other in draft.inserted.items():
        if len(behind) > 1 and text_of_other == inserted[edit.id] and other in draft.sites:
            return replace(draft.with_site(edit.id, draft.sites[other]), inserted=inserted)  # already written
    after = insert_link(draft, anchor=draft.sites[edit.after], node=edit.id, text=text.encode())
    return replace(_note_autotune(after, values), inserted=inserted)


def _note_autotune(draft: Draft, values: Sequence[str | None]) -> Draft:
    if "-1" in values:
        return draft.with_note(
            "-1 means tf.data.AUTOTUNE; it is used because the file does not import TensorFlow under a name."
        )
    return draft


def _captured_anchor(current: Pipeline, edit: Edit, pipeline: Pipeline) -> Node | None:
    """Returns the captured operator that an edit appends to; for an inserted one, the operator upstream of it."""
    name = edit.after if isinstance(edit, Insert | Move | ReplaceSource) else None
    while name is not None and name not in pipeline:
        node = current[name]
        if node.function is not None and node.function.part_of:
            return pipeline[node.function.part_of]  # the part is in the same chain, directly upstream of it
        name = node.inputs[0] if node.inputs else None
    return pipeline[name] if name is not None else None
