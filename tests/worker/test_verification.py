"""The verifying worker: temporary cache files, comparison with the plan, and when the script runs."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture.consumption import NoConsumer
from pipetune.core import session_file
from pipetune.core.cluster import LockstepRole
from pipetune.core.edits import (
    Edit,
    Insert,
    Move,
    Plan,
    ReplaceFunction,
    Rewrite,
    Safety,
    SetArgument,
    SplitFunction,
    apply_edits,
)
from pipetune.core.errors import PipetuneError
from pipetune.core.functions import FunctionSplit, FunctionVariant, SplitPosition
from pipetune.core.lockstep import NoMoreRequests, RequestLink, RunToFirstStep, StepReply
from pipetune.core.measurement import Window
from pipetune.core.messages import Job, MessageWriter, Mode
from pipetune.core.session import DatasetResult, PatchResult
from pipetune.measure.runner import TensorFlowRunner
from pipetune.pipelines import live
from pipetune.stages.emission import expected_digests
from pipetune.stages.profiling import ORIGINAL
from pipetune.worker import verification
from pipetune.worker.verification import first_difference, with_file_caches_in
from tests.core.sessions import MACHINE, session
from tests.stages.studies import PROFILE
from tests.words import pipeline

NAME = "pipetune-cache-82d49b9a1066104b"
TEXT = f'dataset = dataset.map(parse).cache("{NAME}").cache("mine").batch(4)\n'


def _plan(*edits: Edit) -> Plan:
    return Plan("tuned", (Rewrite("cache", "n1", Safety.EXACT, edits, "Keeps it."),))


def test_cache_files_of_plan_are_moved_and_those_of_user_kept() -> None:
    plan = _plan(Insert("n1", "cache", "cache@n1", {"filename": NAME}))
    found = with_file_caches_in("/tmp/elsewhere", {"train.py": TEXT, "other.py": "x = 1\n"}, plan)
    assert found == {"train.py": TEXT.replace(NAME, f"/tmp/elsewhere/{NAME}"), "other.py": "x = 1\n"}
    assert '.cache("mine")' in found["train.py"]


@pytest.mark.parametrize(
    "edit",
    [Insert("n1", "cache", "cache@n1", {"filename": ""}), Insert("n1", "prefetch", "prefetch@n1", {"buffer_size": 2})],
)
def test_source_without_file_cache_is_unchanged(edit: Insert) -> None:
    assert with_file_caches_in("/tmp/elsewhere", {"train.py": TEXT}, _plan(edit)) == {"train.py": TEXT}


HANDED = "(TensorSpec(shape=(), dtype=tf.int64, name=None), TensorSpec(shape=(None, 3), dtype=tf.uint8, name=None))"
SWAPPED = "{'a': TensorSpec(shape=(None, 3), dtype=tf.uint8, name='a'), 'b': TensorSpec(shape=(), dtype=tf.int64)}"
MORE = HANDED.replace("(TensorSpec", "(TensorSpec(shape=<unknown>, dtype=tf.string, name=None), TensorSpec", 1)


@pytest.mark.parametrize(("spec", "same"), [(HANDED, True), (SWAPPED, True), (MORE, False), ("", False)])
def test_output_of_split_function_is_compared_with_plan(spec: str, same: bool) -> None:
    split = SplitFunction("n1", FunctionSplit(SplitPosition.BEFORE_DRAWS, spec=HANDED, head="cut", tail="cut too"))
    wanted = apply_edits(pipeline("range 9 | map random"), [split])
    found = pipeline("range 9 | map | map random")
    found = replace(found, nodes=(found.nodes[0], replace(found.nodes[1], spec=spec), found.nodes[2]))
    assert (first_difference(found, wanted) == "") is same


@pytest.mark.parametrize(("edit", "node", "blamed"), [
    (Insert("n1", "prefetch", "prefetch@n1", {"buffer_size": 2}), "prefetch@n1", True),
    (Insert("n1", "prefetch", "prefetch@n1", {"buffer_size": 2}), "n0", False),
    (SetArgument("n1", "num_parallel_calls", 4), "n1", True),
])  # fmt: skip
def test_rewrite_is_matched_to_the_operator_that_it_edits(edit: Edit, node: str, blamed: bool) -> None:
    assert verification._edits_node(edit, node) is blamed


def test_first_difference_names_operator_of_plan() -> None:
    wanted = apply_edits(pipeline("range 9 | map"), [SetArgument("n1", "num_parallel_calls", 4)])
    different = verification._first_difference(pipeline("range 9 | map"), wanted)
    assert different is not None and different[0] == "n1" and different[1].startswith("operator 1 is map")
    assert verification._first_difference(wanted, wanted) is None


def test_functions_that_hold_arrays_may_differ_where_elements_prove_them() -> None:
    here = pipeline("range 9 | map | map")
    first, other, last = here.nodes
    there = replace(here, nodes=(first, replace(other, function=replace(other.function, digest="other")), last))
    assert verification.first_difference(here, there).startswith("the function of operator 1, map, computes something")
    assert verification.first_difference(here, there, functions_differ={"n1"}) == ""
    assert verification.first_difference(here, there, functions_differ={"n2"})


@pytest.mark.parametrize(("task", "order", "ran"), [
    (None, RunToFirstStep(), ["script"]),
    (None, NoMoreRequests(), []),
    (LockstepRole(0, 2), RunToFirstStep(), ["script"]),  # a chief
    (LockstepRole(1, 2), None, ["follows"]),
])  # fmt: skip
def test_script_runs_after_request(task, order, ran, tmp_path, monkeypatch) -> None:
    """Two processes import at the same time and run the user's script one after the other."""
    seen: list[str] = []

    def sees(what: str) -> Callable[..., int]:
        return lambda *_given: (seen.append(what), 0)[1]  # type: ignore[func-returns-value]

    script = SimpleNamespace(run=sees("script"))
    monkeypatch.setattr(verification.observation, "ObservedRun", lambda *_given, training_loop: script)
    monkeypatch.setattr(verification.lockstep, "run_as_agent", sees("follows"))
    session_file.save(session(), tmp_path / "session.json")
    near, far = socket.socketpair()
    with contextlib.closing(RequestLink(near.detach())) as link, open(os.devnull, "wb") as nowhere:
        if order is not None:
            link.send_request(order)
        saved = str(tmp_path / "session.json")
        job = Job(Mode.VERIFY, nowhere.fileno(), session=saved, lockstep_role=task, request_descriptor=far.detach())
        assert verification.verify(job, MessageWriter(nowhere.fileno())) == 0
        if task is not None and not task.is_chief:
            os.close(job.request_descriptor)
    assert seen == ran


def test_verification_without_patch_is_rejected(tmp_path: Path) -> None:
    session_file.save(replace(session(), patch=None), tmp_path / "session.json")
    with pytest.raises(PipetuneError, match="contains no patch"):
        verification.verify(Job(Mode.VERIFY, -1, session=str(tmp_path / "session.json")), None)  # type: ignore[arg-type]


def _validation_answer(
    built: list[tuple[str, Any]],
    *,
    patched: bool = True,
    expected: tuple[str, ...] | None = None,
    edits: tuple[Edit, ...] = (Move("n2", "n0"),),
) -> tuple[Any, StepReply]:
    """What is measured and answered of a script with these datasets; the plan moves `skip` before the map."""
    original = live.read(tf.data.Dataset.range(40).map(lambda x: x * 3).skip(30).batch(4), name="held_out").pipeline
    plan = Plan("v", (Rewrite("split-early", "n2", Safety.EXACT, edits, ""),))
    digests = expected_digests(tf.data.Dataset.range(30, 40).map(lambda x: x * 3).batch(4), seed=0)
    patch = PatchResult("diff", expected=digests if expected is None else expected)
    result = DatasetResult(original, "validation", plan=plan, patch=patch)
    one = replace(session(), datasets=(session().datasets[0], result))
    others = [(live.read(made, name=name), SimpleNamespace(role="validation")) for name, made in built]
    runner = SimpleNamespace(measuring=contextlib.nullcontext, close=lambda: None)
    subject, settings = SimpleNamespace(other_datasets=others), SimpleNamespace(seed=0)
    study = SimpleNamespace(subject=subject, runner=runner, settings=settings)
    job = Job(Mode.VERIFY, -1, patched=patched, check_elements=patched)
    held: list[tuple[Any, StepReply]] = []

    def holds(*_: Any, validation: Any, **__: Any) -> Any:
        return SimpleNamespace(serve=lambda link, first: held.append((validation, first)))

    with pytest.MonkeyPatch.context() as put:
        put.setattr(verification, "open_study", lambda *_, **__: contextlib.nullcontext(study))
        put.setattr(verification, "_check_built_pipeline", lambda *_: StepReply(checked="training"))
        put.setattr(verification, "baselines_of", lambda _: {})
        put.setattr(verification, "VerifiedScript", holds)
        verification._execute_orders(job, SimpleNamespace(send=repr), one, *[None] * 4)  # type: ignore[arg-type]
    return held[0]


def test_validation_data_of_the_patched_script_is_compared_with_its_plan() -> None:
    numbers = tf.data.Dataset.range(40)
    moved = numbers.skip(30).map(lambda x: x * 3).batch(4)
    found, answer = _validation_answer([("held_out", moved)])
    assert found is moved
    assert answer.validation_checked.endswith("3 elements equal") and (answer.why, answer.checked) == ("", "training")
    assert _validation_answer([("other", numbers), ("held_out", moved)])[0] is not None, "found by its name"
    for built, why in (
        ([], "builds no held_out"),
        ([("a", moved), ("b", moved)], "builds no held_out"),
        ([("held_out", numbers.map(lambda x: x * 3).skip(30).batch(4))], "another held_out"),
        ([("held_out", numbers.skip(29).map(lambda x: x * 3).batch(4))], "another held_out"),
    ):
        found, answer = _validation_answer(built)
        assert found is None and why in answer.validation_why and answer.why == ""
    for expected in ((), ("another",)):
        found, answer = _validation_answer([("held_out", moved)], expected=expected)
        assert found is None and "could not be shown" in answer.validation_why


def test_function_on_batches_of_validation_is_proven_by_its_elements() -> None:
    """The plan has that of training, whose batches are of one size."""
    on_batches = ReplaceFunction("n1", FunctionVariant.ON_BATCHES, "of training")
    batched = tf.data.Dataset.range(40).skip(30).batch(4)
    for factor, same in ((3, True), (2, False)):
        made = batched.map(lambda x, factor=factor: x * factor)
        found, answer = _validation_answer([("held_out", made)], edits=(Move("n1", "n3"), on_batches))
        assert (found is made) is same and ("could not be shown" in answer.validation_why) is not same


def test_validation_data_of_the_original_script_is_that_of_the_session() -> None:
    numbers = tf.data.Dataset.range(40)
    written = numbers.map(lambda x: x * 3).skip(30).batch(4)
    found, answer = _validation_answer([("held_out", written)], patched=False)
    assert found is written and answer.validation_why == ""
    found, answer = _validation_answer([("held_out", numbers.batch(4))], patched=False)
    assert found is None and answer.validation_why


def test_cache_that_the_loop_filled_before_counts_as_memory() -> None:
    def mapped() -> Any:
        return tf.data.Dataset.range(8).map(lambda x: x * 3)

    original, built = live.read(mapped().batch(4)).pipeline, live.read(mapped().cache().batch(4))
    caching = Rewrite("cache", "n1", Safety.EXACT, (Insert("n1", "cache", "cache@n1", {"filename": ""}),), "")
    plan = Plan("tuned", (replace(caching, predicted_bytes=2.0**40),))
    patch = PatchResult("diff", covered=(caching.key,), expected=expected_digests(built.dataset, seed=0))
    diagnosed = DatasetResult(original, "training", plan=plan, diagnosis=session().diagnosis)
    one = replace(session(), datasets=(diagnosed,), patch=patch)
    runner = SimpleNamespace(cut=None, measured=built, input_window=lambda plan, **_: Window(4, 16, 1.0, 1.0, 0.1))
    subject, settings = SimpleNamespace(source=built), SimpleNamespace(seed=0)
    study = SimpleNamespace(subject=subject, runner=runner, settings=settings, resident_bytes=0.0)
    job = Job(Mode.VERIFY, -1, patched=True, check_elements=True)
    answer = verification._check_built_pipeline(study, one, job)  # type: ignore[arg-type]
    assert answer.why == "" and answer.peak_rss_mib == 2.0**20


def _counted(calls: list[int]) -> Any:
    read = lambda number: (calls.append(number), number)[1]  # noqa: E731
    return tf.data.Dataset.range(8).map(lambda x: tf.ensure_shape(tf.numpy_function(read, [x], tf.int64), []))


@pytest.mark.parametrize("cache_seconds", [None, 0.1])
def test_the_scripts_own_caches_are_full_where_they_were_when_it_was_measured(cache_seconds: float | None) -> None:
    calls: list[int] = []
    source = live.read(_counted(calls).cache().batch(2))
    profile = replace(PROFILE, cache_seconds=cache_seconds)
    runner = TensorFlowRunner(source, NoConsumer("nobody trains"), machine=MACHINE, examples_per_element=2.0)
    study = SimpleNamespace(subject=SimpleNamespace(source=source), runner=runner)
    result = DatasetResult(source.pipeline, "training", profile=profile)
    before = len(list(source.dataset)) and len(calls)  # one of the two processes compares elements, and fills a cache
    verification._run_as_measured(study, result, source.pipeline)  # type: ignore[arg-type]
    assert (runner.measured is source) is (cache_seconds is None)
    assert (runner.cut.source is runner.measured) is (cache_seconds is not None)
    filled = len(calls)
    assert (filled >= before + 8) is (cache_seconds is not None)
    next(iter(runner.dataset(ORIGINAL)))
    assert (len(calls) > filled) is (cache_seconds is None)
    # A baseline that changes what is upstream has such a cache, too.
    rebuilt = _plan(SetArgument("n1", "num_parallel_calls", 2))
    dataset, filled = runner.dataset(rebuilt), len(calls)
    next(iter(dataset))
    assert (len(calls) > filled) is (cache_seconds is None)


def test_caches_of_the_patch_are_full_where_it_is_only_measured_again() -> None:
    calls: list[int] = []
    original, source = live.read(_counted(calls).batch(2)).pipeline, live.read(_counted(calls).cache().batch(2))
    plan = _plan(Insert("n1", "cache", "cache@n1", {"filename": ""}))
    patch = PatchResult("diff", covered=(plan.rewrites[0].key,))
    one = replace(session(), datasets=(DatasetResult(original, "training", profile=PROFILE, plan=plan),), patch=patch)
    runner = TensorFlowRunner(source, NoConsumer("nobody trains"), machine=MACHINE, examples_per_element=2.0)
    study = SimpleNamespace(subject=SimpleNamespace(source=source), runner=runner)
    job = Job(Mode.VERIFY, -1, patched=True, check_elements=False)
    assert verification._check_built_pipeline(study, one, job).why == ""  # type: ignore[arg-type]
    filled = len(calls)
    next(iter(runner.dataset(ORIGINAL)))
    assert filled == len(calls) >= 8


def test_the_scripts_own_cache_is_empty_again_behind_the_window_that_shows_the_memory() -> None:
    """Only the patched script has that window: its steps read a full cache, and seemed to be 4.3 times as fast."""
    calls: list[int] = []
    original = live.read(_counted([]).cache().batch(2)).pipeline
    source = live.read(_counted(calls).cache().batch(2).prefetch(2))
    plan = _plan(Insert("n3", "prefetch", "prefetch@n3", {"buffer_size": 2}))
    patch = PatchResult("diff", covered=(plan.rewrites[0].key,), expected=expected_digests(source.dataset, seed=0))
    diagnosed = DatasetResult(original, "training", profile=PROFILE, plan=plan, diagnosis=session().diagnosis)
    runner = TensorFlowRunner(source, NoConsumer("nobody trains"), machine=MACHINE, examples_per_element=2.0)
    subject, settings = SimpleNamespace(source=source), SimpleNamespace(seed=0)
    study = SimpleNamespace(subject=subject, runner=runner, settings=settings, resident_bytes=0.0)
    job = Job(Mode.VERIFY, -1, patched=True, check_elements=True)
    one = replace(session(), datasets=(diagnosed,), patch=patch)
    assert verification._check_built_pipeline(study, one, job).why == ""  # type: ignore[arg-type]
    read = len(calls)
    next(iter(runner.dataset(ORIGINAL)))
    assert len(calls) > read
