"""Verifies a patch: holds the script, patched or original, at its first training step, checks and measures it there."""

from __future__ import annotations

import contextlib
import functools
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pipetune.core import sessionfile
from pipetune.core.editing import apply_edits
from pipetune.core.edits import Edit, Insert, Plan, Remove
from pipetune.core.errors import PipetuneError
from pipetune.core.functions import FunctionForm
from pipetune.core.garbage import short_collections
from pipetune.core.in_step import Answer, Begin, Link
from pipetune.core.messages import Job, MessageWriter, Progress
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.session import PatchResult, Session
from pipetune.core.version import VERSION
from pipetune.journal import Journal, Silence
from pipetune.stages.emission import expected_digests, make_patch, overlay_of
from pipetune.stages.planning import baselines_of
from pipetune.stages.profiling import AS_WRITTEN
from pipetune.stages.study import Study
from pipetune.tf.measure import in_step, machine
from pipetune.tf.measure.runner import added_caches, fill_caches
from pipetune.tf.script import consumers, consumption, hooks
from pipetune.worker import observing, together
from pipetune.worker.first_step import study_of

_LOOK_SECONDS = 1.0  # window in which the memory of the input alone is measured
_BEGIN_SECONDS = 3600.0  # limit for the order to begin: another script may run to its first step before


def verify(job: Job, writer: MessageWriter) -> int:
    """Runs the script of `job` to its first training step and executes the orders from `job.orders` there.

    The session at `job.session` says which pipeline is expected there. Modules are imported before the first order,
    `Begin`: two processes may import in parallel, and then run the user's script one after the other.

    Returns:
        The exit code.

    Raises:
        PipetuneError: the session holds no patch.
    """
    session = sessionfile.load(job.session)
    if session.patch is None or session.plan is None:
        raise PipetuneError("The session holds no patch.")
    if job.patched:
        # Next to the session: the folder is removed with it, whatever happens to this process.
        folder = tempfile.mkdtemp(dir=Path(job.session).parent)
        job = replace(job, overlay=with_file_caches_in(folder, overlay_of(session), session.plan))
    if job.task is not None and not job.task.chief:
        return together.follow(job, writer)
    with contextlib.closing(Link(job.orders)) as link:
        if not isinstance(link.next_order(_BEGIN_SECONDS), Begin):
            return 0
        writer.send(Progress("verification", "running the script"))
        work = functools.partial(_serve, job, writer, session, link)
        return observing.Observation(job, writer, work).run()


def _serve(
    job: Job,
    writer: MessageWriter,
    session: Session,
    link: Link,
    use: consumption.Consumption,
    consumer: consumers.Consumer,
    seen: hooks.Hooks,
) -> int:
    """At the first training step: checks the pipeline that the script has built, then measures it until released."""

    def patch_of(keys: tuple[str, ...]) -> PatchResult:
        plan = session.plan or Plan("")
        return make_patch(study, Plan(plan.name, tuple(one for one in plan.rewrites if one.key in keys)))

    journal = Journal(Session(VERSION, session.command), job.settings, Silence())
    with study_of(job, writer, journal, use, consumer, seen) as study, short_collections():
        first = _arrived(study, session, job)
        writer.send(Progress("windows", "waiting for what to measure"))
        held = in_step.Held(study.runner, baselines_of(study), patch=None if job.patched else patch_of)
        held.serve(link, first)
        study.runner.forget()
    return 0


def _arrived(study: Study, session: Session, job: Job) -> Answer:
    """Checks the pipeline that the script has built; the answer has a `why` if it is not the expected one."""
    dataset, patch = session.tuned_dataset, session.patch
    assert dataset is not None and dataset.plan is not None and patch is not None
    found, source = study.subject.source.pipeline, study.subject.source
    if not job.patched:
        difference = first_difference(found, dataset.pipeline)
        why = f"The script builds another pipeline than before: {difference}." if difference else ""
        return Answer(why, operators=in_step.operators_of(found))
    covered = Plan("covered", tuple(one for one in dataset.plan.rewrites if one.key in patch.covered))
    wanted = apply_edits(dataset.pipeline, covered.edits)
    different = _first_difference(found, wanted)
    if different:
        blamed = (one for one in covered.rewrites if any(_is_about(edit, different.node) for edit in one.edits))
        why = f"The patched source builds another pipeline than the plan: {different.words}."
        return Answer(why, failed=tuple(one.key for one in blamed))
    if not job.checks:
        return Answer(operators=in_step.operators_of(found))
    if not patch.expected and any(map(_written_otherwise, wanted)):
        return Answer("A function has other ops than in the plan, and elements cannot be compared.")
    if patch.expected:
        digests = expected_digests(source.dataset, seed=study.settings.seed)
        count = min(len(digests), len(patch.expected))
        if count == 0 or digests[:count] != patch.expected[:count]:
            return Answer("The patched source yields other elements than the plan.")
    elements = f"{len(patch.expected)} elements equal" if patch.expected else "elements not comparable"
    fill_caches(source.datasets[node] for node in _added_caches(found, wanted, dataset.pipeline))
    counted = machine.reset_peak_rss()
    window = study.runner.input_window(AS_WRITTEN, seconds=_LOOK_SECONDS, warmup_seconds=_LOOK_SECONDS / 2)
    peak = max(0.0, machine.peak_rss_bytes() - study.resident_bytes) / 2**20 if counted else None
    return Answer(
        window=replace(window, intervals=()),
        operators=in_step.operators_of(found),
        checked=f"same operators as the plan, {elements}",
        peak_rss_mib=peak,
    )


def _added_caches(found: Pipeline, wanted: Pipeline, original: Pipeline) -> list[str]:
    """Ids, in the pipeline that the patched script builds, of the caches that the plan adds.

    Args:
        found: the pipeline of the patched script.
        wanted: the pipeline of the plan; it has the same operators, apart from those that set options.
        original: the pipeline without the plan.
    """
    added = added_caches(wanted, original)
    both = zip(_without_options(found), _without_options(wanted), strict=True)
    return [here.id for here, there in both if there.id in added]


def with_file_caches_in(folder: str, overlay: Mapping[str, str], plan: Plan) -> dict[str, str]:
    """The patched texts with the plan's cache files moved to `folder`.

    At their real place this run would fill them, or leave them half full and locked.
    """
    inserted = [edit for edit in plan.edits if isinstance(edit, Insert) and edit.op == "cache"]
    names = [name for edit in inserted if isinstance(name := edit.arguments.get("filename"), str) and name]
    texts = dict(overlay)
    for name in names:
        texts = {path: text.replace(name, f"{folder}/{name}") for path, text in texts.items()}
    return texts


def _is_about(edit: Edit, node: str) -> bool:
    return node in (getattr(edit, name, None) for name in ("node", "after", "id", "gather"))


@dataclass(frozen=True)
class _Difference:
    """Where two pipelines differ: the id of the operator in the plan ('' for none), and how, in words."""

    node: str
    words: str


def first_difference(found: Pipeline, wanted: Pipeline) -> str:
    """Describes the first operator that differs; '' if none does.

    Ignores names, seeds, and the ops of functions that the patch expresses in other ops than the plan. Options are
    compared by what is in force at the end, not by where they are set.
    """
    different = _first_difference(found, wanted)
    return different.words if different else ""


def _first_difference(found: Pipeline, wanted: Pipeline) -> _Difference | None:
    found, wanted = _without_options(found), _without_options(wanted)
    here, there = found.describe(), wanted.describe()
    for index, (one, other) in enumerate(zip(here, there, strict=False)):
        if _written_otherwise(wanted.nodes[index]) and _says_the_same(found.nodes[index], wanted.nodes[index]):
            one["function"] = other["function"]
        if one != other:
            return _Difference(wanted.nodes[index].id, f"operator {index} is {_words(one)}, not {_words(other)}")
    if len(here) != len(there):
        return _Difference("", f"it has {len(here)} operators, not {len(there)}")
    if found.options != wanted.options:
        return _Difference("", f"it sets the options {dict(found.options)}, not {dict(wanted.options)}")
    return None


def _without_options(pipeline: Pipeline) -> Pipeline:
    """The pipeline without `with_options` operators, which patched source needs to set options and a plan does not."""
    return apply_edits(pipeline, [Remove(node.id) for node in pipeline if node.op == "with_options"])


def _written_otherwise(node: Node) -> bool:
    """Whether the patch expresses the function in other ops than the plan; equal elements then have to prove it."""
    function = node.function
    if function is None:
        return False
    return function.form is FunctionForm.DECODE_AND_CROP or bool(function.part_of)


def _says_the_same(found: Node, wanted: Node) -> bool:
    """Whether an operator may be the one that the plan means, as far as the operator alone shows."""
    if found.function is None or wanted.function is None:
        return False
    if wanted.function.form is FunctionForm.HEAD:
        return _components(found.spec) == _components(wanted.spec)
    if wanted.function.part_of:
        return True
    return "DecodeAndCropJpeg" in found.function.operations


def _components(spec: str) -> list[str]:
    """Shapes and dtypes of the components in the text of a spec, regardless of their names and order."""
    return sorted(re.findall(r"shape=(?:\(.*?\)|<unknown>), dtype=[\w.]+", spec))


def _words(operator: dict[str, object]) -> str:
    return f"{operator['op']} {operator['arguments']}"
