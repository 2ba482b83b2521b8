"""Runs the patched source in a fresh process up to its consumer: same operators, equal elements, a window."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from pipetune.core import scratch, sessionfile
from pipetune.core.editing import apply_edits
from pipetune.core.edits import Insert, Plan, Remove
from pipetune.core.functions import SCALES, FunctionForm
from pipetune.core.messages import Job, MessageWriter, Progress, Verified
from pipetune.core.padding import BUCKETS
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.session import DatasetResult, PatchResult, Session
from pipetune.stages.emission import expected_digests, overlay_of
from pipetune.stages.study import batched
from pipetune.tf.measure import allocator, machine, windows
from pipetune.tf.pipelines import replay
from pipetune.tf.script import consumers, consumption, hooks
from pipetune.worker import observing, together

_WINDOW_SECONDS = 2.0


def verify(job: Job, writer: MessageWriter) -> int:
    """Verifies the patch of the session in `job.session`; the outcome is sent as `Verified`, by a chief alone."""
    session = sessionfile.load(job.session)
    dataset, patch = session.tuned_dataset, session.patch
    if dataset is None or patch is None or dataset.plan is None:
        writer.send(Verified(False, "The session holds no patch."))
        return 1
    outcome: list[Verified] = []
    follows = job.task if job.task is not None and not job.task.chief else None

    def work(use: consumption.Consumption, consumer: consumers.Consumer, seen: hooks.Hooks) -> int:
        if follows is not None:
            return together.stand_by(follows)
        writer.send(Progress("verification", "running the patched source"))
        with together.team_of(job.task, writer):
            outcome.append(_prove(use, session, dataset, patch))
        return 0

    def conclude(code: int, _not_run: str) -> int:
        if follows is not None:
            return code
        writer.send(outcome[0] if outcome else Verified(False, "The patched source did not reach the consumer."))
        return code if outcome else 1

    with scratch.folder("verified") as folder:
        overlay = with_file_caches_in(folder, overlay_of(session), dataset.plan)
        return observing.Observation(replace(job, overlay=overlay), writer, work, conclude).run()


def with_file_caches_in(folder: str, overlay: Mapping[str, str], plan: Plan) -> dict[str, str]:
    """The patched texts with the files of the plan's caches in `folder`.

    Where the user runs the script they would be filled by this run, or be left half full and locked.
    """
    inserted = [edit for edit in plan.edits if isinstance(edit, Insert) and edit.op == "cache"]
    names = [name for edit in inserted if isinstance(name := edit.arguments.get("filename"), str) and name]
    texts = dict(overlay)
    for name in names:
        texts = {path: text.replace(name, f"{folder}/{name}") for path, text in texts.items()}
    return texts


def _prove(use: consumption.Consumption, session: Session, dataset: DatasetResult, patch: PatchResult) -> Verified:
    source = replay.read(use.dataset, name=use.name)
    assert dataset.plan is not None
    covered = Plan("covered", tuple(one for one in dataset.plan.rewrites if one.key in patch.covered))
    wanted = apply_edits(dataset.pipeline, covered.edits)
    difference = first_difference(source.pipeline, wanted)
    if difference:
        return Verified(False, f"The patched source builds another pipeline than the plan: {difference}.")
    allocator.give_back()
    level = machine.rss_bytes()  # before the first element: memory of filled buffers stays with the process
    if not patch.expected and any(map(_written_otherwise, wanted)):
        return Verified(False, "A function has other ops than in the plan, and elements cannot be compared.")
    if patch.expected:
        seed = session.command.get("seed", 0)
        found = expected_digests(source.dataset, seed=seed if isinstance(seed, int) else 0)
        count = min(len(found), len(patch.expected))
        if count == 0 or found[:count] != patch.expected[:count]:
            return Verified(False, "The patched source yields other elements than the plan.")
    counted = machine.reset_peak_rss()
    window = windows.input_window(
        source.dataset,
        seconds=_WINDOW_SECONDS,
        examples_per_element=windows.examples_per_element(source.dataset, batched(source.pipeline)),
    )
    peak = max(0.0, machine.peak_rss_bytes() - level) / 2**20 if counted else None
    elements = f"{len(patch.expected)} elements equal, " if patch.expected else "elements not comparable, "
    return Verified(
        True,
        f"Patched source run in a fresh process: same operators as the plan, {elements}"
        f"{window.examples_per_second:,.0f} examples/s in one window.",
        peak_rss_mib=peak,
    )


def first_difference(found: Pipeline, wanted: Pipeline) -> str:
    """The first operator that differs, in words; '' if none does.

    Names and seeds do not count, nor what a function is made of where the source says it in other ops than the plan,
    nor where options are set, but which are in force at the end.
    """
    found, wanted = _without_options(found), _without_options(wanted)
    here, there = found.describe(), wanted.describe()
    for index, (one, other) in enumerate(zip(here, there, strict=False)):
        if _written_otherwise(wanted.nodes[index]) and _says_the_same(found.nodes[index], wanted.nodes[index]):
            one["function"] = other["function"]
        if wanted.nodes[index].op == BUCKETS and _made_by_buckets(found.nodes[index]):
            one = {**other, "inputs": one["inputs"]}
        if one != other:
            return f"operator {index} is {_words(one)}, not {_words(other)}"
    if len(here) != len(there):
        return f"it has {len(here)} operators, not {len(there)}"
    if found.options != wanted.options:
        return f"it sets the options {dict(found.options)}, not {dict(wanted.options)}"
    return ""


def _without_options(pipeline: Pipeline) -> Pipeline:
    """Without the operators that set options: a plan sets them, and no such operator, where the source has to."""
    return apply_edits(pipeline, [Remove(node.id) for node in pipeline if node.op == "with_options"])


def _written_otherwise(node: Node) -> bool:
    """Whether the patch says it in other ops than the plan does: then equal elements show that it is the same."""
    if node.op == BUCKETS:
        return True
    function = node.function
    if function is None:
        return False
    return function.form is FunctionForm.DECODE_AND_CROP or function.form in SCALES or bool(function.part_of)


def _made_by_buckets(node: Node) -> bool:
    """Whether TensorFlow made it of a call of `bucket_by_sequence_length`, whose arguments it does not keep."""
    return node.op == "group_by_window" and node.location is not None and node.location.method == BUCKETS


def _says_the_same(found: Node, wanted: Node) -> bool:
    """Whether it can be what the plan means, as far as the operator itself shows."""
    if found.function is None or wanted.function is None:
        return False
    if wanted.function.form is FunctionForm.HEAD:
        return _components(found.spec) == _components(wanted.spec)
    if wanted.function.part_of:
        return True
    decoder = "DecodeJpeg" if wanted.function.form in SCALES else "DecodeAndCropJpeg"
    return decoder in found.function.operations


def _components(spec: str) -> list[str]:
    """What an element is made of, whatever its components are called and in whichever order they stand."""
    return sorted(re.findall(r"shape=(?:\(.*?\)|<unknown>), dtype=[\w.]+", spec))


def _words(operator: dict[str, object]) -> str:
    return f"{operator['op']} {operator['arguments']}"
