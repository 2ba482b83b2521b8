"""Complete sessions to show: what an analysis of real scripts gives, and what hostile ones could."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipetune.core import profile
from pipetune.core.distribution import Coverage, ElementIdentity, ModuleCheck, WorkerShare
from pipetune.core.edits import Consent, Insert, NoProposal, Plan, Rewrite, Safety, SetArgument, apply_edits
from pipetune.core.functions import FunctionFacts
from pipetune.core.machine import Machine
from pipetune.core.measurement import Interval, Rate, StepSeries
from pipetune.core.pipeline import AUTOTUNE, INFINITE, Node, Pipeline, SourceLocation
from pipetune.core.profile import ConsumerProfile, Diagnosis, Finding, OperatorProfile, Profile, Stage, Verdict
from pipetune.core.results import Comparison, EqualityCheck, Outcome, Trial
from pipetune.core.session import (
    Candidate,
    DatasetResult,
    DistributedResult,
    OptionalRewrite,
    PatchResult,
    Rejection,
    Reproducibility,
    Session,
    TrainingResult,
)
from pipetune.core.session_file import redact
from pipetune.core.settings import Command, Settings
from pipetune.supervisor.session_ending import without_patch
from tests.report.reading import with_main, with_part

SCRIPT = "/home/ada/photos/train.py"
INPUT = "/home/ada/photos/photo_input.py"

_MEMORY = (8 * 1024**3, 512 * 1024**3, 6_900_000_000)  # of the container, of the host, available
_SOFTWARE = ("Linux 6.8", "3.11.7", "2.21.0", "3.12.0")
MACHINE = Machine(2.0, 64, 2, *_MEMORY, "AMD EPYC 7B13", *_SOFTWARE, ("CPU:0",), "cpu", 0.42, quota_cores=2.0)
COMMAND = Command(SCRIPT, arguments=("--epochs", "3"), directory="/home/ada/photos", date="2026-03-14T09:26:53Z")
COMMAND = replace(COMMAND, options=Settings(out="/home/ada/photos/reports/train"))
WAIT = Interval(0.284, 0.262, 0.307, 24, "t, 95 %")


def place(line: int, method: str, *, file: str = INPUT) -> SourceLocation:
    return SourceLocation(file, line, 4, line, 40, method)


_PARSE = FunctionFacts("parse", "d1", operations=("ParseExampleV2",))
_DECODE = FunctionFacts("decode_and_augment", "d2", operations=("DecodeJpeg", "RandomUniform"), random=True)


def photo_pipeline() -> Pipeline:
    calls: tuple[tuple[str, dict[str, Any]], ...] = (  # one a line, from line 21 on
        ("list_files", {"arguments": {"shuffle": True}, "cardinality": 16}),
        ("interleave", {"arguments": {"cycle_length": 2, "block_length": 1}, "inner": ("TFRecordDataset",)}),
        ("map", {"function": _PARSE}),
        ("map", {"function": _DECODE, "shared": 2, "element_bytes": 602_112.0}),
        ("shuffle", {"arguments": {"buffer_size": 256}}),
        ("batch", {"arguments": {"batch_size": 32}}),
        ("repeat", {"arguments": {"count": INFINITE}}),
    )
    nodes = (
        Node(f"n{number}", op, inputs=(f"n{number - 1}",) if number else (), location=place(21 + number, op), **facts)
        for number, (op, facts) in enumerate(calls)
    )
    return Pipeline(tuple(nodes), name="train_ds")


def differenced(operator: OperatorProfile, low: float, high: float, waiting: float, **more: Any) -> OperatorProfile:
    """The operator with what prefix differencing adds; seconds."""
    method = "t on differences between prefixes, 95 %"
    return replace(
        operator,
        waiting_seconds=waiting,
        cpu_interval=Interval(operator.cpu_seconds or 0.0, low, high, 8, method),
        waiting_interval=Interval(waiting, 0.8 * waiting, 1.3 * waiting, 8, method),
        cost_source=profile.CostSource.PREFIX_DIFFERENCING,
        **more,
    )


def photo_profile() -> Profile:
    files, interleave, parse, decode, *rest = invented_costs()
    interleave = differenced(interleave, 28e-6, 35e-6, 17e-6, inside={"TFRecord": 0.86, "": 0.14})
    return Profile(
        (files, interleave, parse, differenced(decode, 722e-6, 741e-6, 29e-6), *rest),
        ConsumerProfile("keras-fit", real_seconds=0.0981, bound_seconds=0.0702, input_seconds=0.0284, wait_share=WAIT),
        *(32.0, 19_267_584.0),  # examples and bytes of an element
        input_cpu_seconds=0.0282,
        input_wall_seconds=0.0301,
        first_element_seconds=0.61,
        peak_rss_mib=398.0,
        notes=("16 files were read from a warm page cache.",),
    )


def invented_costs() -> tuple[OperatorProfile, ...]:
    """What the runtime's model might say."""
    rows: tuple[tuple[Any, ...], ...] = (
        ("n0", Stage.EXTRACT, 4e-6, 4e-6, 160, 0.0, 0.26, 0.0, 48.0),
        ("n1", Stage.EXTRACT, 31e-6, 48e-6, 19_200, 0.008, 32.0, 48.0, 81_400.0),
        ("n2", Stage.TRANSFORM, 22e-6, 23e-6, 19_200, 1.0, 32.0, 81_400.0, 81_300.0, None, None, False, False),
        ("n3", Stage.TRANSFORM, 731e-6, 760e-6, 19_200, 1.0, 32.0, 81_300.0, 602_112.0, None, None, True, False),
        ("n4", Stage.TRANSFORM, 1.6e-6, 2e-6, 19_200, 1.0, 32.0, 602_112.0, 602_112.0, 256.0, 154_140_672.0, True),
        ("n5", Stage.LOAD, 2_900e-6, 3_000e-6, 600, 32.0, 1.0, 602_112.0, 19_267_584.0),
        ("n6", Stage.LOAD, 0.9e-6, 1e-6, 600, 1.0, 1.0, 19_267_584.0, 19_267_584.0),
    )
    return tuple(OperatorProfile(*row) for row in rows)


def _rewrite(rule: str, edit: SetArgument | Insert, safety: Safety, summary: str, **more: Any) -> Rewrite:
    node = edit.node if isinstance(edit, SetArgument) else edit.after
    return Rewrite(rule, node, safety, (edit,), summary, **more)


PARALLEL = _rewrite(
    *("parallel-map", SetArgument("n3", "num_parallel_calls", 2), Safety.STATISTICAL),
    "decodes two images at a time; the random crops are drawn in another order",
    group="parallel:n3",
    reproducible=False,
)
PREFETCH = _rewrite(
    *("prefetch", Insert("n6", "prefetch", "prefetch@n6", {"buffer_size": 2}), Safety.EXACT),
    "prepares the next batches while the model trains",
    predicted_bytes=38_535_168.0,
)
CACHE = _rewrite(
    *("cache", Insert("n2", "cache", "cache@n2", {}), Safety.REORDERS, "keeps the parsed records in memory"),
    needs=frozenset({Consent.REORDER}),
    notes=("the file order of the first epoch is kept for all epochs",),
    predicted_bytes=162_600_000.0,
)

DIFF = """# made by pipetune on 2 cores, 8 GiB, cpu; measured there
--- a/photo_input.py
+++ b/photo_input.py
@@ -21,7 +21,7 @@ def training_data(folder, batch_size=32):
     files = tf.data.Dataset.list_files(f"{folder}/*.tfrecord")
     ds = files.interleave(tf.data.TFRecordDataset)
     ds = ds.map(parse)
-    ds = ds.map(decode_and_augment)
+    ds = ds.map(decode_and_augment, num_parallel_calls=2)
     ds = ds.shuffle(256)
     ds = ds.batch(32)
-    return ds.repeat()
+    return ds.repeat().prefetch(2)
"""

_OF_CACHE = Interval(1.05, 0.99, 1.12, 8)
_ABOVE = "num_parallel_calls (4) is above cycle_length (2)"
CONFIRMED = (1.35, 1.39, 1.33, 1.37, 1.36, 1.41, 1.34, 1.38, 1.36, 1.35, 1.37, 1.40, 1.33, 1.36, 1.38, 1.35)


def _trial(rewrite: Rewrite, outcome: Outcome, why: str, **more: Any) -> Trial:
    return Trial(Plan("candidate", (rewrite,)), outcome, why, **more)


def _in_training(rewrite: Rewrite, outcome: Outcome, why: str, gain: Interval, seconds: float, *ratios: float) -> Trial:
    return _trial(rewrite, outcome, why, gain=gain, unit="training", ratios=ratios, seconds=seconds)


def photo_trials() -> tuple[Trial, ...]:
    autotuned = replace(PARALLEL, edits=(SetArgument("n3", "num_parallel_calls", AUTOTUNE),))
    four = replace(PARALLEL, edits=(SetArgument("n3", "num_parallel_calls", 4),))
    longer = SetArgument("n1", "cycle_length", 4)
    interleaved = replace(PARALLEL, rule="parallel-interleave", node="n1", edits=(longer,))
    two_calls = SetArgument("n5", "num_parallel_calls", 2)
    fused = _rewrite("map-and-batch-fusion", two_calls, Safety.EXACT, "assembles batches in parallel")
    decoded = Insert("n3", "cache", "cache@n3", {})
    big = _rewrite("cache", decoded, Safety.EXACT, "keeps decoded images", predicted_bytes=12e9)
    why, speedup = "measured anew: 1.36 times as fast", Interval(1.36, 1.34, 1.38, 16)
    anew = _in_training(PARALLEL, Outcome.ACCEPTED, why, speedup, 12.5, *CONFIRMED)
    return (
        Trial(Plan("defaults"), Outcome.REJECTED, "baseline", kind="baseline", seconds=6.1),
        _in_training(
            *(PARALLEL, Outcome.ACCEPTED, "above +3 % at the second look", Interval(1.31, 1.24, 1.38, 16), 14.2),
            *(1.22, 1.35, 1.3, 1.41, 1.28, 1.33, 1.36, 1.25, 1.3, 1.32, 1.29, 1.38, 1.27, 1.34, 1.31, 1.3),
        ),
        _in_training(
            *(autotuned, Outcome.REJECTED, "not proven faster than num_parallel_calls = 2"),
            *(Interval(1.01, 0.95, 1.07, 8), 8.0, 0.93, 1.05, 1.11, 0.98, 1.02, 0.99, 1.04, 0.97),
        ),
        _trial(four, Outcome.SCREENED, "3 % more CPU per element than 2 calls", kind="screening", seconds=1.4),
        _in_training(
            *(PREFETCH, Outcome.ACCEPTED, "above +3 % at the first look", Interval(1.08, 1.05, 1.11, 8), 7.7),
            *(1.06, 1.1, 1.07, 1.09, 1.08, 1.05, 1.12, 1.07),
        ),
        _in_training(
            *(fused, Outcome.REJECTED, "slower", Interval(0.91, 0.87, 0.96, 8), 8.3),
            *(0.9, 0.95, 0.88, 0.93, 0.86, 0.92, 0.91, 0.94),
        ),
        _trial(big, Outcome.REFUSED, "needs 11.2 GiB, 6.1 GiB are granted"),
        _in_training(CACHE, Outcome.UNDECIDED, "needs --allow reorder; measured for the offer", _OF_CACHE, 8.9),
        _trial(interleaved, Outcome.FAILED, f"InvalidArgumentError: {_ABOVE}", seconds=0.4),
        replace(anew, plan=Plan("the patch", (PARALLEL, PREFETCH)), kind="verification"),
    )


def photo_steps(step: float, wait: float) -> StepSeries:
    """Sixty steps, every seventh of them slower, and an epoch that ends after forty: a shuffle buffer is filled."""
    waits = [wait + 0.03 * (number % 7 == 0) + 0.9 * (number in (0, 40)) for number in range(60)]
    return StepSeries(tuple(step - wait + one for one in waits), tuple(waits), epoch_ends=(40,))


_TO_VERDICT = {"capture": 9.4, "profile": 6.2, "verdict": 15.6}


def photos() -> Session:
    """Input-bound, tuned, confirmed, with an offer, a warning and a verified patch."""
    checks = (
        EqualityCheck("values", True, "384 elements bit-equal with the same draws"),
        EqualityCheck("randomness", True, "32 distinct draws per batch, before and after"),
        *(EqualityCheck(name, True) for name in ("epochs", "spec", "cardinality")),
        EqualityCheck("options", None, "the script sets none"),
    )
    plan = Plan("tuned", (PARALLEL, PREFETCH))
    result = DatasetResult(
        *(photo_pipeline(), "training", "Keras 3 fit"),
        consumed_elements=3_840,
        profile=photo_profile(),
        diagnosis=Diagnosis(
            *(Verdict.INPUT_BOUND, "A training step spends 28 % of its time waiting for input.", WAIT, 0.0279, 0.284),
            *("n3", "map(decode_and_augment) takes 83 % of the input's CPU time, in one thread.", 35.2),
            sequential_segments=(("n2", "n3", "n4", "n5", "n6"), ("n0", "n1")),
        ),
        rates={
            "off": Rate(1_070.0, 33.4, 893.0, 0.66, 388.0),
            "defaults": Rate(1_127.0, 35.2, 886.0, 0.61, 398.0),
            "autotune": Rate(2_190.0, 68.4, 905.0, 0.52, 611.0),
            "tuned": Rate(2_291.0, 71.6, 879.0, 0.48, 446.0),
        },
        plan=plan,
        gains={PARALLEL.key: Interval(1.26, 1.22, 1.31, 8), PREFETCH.key: Interval(1.08, 1.05, 1.11, 8)},
        input_speedup=Interval(2.03, 1.97, 2.1, 16),
        input_speedup_over_autotune=Interval(1.05, 1.01, 1.09, 16),
        predicted=Rate(examples_per_second=2_272.0, peak_rss_mib=435.0),
        offered=(OptionalRewrite(CACHE, _OF_CACHE, "--allow reorder", "file order would repeat"),),
        rejected=(
            Rejection("map-and-batch-fusion", "n5", "slower than the script as written", Interval(0.91, 0.87, 0.96, 8)),
            Rejection("cache", "n3", "changes the data: one draw per image for all epochs"),
        ),
        silences=(NoProposal("cache", "n4", "behind a shuffle the order would be the same every epoch"),),
        comparison=Comparison(
            Safety.STATISTICAL, checks, 384, 3, notes=("samples were taken from start, middle and end",)
        ),
        order=Reproducibility(True, False, True, "two calls of the random function run at the same time"),
        step_series={"defaults": photo_steps(0.0981, 0.0279), "tuned": photo_steps(0.0723, 0.0021)},
        tuned=apply_edits(photo_pipeline(), plan.edits),
    )
    untuned = Pipeline(photo_pipeline().nodes[:6], name="validation_ds")
    validation = DatasetResult(untuned, "validation", "Keras 3 fit (validation_data)", consumed_elements=48)
    leak = "validation takes its elements behind a shuffle, so they change sides between epochs"
    equal = "Run in a separate process: same operators as the plan, 384 elements equal."
    speedup, over_autotune = Interval(1.36, 1.34, 1.38, 16), Interval(1.05, 1.02, 1.08, 16)
    return Session(
        version="0.1.0",
        command=COMMAND,
        machine=MACHINE,
        datasets=(result, validation),
        trials=photo_trials(),
        training=TrainingResult(*(98.1, 72.3, 70.2, 75.9, speedup), speedup_over_autotune=over_autotune),
        findings=(Finding("validation-leak", leak, "put take and skip before shuffle", SCRIPT, 40),),
        patch=PatchResult(DIFF, (INPUT,), covered=(PARALLEL.key, PREFETCH.key), verified=True, verification=equal),
        side_effects={"saves_suppressed": 3, "variables_restored": 14},
        seconds={**_TO_VERDICT, "trials": 51.7, "verification": 12.5, "total": 93.1},
        notes=("The search ended because every candidate was decided.",),
        status="done",
        complete=True,
    )


MODULE = '''"""Made by pipetune: the tuned training data for tf.distribute."""

import tensorflow as tf


def dataset_fn(input_context):
    files = tf.data.Dataset.list_files("data/*.tfrecord", shuffle=False)
    files = files.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    ...
'''


def shared_files(workers: int) -> Coverage:
    """Sixteen files of 120 photos, by file, in batches of 60."""
    shares = []
    for worker in range(workers):
        cells = tuple(120 if file % workers == worker else 0 for file in range(16))
        size = 20_000 * sum(cells)
        batches = sum(cells) // 60
        shares.append(WorkerShare(sum(cells), batches, 0, sum(cells), cells, read_bytes=size, used_bytes=size))
    counts = (1_920, 0, 1_920, 0, 0)  # elements: all, never, once, twice, more often
    cells = (120,) * 16
    return Coverage(tuple(shares), "elements", ElementIdentity.INDEX, *counts, cells=cells, by_file=True, epochs=2)


def distributed() -> Session:
    """The photos, with a distributed form beside the patch."""
    checks = tuple(ModuleCheck(n, elements=1_920, missing=0, duplicated=0, equal_batches=n != 3) for n in (2, 3, 4))
    form = DistributedResult(
        *("multiworker", MODULE, "reports/train/distributed_input.py"),
        *(("files are sharded before they are read: 16 files for at most 4 workers",), checks),
        coverage=tuple(shared_files(n) for n in (2, 3, 4)),
    )
    return replace(photos(), distributed=form)


def _without_plan(session: Session, **changes: object) -> Session:
    """The session with nothing found: no plan, no patch, no tuned figures."""
    rates = {name: rate for name, rate in session.datasets[0].rates.items() if name != "tuned"}
    tuned = ("plan", "tuned", "input_speedup", "input_speedup_over_autotune", "predicted", "comparison", "order")
    bare = with_main(session, **dict.fromkeys(tuned), gains={}, rates=rates, offered=())
    return replace(with_main(bare, **changes), patch=None, training=None, findings=(), notes=())


def busy() -> Session:
    """The training step is the bottleneck: no trial, no patch."""
    share = Interval(0.012, 0.008, 0.017, 24, "t, 95 %")
    said = "A training step spends 1.2 % of its time waiting for input."
    session = _without_plan(
        photos(),
        profile=with_part(photo_profile(), "consumer", real_seconds=0.2104, bound_seconds=0.2081, wait_share=share),
        diagnosis=Diagnosis(Verdict.NOT_INPUT_BOUND, said, share, wait_seconds=0.0025, most_saved_share=0.012),
        rates={"defaults": Rate(1_127.0, 35.2, 886.0, 0.61, 398.0)},
        rejected=(),
        silences=(),
    )
    training = TrainingResult(defaults_step_ms=210.4, bound_step_ms=208.1, why="no plan was tried")
    seconds = {"capture": 8.0, "profile": 6.0, "verdict": 14.0, "total": 14.6}
    session = with_part(session, "command", options=Settings(out="/home/ada/photos/reports/busy"))
    return replace(session, trials=(), training=training, seconds=seconds)


def nothing() -> Session:
    """Input-bound, and no rewrite is proven faster."""
    session = _without_plan(photos())
    kept = tuple(trial for trial in session.trials if trial.outcome in {Outcome.REJECTED, Outcome.SCREENED})
    return replace(session, trials=kept, training=TrainingResult(98.1, None, 70.2, None, None, "no plan was confirmed"))


def undetermined() -> Session:
    """The interval of the wait lies on both sides of the threshold, and the time ended."""
    share = Interval(0.11, 0.02, 0.24, 6, "t, 95 %")
    said = "The wait per step lies between 2.0 % and 24 %: the machine is too unsteady to tell"
    diagnosis = Diagnosis(Verdict.UNDETERMINED, said, share, most_saved_share=0.24)
    session = _without_plan(photos(), diagnosis=diagnosis)
    kept = tuple(trial for trial in session.trials if trial.outcome is Outcome.UNDECIDED)
    return replace(session, trials=kept)


def likely() -> Session:
    """Nothing is proven, and a plan is probably faster."""
    found = photos()
    plan, gain = found.datasets[0].plan, Interval(1.31, 1.08, 1.57, 4, "cost model and windows, 80 %")
    assert plan is not None
    why = "4 pairs of windows do not prove a gain of 3 %, and the budget of 60 s was over."
    return with_main(undetermined(), candidate=Candidate(plan, gain, 0.92, "training", why, patch=found.patch))


def interrupted() -> Session:
    """Ctrl-C after the verdict, before any confirmation."""
    session = replace(_without_plan(photos(), rejected=()), status="interrupted", status_detail="Ctrl-C")
    return replace(session, complete=False, trials=session.trials[:3], seconds={**_TO_VERDICT, "total": 22.0})


TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 12, in <module>
    ds = input_data("photos")
  File "photo_input.py", line 31, in input_data
    raise FileNotFoundError(folder)
FileNotFoundError: photos
"""


def failed() -> Session:
    """The script raised before it made a dataset."""
    return Session("0.1.0", COMMAND, MACHINE, status="failed", status_detail=TRACEBACK, complete=True)


def no_dataset() -> Session:
    return replace(failed(), status="no-dataset", status_detail="Two datasets were made, none was iterated.")


def input_only() -> Session:
    """Trained inside a tf.function: the input was tuned, the training step could not be measured."""
    consumer = ConsumerProfile("function", input_seconds=0.0284, why="the iterator is bound inside a tf.function")
    diagnosis = Diagnosis(Verdict.UNDETERMINED, "Inside a tf.function the wait cannot be seen.")
    session = with_main(photos(), profile=replace(photo_profile(), consumer=consumer), diagnosis=diagnosis)
    training = TrainingResult(why="inside a tf.function nothing can be switched")
    return replace(session, datasets=session.datasets[:1], training=training, findings=())


def bare() -> Session:
    """What `pipetune.tune` could leave when everything is missing."""
    return Session("0.1.0", Command())


def confidential() -> Session:
    """As it is saved: the session keeps nothing of the user's."""
    return redact(distributed())


def unverified() -> Session:
    """A plan that the search has found faster, and a patch that is not."""
    return without_patch(photos(), "It is slower: 0.54 times as fast (0.50 to 0.58, 6 pairs).")


def killed() -> Session:
    """The measuring process died for good after the verdict."""
    return replace(interrupted(), status="failed", status_detail="The measuring process was killed (signal 9).")


HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(2)>",
    "</script><script>alert(3)</script>",
    "{{ 7 * 7 }}{% raw %}",
    "\x1b[31mred\x1b[0m\u202egnp.exe",
    "[bold red]not markup[/bold red] [link=javascript:alert(4)]x[/link]",
    "naïve-图像-🧪-" + "very_long_name" * 20,
    "|pipe| `tick` *star* _under_ # head\n- item",
)


def hostile() -> Session:
    """Every text a script controls carries something that must stay text."""
    base = distributed()
    script, quote, closing, template, escape, markup, long, mark = HOSTILE
    result = base.datasets[0]
    nodes = tuple(
        replace(
            node,
            op="opaque",
            label=HOSTILE[index % len(HOSTILE)],
            function=replace(_DECODE, name=HOSTILE[(index + 1) % len(HOSTILE)]),
            location=place(index + 1, quote, file=f"/home/{HOSTILE[(index + 2) % len(HOSTILE)]}.py"),
            arguments={"buffer_size": HOSTILE[(index + 3) % len(HOSTILE)]},
        )
        for index, node in enumerate(result.pipeline.nodes)
    )
    rewrite = replace(PARALLEL, rule=script, summary=closing, notes=(quote, long))
    rewrite = replace(rewrite, edits=(SetArgument("n3", quote, mark),))
    gain = Interval(1.2, 1.1, 1.3, 8, script)
    checks = (EqualityCheck(script, False, closing), EqualityCheck("values", None, escape))
    hostile_result = replace(
        result,
        pipeline=replace(result.pipeline, nodes=nodes, name=script),
        role=quote,
        consumer=closing,
        plan=Plan(script, (rewrite, replace(PREFETCH, rule=long))),
        gains={rewrite.key: gain},
        tuned=None,
        diagnosis=replace(result.diagnosis, sentence=closing, bottleneck_sentence=escape),  # type: ignore[type-var]
        rejected=(Rejection(template, "n3", script, gain), Rejection(long, long, long)),
        offered=(OptionalRewrite(replace(CACHE, rule=mark), gain, f"--allow {quote}", markup),),
        silences=(NoProposal(markup, "n2", closing),),
        comparison=Comparison(Safety.EXACT, checks, 3, 3, (long,)),
        order=Reproducibility(True, False, False, markup),
    )
    trials = (
        *(Trial(Plan(name), Outcome.FAILED, name, kind=script, unit=quote) for name in HOSTILE),
        Trial(Plan("x", (rewrite,)), Outcome.ACCEPTED, closing, gain, ratios=(1.1, 1.3), kind="confirmation"),
    )
    findings = tuple(Finding(name, name, name, f"/{name}", 3) for name in HOSTILE)
    return replace(
        base,
        command=replace(COMMAND, script=f"/home/ada/{script}.py", directory="/home/ada", arguments=HOSTILE),
        datasets=(hostile_result, replace(base.datasets[1], role=script, consumer=long)),
        trials=trials,
        machine=replace(MACHINE, processor=script, system=closing, devices=HOSTILE),
        findings=findings,
        advice=findings,
        patch=PatchResult(
            *("\n".join(f"+{name}" for name in HOSTILE), (script,), {}, (script,)),
            *((Rejection(script, "n3", closing),), (), False, quote),
        ),
        distributed=DistributedResult(script, closing, long, HOSTILE, (ModuleCheck(2, missing=1, why=script),)),
        side_effects={script: 2, long: 1},
        seconds={script: 1.0, "total": 2.0},
        status_detail=closing,
    )


ALL = {
    function.__name__: function
    for function in (
        photos, distributed, busy, nothing, undetermined, interrupted, failed, no_dataset, input_only, bare,
        confidential, unverified, killed, hostile, likely,
    )
}  # fmt: skip
