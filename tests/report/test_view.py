"""Every number and sentence that is shown, computed once."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pipetune.core.command import Command
from pipetune.core.distribution import ModuleCheck
from pipetune.core.edits import Consent, Insert, Move, Plan, Remove, SetArgument, SetOption, SplitFunction
from pipetune.core.functions import FunctionSplit, SplitPosition
from pipetune.core.machine import CpuLoad
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Diagnosis, Verdict
from pipetune.core.results import Interval, Outcome, Trial
from pipetune.core.session import (
    DatasetResult,
    DistributedResult,
    PatchResult,
    Rejection,
    RejectionReason,
    Session,
    TrainingResult,
)
from pipetune.report.changes import edit_words
from pipetune.report.operators import argument_list
from pipetune.report.terminal import summary_text
from pipetune.report.view import make_view
from tests.report import sessions as samples


def with_speedup(speedup: Interval | None, **more: object) -> Session:
    session = samples.photos()
    return replace(session, training=replace(session.training, speedup=speedup, **more))


@pytest.mark.parametrize(
    ("name", "kind", "big"),
    [
        ("photos", "faster", "1.36x"),
        ("distributed", "faster", "1.36x"),
        ("busy", "not-input-bound", "Nothing to gain"),
        ("nothing", "nothing", "Nothing faster"),
        ("undetermined", "undetermined", "Undetermined"),
        ("interrupted", "interrupted", "Interrupted"),
        ("failed", "failed", "Failed"),
        ("killed", "failed", "Failed"),
        ("no_dataset", "no-dataset", "No dataset"),
        ("input_only", "input-only", "2.03x"),
        ("bare", "running", "Not finished"),
        ("confidential", "faster", "1.36x"),
    ],
)
def test_headline(name, kind, big):
    headline = make_view(samples.ALL[name]()).headline
    assert (headline.kind, headline.big) == (kind, big)
    assert headline.sentence
    assert headline.speedup.known or headline.speedup.why


def test_a_plan_that_was_faster_and_not_confirmed_is_no_trial_that_failed():
    session = samples.nothing()
    accepted = replace(session.trials[-1], outcome=Outcome.ACCEPTED)
    headline = make_view(replace(session, trials=(accepted, *session.trials))).headline
    assert headline.big == "Not confirmed"
    assert "not confirmed by fresh measurements" in headline.sentence and "none is proven" not in headline.sentence
    why = "The training step could not be measured: The script's loop ended"
    unmeasured = replace(session, trials=(accepted, *session.trials), training=TrainingResult(why=why))
    assert f"{why}." in make_view(unmeasured).headline.sentence


def test_a_rate_of_a_plan_that_was_not_confirmed_stands_beside_no_confirmed_ones():
    session = samples.photos()
    main = replace(session.datasets[0], plan=None)
    found = make_view(replace(session, datasets=(main, *session.datasets[1:]))).main
    rung = next(rung for rung in found.ladder.rungs if rung.name == "tuned")
    assert not rung.examples.known and rung.examples.why == "no plan was confirmed"


@pytest.mark.parametrize(
    ("interval", "kind"),
    [
        (Interval(1.2, 1.1, 1.3, 16), "faster"),
        (Interval(1.02, 0.98, 1.06, 16), "unproven"),
        (Interval(0.9, 0.85, 0.95, 16), "slower"),
    ],
)
def test_a_speedup_is_called_one_only_when_its_interval_is_above_one(interval, kind):
    headline = make_view(with_speedup(interval)).headline
    assert headline.kind == kind
    if kind != "faster":
        assert "as fast" not in headline.sentence


def test_a_cache_speeds_up_from_the_second_epoch_on():
    session = samples.photos()
    main, without = session.datasets[0], make_view(session).headline
    cache = Insert(main.pipeline.nodes[1].id, "cache", "cached", {"filename": ""})
    rewrites = (replace(main.plan.rewrites[0], edits=(cache,)), *main.plan.rewrites[1:])
    plan = replace(main.plan, rewrites=rewrites)
    patch = replace(session.patch, covered=tuple(one.key for one in rewrites))
    headline = make_view(replace(session, datasets=(replace(main, plan=plan),), patch=patch)).headline
    assert headline.sentence.startswith("Training runs 1.36x as fast from the second epoch on: a step takes")
    assert headline.details[-1] == "The first epoch gains nothing: it fills the cache."
    assert "epoch" not in without.sentence


def test_a_confirmed_speedup_survives_an_interruption():
    headline = make_view(replace(samples.photos(), status="interrupted")).headline
    assert (headline.kind, headline.big) == ("faster", "1.36x")
    assert any("interrupted" in detail for detail in headline.details)


def test_nothing_to_gain_says_how_much_there_was_to_gain():
    sentence = make_view(samples.nothing()).headline.sentence
    assert "3 trials" in sentence
    assert "at most 28 % of a step" in sentence


def test_profile_without_trials_recommends_nothing():
    session = replace(samples.nothing(), trials=())
    headline = make_view(session).headline
    assert (headline.kind, headline.big) == ("profiled", "Input-bound")
    assert "nothing is recommended" in headline.details[0]


def test_a_withheld_patch_is_said_first_and_nothing_is_said_to_be_faster():
    session = samples.unverified()
    view = make_view(session)
    why = "It is slower: 0.54 times as fast (0.50 to 0.58, 6 pairs)."
    assert (view.headline.kind, view.headline.speedup.known) == ("withheld", False)
    assert why in view.headline.sentence
    assert view.patch.sentence == f"No patch. {why}"
    assert view.patch.not_covered == (("parallel-map at map", why), ("prefetch at repeat", why))
    assert view.main is not None and not view.main.changes.plan and not view.main.ladder.speedup.known
    assert [step.label.split()[1] for step in view.next_steps] == ["analyze", "analyze"]
    told = summary_text(session)
    claims = [line for line in told.splitlines() if re.search(r"1\.[1-9]\d*x|as fast", line)]
    assert [line.strip() for line in claims if "0.54" not in line] == []


def test_verdict_shows_wait_bottleneck_and_the_most_to_save():
    verdict = make_view(samples.photos()).verdict
    assert verdict.word == "input-bound"
    assert verdict.wait.text == "28 % (26 to 31 %)"
    assert (verdict.wait_per_step.text, verdict.most_saved.text) == ("27.9 ms", "28 %")
    assert verdict.bottleneck.startswith("map(decode_and_augment)")


def test_a_verdict_without_words_gets_its_own():
    session = samples.busy()
    result = replace(session.datasets[0], diagnosis=Diagnosis(Verdict.BALANCED, ""))
    assert make_view(replace(session, datasets=(result,))).verdict.sentence == "The input costs training a little."


def test_ladder_has_every_rung_and_says_what_is_missing():
    main = make_view(samples.busy()).main
    known = {rung.name: rung.examples.known for rung in main.ladder.rungs}
    assert known == {"off": False, "defaults": True, "autotune": False, "tuned": False}
    assert {rung.name: rung.examples.why for rung in main.ladder.rungs}["tuned"] == "no plan was confirmed"
    assert main.ladder.bound.value == pytest.approx(32 / 0.2081)


def test_bound_and_model_bound_are_in_examples():
    ladder = make_view(samples.photos()).main.ladder
    assert ladder.bound.value == pytest.approx(32 / 0.0702)
    assert ladder.model_bound.value == pytest.approx(32 * 35.2)


def test_steps_carry_the_reason_when_missing():
    steps = {rung.name: rung.step for rung in make_view(samples.nothing()).steps}
    assert steps["defaults"].text == "98.1 ms"
    assert (steps["tuned"].known, steps["tuned"].why) == (False, "no plan was confirmed")


def test_operator_shares_are_of_the_whole_input():
    table = make_view(samples.photos()).main.operators
    assert sum(row.share.value for row in table.rows) == pytest.approx(1.0)
    assert sum(share.value for _, share in table.stages) == pytest.approx(1.0)
    decode = table.rows[3]
    assert (decode.title, decode.function, decode.where) == ("map", "decode_and_augment", "photo_input.py:24")
    assert decode.cpu.value == pytest.approx(731.0)
    assert decode.share.value == pytest.approx(
        731e-6 * 32 / (32 * (31 + 22 + 731 + 1.6) * 1e-6 + 0.26 * 4e-6 + 2.9e-3 + 0.9e-6)
    )
    assert decode.bottleneck and decode.random and not decode.python
    assert table.rows[4].buffered.text == "147 MiB"
    assert [row.stage_letter for row in table.rows] == ["E", "E", "T", "T", "T", "L", "L"]
    assert table.rows[1].remarks == (
        "inside: TFRecordDataset",
        "of its time, by the runtime's model: TFRecord 86 %, itself 14 %",
    )
    assert decode.remarks == ("this line made 2 datasets",)
    assert table.threads[1] == "list_files and interleave run one after another in one thread."


def test_an_operator_the_runtime_does_not_show_has_no_invented_cost():
    session = samples.photos()
    result = session.datasets[0]
    fewer = replace(result.profile, operators=result.profile.operators[:2])
    rows = make_view(replace(session, datasets=(replace(result, profile=fewer),))).main.operators.rows
    assert len(rows) == 7
    assert not rows[3].cpu.known and not rows[3].share.known
    assert rows[3].cpu.why == "the runtime shows no such operator"
    assert rows[3].stage == ""
    assert rows[3].random  # known from the function itself


def test_a_dataset_without_a_profile_lists_its_operators():
    result = DatasetResult(samples.photo_pipeline(), "training", diagnosis=Diagnosis(Verdict.UNDETERMINED, "x"))
    main = make_view(Session("0", Command(), datasets=(result,))).main
    assert main.operators.rows[0].title == "list_files"
    assert main.operators.why == "this dataset was not profiled"
    assert main.timeline.why == "the consumer was not profiled"


def timeline_of(real: float, bound: float, alone: float, **more: object):
    session = samples.photos()
    result = session.datasets[0]
    consumer = replace(result.profile.consumer, real_seconds=real, bound_seconds=bound, input_seconds=alone)
    result = replace(result, profile=replace(result.profile, consumer=consumer), **more)
    return make_view(replace(session, datasets=(result,), training=None)).main.timeline


@pytest.mark.mission("A1.sum-maximum")
def test_timeline_predicts_sum_and_maximum():
    rows = {row.name: row for row in timeline_of(0.080, 0.060, 0.030).rows}
    assert rows["sum"].period_ms == pytest.approx(90)
    assert rows["maximum"].period_ms == pytest.approx(60)
    written = rows["defaults"]
    assert (written.overlap_ms, written.wait_ms) == (pytest.approx(10), pytest.approx(20))
    assert (rows["sum"].overlap_ms, rows["sum"].wait_ms) == (pytest.approx(0), pytest.approx(30))
    assert (rows["maximum"].overlap_ms, rows["maximum"].wait_ms) == (pytest.approx(30), pytest.approx(0))
    assert not rows["sum"].measured and written.measured


def test_timeline_says_what_neither_part_explains():
    timeline = timeline_of(0.120, 0.060, 0.030)
    written = next(row for row in timeline.rows if row.name == "defaults")
    assert written.extra_ms == pytest.approx(30)
    assert written.wait_ms == pytest.approx(30)
    assert "30.0 ms longer" in timeline.notes[0]


def test_timeline_of_a_step_shorter_than_its_parts_says_so():
    timeline = timeline_of(0.050, 0.060, 0.030)
    assert "shorter than its longer part" in timeline.notes[0]
    assert all(row.wait_ms >= 0 and row.model_ms <= row.period_ms for row in timeline.rows)


def test_tuned_row_needs_the_tuned_input_rate():
    assert [row.name for row in make_view(samples.photos()).main.timeline.rows] == [
        "sum",
        "defaults",
        "tuned",
        "maximum",
    ]
    assert [row.name for row in make_view(samples.busy()).main.timeline.rows] == [
        "sum",
        "defaults",
        "maximum",
    ]
    assert make_view(samples.input_only()).main.timeline.why == "the iterator is bound inside a tf.function"


def test_rewrites_carry_place_safety_gain_and_consent():
    changes = make_view(samples.photos()).main.changes
    first, second = changes.plan
    assert (first.rule, first.where, first.safety) == ("parallel-map", "photo_input.py:24", "statistical")
    assert (first.gain.text, first.reproducible) == ("1.26x (1.22 to 1.31)", False)
    assert (second.where, second.memory) == ("photo_input.py:27", "Adds 36.8 MiB")
    assert changes.plan_safety == "statistical"
    (offer,) = changes.offered
    assert (offer.consent, offer.gain.text) == ("--allow reorder", "1.05x (0.99 to 1.12)")
    assert [row.rule for row in changes.rejected] == ["map-and-batch-fusion", "cache"]
    assert not changes.rejected[1].gain.known
    assert changes.silences[0].operator == "shuffle"


def test_rejections_for_one_reason_are_one_row():
    session = samples.photos()
    untried = Rejection("prefetch", "n6", "not tried: no time was left")
    result = replace(session.datasets[0], rejected=(untried, *session.datasets[0].rejected, untried))
    rows = make_view(replace(session, datasets=(result,))).main.changes.rejected
    assert [(row.rule, row.times) for row in rows] == [
        ("prefetch", 2),
        ("map-and-batch-fusion", 1),
        ("cache", 1),
    ]


def test_arguments_that_say_something_are_shown():
    said = {"buffer_size": 8, "reshuffle_each_iteration": False, "deterministic": False, "drop_remainder": True}
    shown = "buffer_size=8, drop_remainder=True, deterministic=False, reshuffle_each_iteration=False"
    assert argument_list(said) == shown
    assert argument_list({"reshuffle_each_iteration": True, "drop_remainder": False, "seed": 3}) == ""


def test_a_rewrite_without_ablation_says_so():
    session = samples.photos()
    view = make_view(replace(session, datasets=(replace(session.datasets[0], gains={}),)))
    assert view.main.changes.plan[0].gain.why == "its part of the gain was not measured"


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (SetArgument("n3", "num_parallel_calls", -1), "map: num_parallel_calls=AUTOTUNE"),
        (SetArgument("n6", "count", -1), "repeat: count=infinite"),
        (SetArgument("n4", "buffer_size", True), "shuffle: buffer_size=True"),
        (Insert("n6", "prefetch", "p", {"buffer_size": 2}), "insert prefetch(buffer_size=2) after repeat"),
        (Remove("n4"), "remove shuffle"),
        (Move("n4", "n2"), "move shuffle behind map"),
        (SetOption("deterministic", False), "options: deterministic=False"),
        (SetArgument("prefetch@n9", "buffer_size", 4), "prefetch: buffer_size=4"),
        (
            SplitFunction("n3", FunctionSplit(SplitPosition.BEFORE_DRAWS)),
            f"map: cut its function in two {SplitPosition.BEFORE_DRAWS}",
        ),
        (Insert("head@n3", "cache", "c", {"filename": ""}), "insert cache() after the first part of map"),
    ],
)
def test_edit_words(edit, text):
    assert edit_words(edit, samples.photo_pipeline()) == text


def test_every_trial_is_shown_the_verification_first():
    view = make_view(samples.photos())
    rows = view.attempts.rows
    assert len(rows) == len(samples.photo_trials())
    assert (rows[0].kind, rows[0].label) == ("verification", "parallel-map + prefetch")
    assert {row.outcome for row in rows} >= {
        "accepted",
        "rejected",
        "screened",
        "refused",
        "failed",
        "undecided",
    }
    assert rows[1].outcome == "baseline"
    assert "9 trials: 3 accepted, 2 rejected" in view.attempts.sentence
    assert "seed 0" in view.attempts.sentence
    labels = [row.label for row in rows]
    assert "parallel-map (map: num_parallel_calls=AUTOTUNE)" in labels
    assert rows[0].ratios == samples.CONFIRMED


def test_a_failed_baseline_stays_failed():
    trial = Trial(Plan("autotune"), Outcome.FAILED, "killed", kind="baseline")
    assert make_view(replace(samples.photos(), trials=(trial,))).attempts.rows[0].outcome == "failed"


def test_equality_order_and_patch():
    view = make_view(samples.photos())
    equality = view.main.equality
    assert equality.equal is True
    assert [check.outcome for check in equality.checks] == ["equal"] * 5 + ["not done"]
    assert "384 elements over 3 epochs" in equality.sentence
    assert (view.main.order.before, view.main.order.after) == ("yes", "no")
    assert view.patch.verified is True
    assert [kind for kind, _ in view.patch.lines].count("add") == 2
    assert view.patch.lines[0][0] == "note"
    hostile = make_view(samples.hostile()).main.equality
    assert hostile.equal is False
    assert hostile.sentence.startswith("The data differ: ")


def test_nothing_to_change_has_no_patch():
    view = make_view(samples.busy())
    assert view.patch.sentence.endswith("training back, there is nothing to change.")
    undecided = make_view(samples.undetermined())
    assert undecided.patch.sentence == (
        "No patch: the time was over before it was decided whether a rewrite is faster."
    )
    assert view.main.equality.sentence == "Not compared: there is no tuned pipeline to compare."


def test_the_time_is_blamed_only_where_it_was_the_reason():
    """A run on an unsteady machine whose trials were all decided had ended as "too short to decide"."""
    session = samples.undetermined()
    assert make_view(session).headline.sentence.startswith("The time for trials ended with 1 of 1 trial undecided.")
    rejected = tuple(replace(trial, outcome=Outcome.REJECTED, why="slower") for trial in session.trials)
    decided = make_view(replace(session, trials=rejected))
    assert decided.headline.sentence.startswith("1 trial, and none is proven faster")
    assert [step.label for step in decided.next_steps if "--budget" in step.label] == []
    open_one = Rejection("cache", "n2", "the time was up before it was tried", reason=RejectionReason.NO_TIME)
    left = replace(session, trials=rejected, datasets=(replace(session.datasets[0], rejected=(open_one,)),))
    view = make_view(left)
    assert view.headline.sentence.startswith("The time for trials ended with 1 rewrite untried.")
    assert any("--budget" in step.label for step in view.next_steps)
    assert "there is nothing to change" not in view.patch.sentence


def test_a_plan_that_cannot_be_written_says_why():
    patch = PatchResult(not_covered=samples.unverified().patch.not_covered)
    view = make_view(replace(samples.photos(), patch=patch))
    assert view.patch.sentence == "No patch: nothing of the plan can be written in the source."
    assert view.next_steps[0].label == "pipetune run --plan reports/train/plan.json train.py --epochs 3"


def test_distributed_coverage():
    form = make_view(samples.distributed()).distributed
    assert form.sentence.startswith("Every element once per epoch with 2, 3 and 4 workers")
    assert [row.covered for row in form.coverage] == [True, True, True]
    assert [row.equal_batches for row in form.coverage] == ["yes", "no", "yes"]
    broken = make_view(samples.hostile()).distributed
    assert broken.coverage[0].missing == "1"
    assert broken.sentence.startswith("Not every element")


def test_a_distributed_form_that_was_not_written_says_why_first():
    refused = DistributedResult("tpu", "", "", notes=("map at train.py:9 runs Python code.", "Say it otherwise."))
    form = make_view(replace(samples.photos(), distributed=refused)).distributed
    assert form.sentence == "Not written. Map at train.py:9 runs Python code."
    assert form.notes == ("Say it otherwise.",)


def test_a_distributed_form_of_which_each_worker_reads_everything():
    checks = (ModuleCheck(2, "everything", elements=24, missing=0, duplicated=0),)
    found = DistributedResult("service", "x = 1", "out/distributed.py", checks=checks, companions=("out/serve.py",))
    form = make_view(replace(samples.photos(), distributed=found)).distributed
    assert form.sentence.startswith("Every element once per epoch from each of 2 workers")
    assert form.notes == ("Beside it stand serve.py.",)
    uncounted = replace(found, checks=(ModuleCheck(2),))
    form = make_view(replace(samples.photos(), distributed=uncounted)).distributed
    assert form.sentence.startswith("Which elements come was not counted")


def test_memory_measured_predicted_and_held():
    memory = make_view(samples.photos()).main.memory
    assert [figure.text for figure in (memory.before, memory.after, memory.predicted, memory.limit)] == [
        "398 MiB",
        "446 MiB",
        "435 MiB",
        "8.00 GiB",
    ]
    assert [(row.operator, row.elements.text, row.size.text, row.predicted.text) for row in memory.buffers] == [
        ("interleave", "not measured", "not measured", "512 KiB"),
        ("shuffle", "256", "147 MiB", "147 MiB"),
        ("batch", "not measured", "not measured", "18.4 MiB"),
    ]
    assert memory.before_predicted.text == "166 MiB"
    assert (memory.before_error, memory.error) == ("58 % below what was measured", "2.5 % below what was measured")
    assert memory.growth == ""


def test_machine_granted_beside_host_and_what_was_suppressed():
    view = make_view(samples.photos())
    facts = {fact.label: f"{fact.text} {fact.note}" for fact in view.machine}
    assert facts["Cores granted"] == "2 host 64, affinity 2, quota 2"
    assert "host 512 GiB" in facts["Memory granted"]
    assert [fact.text for fact in view.suppressed] == ["3", "14"]
    assert [fact.label for fact in view.seconds][-1] == "total"
    assert make_view(samples.bare()).machine[0].text == "not recorded"


def test_next_steps():
    assert [step.label for step in make_view(samples.photos()).next_steps] == [
        "pipetune apply reports/train",
        "pipetune apply --diff reports/train",
        "pipetune analyze --allow reorder train.py --epochs 3",
    ]
    assert [step.label for step in make_view(samples.busy()).next_steps] == [
        "pipetune analyze --force train.py --epochs 3"
    ]
    assert [step.label for step in make_view(samples.undetermined()).next_steps] == [
        "pipetune analyze --budget 180 train.py --epochs 3"
    ]


@pytest.mark.parametrize(
    ("options", "words", "log"),
    [
        ({"workers": 1, "parameter_servers": 0}, "", "script.log"),
        ({"workers": 2}, " --workers 2", "worker-0.log"),
        ({"workers": 2, "parameter_servers": 1}, " --workers 2 --parameter-servers 1", "chief.log"),
        ({"distribute": "service", "device": "auto", "dataset": None}, " --distribute service", "script.log"),
        ({"step_time_seconds": 0.0085, "cold": True}, " --step-time 8.5 --cold", "script.log"),
        ({"memory_limit_bytes": 1 << 30, "steps": 40}, " --steps 40 --memory-limit 1073741824", "script.log"),
        (
            {"allow": frozenset({Consent.STATISTICAL}), "without": frozenset("ab")},
            " --allow statistical --without a,b",
            "script.log",
        ),
    ],
)
def test_next_steps_ask_for_what_was_asked_for(options: dict[str, int], words: str, log: str) -> None:
    session = samples.photos()
    again = replace(session, command=replace(session.command, options=replace(session.command.options, **options)))
    assert any(step.label.startswith(f"pipetune analyze{words} --allow") for step in make_view(again).next_steps)
    failed = make_view(replace(again, status="failed")).next_steps
    assert any(step.label.startswith("less ") and step.label.endswith(f"/{log}") for step in failed)


def test_what_gained_nothing_is_not_suggested():
    session = samples.photos()
    slower = replace(session.datasets[0].offered[0], gain=Interval(0.9, 0.8, 1.0, 8))
    view = make_view(replace(session, datasets=(replace(session.datasets[0], offered=(slower,)),)))
    assert not [step for step in view.next_steps if "--allow" in step.label]
    assert view.main.changes.offered  # shown all the same


def test_before_confirmation_the_step_comes_from_the_profile():
    steps = {rung.name: rung.step for rung in make_view(samples.interrupted()).steps}
    assert (steps["defaults"].text, steps["bound"].text) == ("98.1 ms", "70.2 ms")
    assert not steps["tuned"].known


def test_sentences_name_files_as_the_tables_do():
    session = samples.photos()
    diagnosis = replace(session.datasets[0].diagnosis, bottleneck_sentence=f"Map ({samples.INPUT}:24) binds")
    view = make_view(replace(session, datasets=(replace(session.datasets[0], diagnosis=diagnosis),)))
    assert view.verdict.bottleneck == "Map (photo_input.py:24) binds."


def test_a_module_is_called_as_one():
    session = replace(samples.photos(), command=Command(module="photos.train", arguments=("-v",)))
    view = make_view(session)
    assert view.title == "photos.train"
    assert view.command == "pipetune analyze -m photos.train -v"


def test_names_outside_the_folder_stay_whole():
    session = samples.photos()
    view = make_view(replace(session, command=replace(samples.COMMAND, directory="/somewhere/else")))
    assert view.main.operators.rows[0].where == f"{samples.INPUT}:21"


def test_two_studied_datasets_are_both_shown():
    session = samples.photos()
    second = replace(session.datasets[0], pipeline=session.datasets[0].pipeline.rename("other"))
    view = make_view(replace(session, datasets=(session.datasets[0], second)))
    assert [dataset.name for dataset in view.studied] == ["train_ds", "other"]
    # The training step belongs to the first alone.
    assert "tuned" not in {row.name for row in view.studied[1].timeline.rows}


def test_an_empty_pipeline_does_not_break_the_view():
    result = DatasetResult(Pipeline(()), "training", diagnosis=Diagnosis(Verdict.UNDETERMINED, ""))
    view = make_view(Session("0", Command(), datasets=(result,), training=TrainingResult()))
    assert view.main.where == ""


def test_a_busy_machine_is_said_first() -> None:
    quiet = replace(samples.photos(), load=CpuLoad(60.0, 30, 2, own_share=0.6, others_share=0.05))
    busy = replace(quiet, load=CpuLoad(60.0, 30, 2, own_share=0.6, others_share=0.31))
    assert not any("other processes" in line for line in make_view(quiet).headline.details)
    assert make_view(busy).headline.details[0].startswith("While it was measured, other processes used 31 % of the 2")
