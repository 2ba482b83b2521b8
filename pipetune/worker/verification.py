"""Verifies a patch: holds the script, patched or original, at its first training step, checks and measures it there."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from pipetune import workflow
from pipetune.capture import consumption
from pipetune.capture.observed_script import ObservedScript
from pipetune.core import session_file
from pipetune.core.edits import Edit, Plan, Remove, ReplaceFunction, ReplaceSource, apply_edits, inserted_caches
from pipetune.core.errors import PipetuneError
from pipetune.core.functions import GRAPH_EDITS, FunctionVariant
from pipetune.core.lockstep import Inform, RequestLink, RunToFirstStep, StepReply
from pipetune.core.messages import Job, MessageWriter, Progress
from pipetune.core.pipeline import Node, OperatorIdentity, Pipeline
from pipetune.core.session import DatasetResult, PatchResult, Session
from pipetune.core.time_plan import TimePlan
from pipetune.core.version import VERSION
from pipetune.journal import Journal, Listener
from pipetune.measure import machine, memory
from pipetune.measure.caches import filled, with_buffers, with_empty_caches, with_full_caches, with_smaller_shuffles
from pipetune.measure.lockstep import VerifiedScript, operators_of
from pipetune.model.memory import added_bytes
from pipetune.model.segments import added_caches
from pipetune.pipelines.live import LivePipeline
from pipetune.source.patch_application import patched_texts
from pipetune.stages.emission import expected_digests, make_patch, patch_for_validation_alone
from pipetune.stages.planning import baselines_of
from pipetune.stages.profiling import ORIGINAL
from pipetune.stages.study import Study
from pipetune.timing.iterators import shortened_pauses
from pipetune.worker import lockstep, observation
from pipetune.worker.study import open_study

_OTHER_ELEMENTS = (
    "The patched source yields different elements than the plan. If the script draws or reads other data in each run, "
    "fix its seed first: no patch of it can be verified otherwise."
)

_MEMORY_WINDOW_SECONDS = 0.5  # window in which the memory of the input alone is measured, by judgement: more delays
_BEGIN_TIMEOUT_SECONDS = 3600.0  # limit for the order to begin: another script may run to its first step before


def verify(job: Job, writer: MessageWriter) -> int:
    """Runs the script of `job` to its first training step and executes the orders from `job.request_descriptor` there.

    The session at `job.session` says which pipeline is expected there. Modules are imported before the first order,
    `RunToFirstStep`: two processes may import in parallel, and then run the user's script one after the other.

    Returns:
        The exit code.

    Raises:
        PipetuneError: the session holds no patch.
    """
    session = session_file.load(job.session)
    patch = session.patch_to_verify
    if patch is None or session.main_dataset is None:
        raise PipetuneError("The session contains no patch.")
    if job.patched:
        # Next to the session: the folder is removed with it, whatever happens to this process.
        folder = tempfile.mkdtemp(dir=Path(job.session).parent)
        job = replace(job, overlay=with_file_caches_in(folder, patched_texts(patch), session.plan or Plan("")))
    if job.lockstep_role is not None and not job.lockstep_role.is_chief:
        return lockstep.run_as_agent(job, writer)
    with contextlib.closing(RequestLink(job.request_descriptor)) as link:
        if not isinstance(link.receive_request(_BEGIN_TIMEOUT_SECONDS), RunToFirstStep):
            return 0
        writer.send(Progress("verification", "running the script"))
        work = functools.partial(_execute_orders, job, writer, session, link)
        return observation.ObservedRun(job, writer, work, training_loop=session.main_dataset.loop).run()


def _execute_orders(
    job: Job,
    writer: MessageWriter,
    session: Session,
    link: RequestLink,
    use: consumption.Consumption,
    consumer: consumption.Consumer,
    seen: ObservedScript,
) -> int:
    """At the first training step: checks the pipeline that the script has built, then measures it until released."""

    def patch_of(keys: tuple[str, ...]) -> PatchResult | None:
        if not keys:
            return patch_for_validation_alone(study, session)
        plan = session.plan or Plan("")
        return make_patch(study, Plan(plan.name, tuple(one for one in plan.rewrites if one.key in keys)))

    def inform(order: Inform) -> Session:
        journal.go_on_with(session_file.load(job.session), TimePlan.of(job.settings, spent=order.spent_seconds))
        workflow.inform_after_verification(study, order.plan)
        return journal.session

    journal = Journal(Session(VERSION, session.command), TimePlan.of(job.settings), Listener())
    with shortened_pauses(), open_study(job, writer, journal, use, consumer, seen, measured=session) as study:
        first = _check_built_pipeline(study, session, job)
        validation, first = _with_validation(study, session, job, first)
        writer.send(Progress("windows", "waiting for the next measurement"))
        held = VerifiedScript(
            study.runner,
            baselines_of(study),
            patch=None if job.patched else patch_of,
            inform=None if job.patched else inform,
            validation=validation.dataset if validation is not None else None,
        )
        held.serve(link, first)
        study.runner.close()
    return 0


def _check_built_pipeline(study: Study, session: Session, job: Job) -> StepReply:
    """Checks the pipeline that the script has built; the answer has a `why` if it is not the expected one."""
    dataset, patch = session.main_dataset, session.patch or PatchResult()
    assert dataset is not None
    found, source = study.subject.source.pipeline, study.subject.source
    if not job.patched:
        difference = first_difference(found, dataset.pipeline)
        why = f"The script builds a different pipeline than before: {difference}." if difference else ""
        if not why:
            _run_as_measured(study, dataset, dataset.pipeline)
        return StepReply(why, operators=operators_of(found))
    covered = patch.covered_part(dataset.plan or Plan(""))
    expected = apply_edits(dataset.pipeline, covered.edits)
    different = _first_difference(found, expected)
    if different:
        node, description = different
        blamed = (one for one in covered.rewrites if any(_edits_node(edit, node) for edit in one.edits))
        why = f"The patched source builds a different pipeline than the plan: {description}."
        return StepReply(why, failed=tuple(one.key for one in blamed))
    if not job.check_elements:
        _run_as_measured(study, dataset, expected)
        return StepReply(operators=operators_of(found))
    if not patch.expected and any(map(_has_other_ops, expected)):
        return StepReply("A function has different ops than in the plan, and the elements cannot be compared.")
    elements, sizes = "elements not comparable", _verified_buffers(dataset, found, expected)
    if patch.expected:
        digests = expected_digests(with_buffers(source, sizes).source.dataset, seed=study.settings.seed)
        count = min(len(digests), len(patch.expected))
        if count == 0 or digests[:count] != patch.expected[:count]:
            return StepReply(_OTHER_ELEMENTS)
        elements = f"{count} elements equal"
    memory.release_free_memory()  # of a cache that was read to compare elements
    _run_as_measured(study, dataset, expected)
    counted = machine.reset_peak_rss()
    window = study.runner.input_window(
        ORIGINAL, seconds=_MEMORY_WINDOW_SECONDS, warmup_seconds=_MEMORY_WINDOW_SECONDS / 2
    )
    if dataset.pipeline.memory_caches and not _reads_full_caches(dataset):
        _run_as_measured(study, dataset, expected)  # the window may have filled them
    # A loop may have filled the caches before it was known to train.
    cached = sum(one.predicted_bytes for one in covered.rewrites if inserted_caches(one.edits))
    peak = max(cached, machine.peak_rss_bytes() - study.resident_bytes) / 2**20 if counted else None
    if peak is not None and sizes and dataset.profile is not None:
        smaller = with_smaller_shuffles(expected, dataset.profile.verified_buffers)
        peak += added_bytes(smaller, expected, dataset.profile) / 2**20
        elements += f", measured with shuffle buffers of {max(sizes.values())} elements"
    return StepReply(
        window=replace(window, intervals=()),
        operators=operators_of(found),
        checked=f"same operators as the plan, {elements}",
        peak_rss_mib=peak,
    )


def _with_validation(
    study: Study, session: Session, job: Job, answer: StepReply
) -> tuple[LivePipeline | None, StepReply]:
    """Returns the validation data that the script has built, if the patch is to change it, and the completed answer."""
    result = session.validation
    if result is None or result.patch is None or result.plan is None or answer.why:
        return None, answer
    built = [source for source, use in study.subject.other_datasets if use.role == result.role]
    named = [source for source in built if source.pipeline.name == result.pipeline.name]
    if len(named or built) != 1:
        return None, replace(answer, validation_why=f"The script builds no {result.pipeline.name} any more.")
    (source,), edits = (named or built), result.plan.edits if job.patched else ()
    expected = apply_edits(result.pipeline, edits)
    # The plan has the functions of training: those that gather rows hold its arrays, others the size of its batches.
    of_training = {edit.gather for edit in edits if isinstance(edit, ReplaceSource)}
    of_training |= {edit.node for edit in edits if isinstance(edit, ReplaceFunction)}
    different = first_difference(source.pipeline, expected, functions_differ=of_training)
    if different:
        why = f"The script builds another {result.pipeline.name} than expected: {different}."
        return None, replace(answer, validation_why=why)
    full = _with_added_caches_full(source, expected, result.pipeline)
    if not job.check_elements:
        return full, answer
    wanted = result.patch.expected
    with study.runner.measuring():
        digests = expected_digests(source.dataset, seed=study.settings.seed)
    count = min(len(digests), len(wanted))
    if count == 0 or digests[:count] != wanted[:count]:
        why = f"{result.pipeline.name} of the patched source could not be shown to yield the elements of the plan."
        return None, replace(answer, validation_why=why)
    return full, replace(answer, validation_checked=f"same operators as the plan, {count} elements equal")


def _verified_buffers(dataset: DatasetResult, actual: Pipeline, expected: Pipeline) -> dict[str, int]:
    """Returns the shuffle buffers to measure with, by the ids of the pipeline that a script builds (see `_ids_in`)."""
    sizes = dataset.profile.verified_buffers if dataset.profile is not None else {}
    return {here: sizes[there] for there, here in _ids_in(actual, expected).items() if there in sizes}


def _with_added_caches_full(source: LivePipeline, expected: Pipeline, original: Pipeline) -> LivePipeline:
    """Returns the script's pipeline with full caches where the patch adds some, by the pipelines in the session."""
    added = added_caches(expected, original)
    if not added:
        return source
    ids = _ids_in(source.pipeline, expected)
    return filled(source, source.pipeline, source.datasets, [ids[node] for node in added]).live


def _run_as_measured(study: Study, dataset: DatasetResult, expected: Pipeline) -> None:
    """Lets windows run the pipeline that a script has built as those of the analysis ran it: caches full, buffers cut.

    `expected` has the ids of the session. Its caches that are not in the pipeline of `dataset` are filled, too. Where
    the script's own are not to be full they are empty: what has read them before differs between the two processes.

    Raises:
        RunFailed: the caches cannot be filled.
    """
    source, full = study.subject.source, _reads_full_caches(dataset)
    if full:
        study.runner.measured = with_full_caches(source).live
    cut = with_buffers(study.runner.measured, _verified_buffers(dataset, source.pipeline, expected))
    own = cut.source if full else with_empty_caches(cut.source)
    with_added = _with_added_caches_full(own, expected, dataset.pipeline)
    study.runner.cut = replace(cut, source=with_added)


def _reads_full_caches(dataset: DatasetResult) -> bool:
    """Whether the script's own caches were full when it was measured, as later epochs find them."""
    return dataset.profile is not None and dataset.profile.cache_seconds is not None


def _ids_in(actual: Pipeline, expected: Pipeline) -> dict[str, str]:
    """Returns the ids of operators in the pipeline that a script builds, by their ids in the session.

    `expected` has the ids of the session, and the same operators as `actual`, apart from those that set options.
    """
    both = zip(_without_options(actual), _without_options(expected), strict=True)
    return {there.id: here.id for here, there in both}


def with_file_caches_in(folder: str, overlay: Mapping[str, str], plan: Plan) -> dict[str, str]:
    """Returns the patched texts with the plan's cache files moved to `folder`.

    At their real place this run would fill them, or leave them incomplete and locked.
    """
    texts = dict(overlay)
    for edit in inserted_caches(plan.edits):
        name = edit.arguments.get("filename")
        if isinstance(name, str) and name:
            texts = {path: text.replace(name, f"{folder}/{name}") for path, text in texts.items()}
    return texts


def _edits_node(edit: Edit, node: str) -> bool:
    return node in (getattr(edit, name, None) for name in ("node", "after", "id", "gather"))


def first_difference(actual: Pipeline, expected: Pipeline, *, functions_differ: Collection[str] = ()) -> str:
    """Returns a description of the first operator that differs; '' if none does.

    Ignores names, seeds, and the ops of functions that the patch expresses in other ops than the plan, or that
    `functions_differ` names by their operators. Options are compared by what is in force at the end, not by where they
    are set.
    """
    different = _first_difference(actual, expected, functions_differ=functions_differ)
    return different[1] if different else ""


def _first_difference(
    actual: Pipeline, expected: Pipeline, *, functions_differ: Collection[str] = ()
) -> tuple[str, str] | None:
    """Returns the first difference: the id of the operator in the plan ('' for none), and how it differs, in words."""
    actual, expected = _without_options(actual), _without_options(expected)
    here, there = actual.identities(), expected.identities()
    for index, (one, other) in enumerate(zip(here, there, strict=False)):
        mine, node = actual.nodes[index], expected.nodes[index]
        if node.id in functions_differ or (_has_other_ops(node) and _may_be_equivalent(mine, node)):
            one = replace(one, function=other.function)
        if replace(one, function=other.function) != other:
            return node.id, f"operator {index} is {_operator_text(one)}, not {_operator_text(other)}"
        if one != other:
            what = "computes something else, or with other values"
            return node.id, f"the function of operator {index}, {mine.op}, {what}"
    if len(here) != len(there):
        return "", f"it has {len(here)} operators, not {len(there)}"
    if actual.options != expected.options:
        return "", f"it sets the options {dict(actual.options)}, not {dict(expected.options)}"
    return None


def _without_options(pipeline: Pipeline) -> Pipeline:
    """The pipeline without `with_options` operators, which patched source needs to set options and a plan does not."""
    return apply_edits(pipeline, [Remove(node.id) for node in pipeline if node.op == "with_options"])


def _has_other_ops(node: Node) -> bool:
    """Whether the patch expresses the function in other ops than the plan; equal elements then have to prove it."""
    function = node.function
    return function is not None and (bool(function.edited_forms) or bool(function.part_of))


def _may_be_equivalent(actual: Node, expected: Node) -> bool:
    """Whether an operator may be the one that the plan means, as far as the operator alone shows."""
    if actual.function is None or expected.function is None:
        return False
    if expected.function.form is FunctionVariant.HEAD:
        return actual.element_spec.tensors == expected.element_spec.tensors
    if expected.function.part_of:
        return True
    edits = [GRAPH_EDITS[form] for form in expected.function.edited_forms]
    return all(not edit.new_ops.isdisjoint(actual.function.operations) for edit in edits)


def _operator_text(operator: OperatorIdentity) -> str:
    return f"{operator.op} {dict(operator.arguments)}"
