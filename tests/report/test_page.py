"""What a report says: the answer, the patch, what to do next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.edits import Consent, Insert, Plan, Safety
from pipetune.core.machine import CpuLoad
from pipetune.core.measurement import Interval, Rate
from pipetune.core.pipeline import Node, Pipeline, SourceLocation
from pipetune.core.profile import EPOCH_PAUSE, VALIDATION_INPUT, Diagnosis, Finding, Verdict
from pipetune.core.results import Comparison, DatasetCost, EqualityCheck, Outcome, RejectionReason
from pipetune.core.session import DatasetResult, PatchResult, Rejection, Session, TrainingResult
from pipetune.core.session_file import redact
from pipetune.core.settings import Command
from pipetune.report import words
from pipetune.report.answer import headline
from pipetune.report.blocks import Checks, Commands, Diff, Facts
from pipetune.report.page import page
from pipetune.report.patch import compared_extent, why_no_patch
from pipetune.report.places import Places
from pipetune.report.step_times import step_times
from tests.report import reading
from tests.report import sessions as samples
from tests.report.reading import blocks, claim, ids, sentences, summary_line, summary_text, told, with_main, with_part
from tests.words import pipeline


def commands(session: Session) -> list[str]:
    return [one.label for block in blocks(session, Commands, "answer") for one in block.commands]


def with_options(session: Session, **options: Any) -> Session:
    return with_part(session, "command", options=replace(session.command.options, **options))


def all_rejected(session: Session) -> Session:
    return replace(
        session, trials=tuple(replace(one, outcome=Outcome.REJECTED, why="slower") for one in session.trials)
    )


def offering(session: Session, *gain: float) -> Session:
    """The session with the cache that needs approval, of this gain."""
    offer = replace(samples.photos().datasets[0].offered[0], gain=Interval(*gain, 6))
    return with_main(session, offered=(offer,))


KINDS = {
    "photos": "faster", "distributed": "faster", "confidential": "faster", "busy": "not-input-bound",
    "nothing": "nothing", "undetermined": "undetermined", "likely": "likely", "interrupted": "interrupted",
    "failed": "failed", "killed": "failed", "no_dataset": "no-dataset", "input_only": "input-only", "bare": "running",
    "unverified": "withheld",
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_the_answer_comes_first(name):
    """Its words are in the golden text."""
    found = claim(samples.ALL[name]())
    assert found.kind == KINDS[name]
    assert found.sentence or found.kind == "faster"
    assert found.gain.known is (found.kind == "faster")


def test_the_parts_stand_in_their_order():
    order = ["answer", "why", "steps", "tried", "warnings", "distributed", "details"]
    assert [one.id for one in page(samples.distributed()).sections] == order
    assert [one.id for one in page(samples.failed()).sections] == ["answer", "details"]


def test_where_the_input_is_fine_only_the_answer_is_open_and_no_operator_is_blamed():
    session = with_main(samples.busy(), "diagnosis", bottleneck_sentence="map (a.py:3) is slow.")
    assert [one.id for one in page(session).sections if not one.folded] == ["answer", "details"]
    assert "No patch" not in " ".join(sentences(session, "answer"))
    assert "map (a.py:3) is slow" not in summary_text(session)


def test_a_plan_that_was_faster_and_not_confirmed_is_no_trial_that_failed():
    session = samples.nothing()
    accepted = replace(session.trials[-1], outcome=Outcome.ACCEPTED)
    session = replace(session, trials=(accepted, *session.trials))
    assert claim(session).big == "Not confirmed"
    assert "did not confirm it" in claim(session).sentence and "none is proven" not in claim(session).sentence
    why = "The training step could not be measured: The script's loop ended"
    assert f"{why}." in claim(replace(session, training=TrainingResult(why=why))).sentence


@pytest.mark.parametrize(
    ("interval", "kind"),
    [
        (Interval(1.2, 1.1, 1.3, 16), "faster"),
        (Interval(1.02, 0.98, 1.06, 16), "unproven"),
        (Interval(0.9, 0.85, 0.95, 16), "slower"),
    ],
)
def test_a_speedup_is_called_one_only_when_its_interval_is_above_one(interval, kind):
    found = claim(with_part(samples.photos(), "training", speedup=interval))
    assert found.kind == kind
    if kind != "faster":
        assert "as fast" not in found.sentence and "faster" not in found.note


def test_a_cache_speeds_up_from_the_second_epoch_on():
    session = samples.photos()
    main = session.datasets[0]
    cache = Insert(main.pipeline.nodes[1].id, "cache", "cached", {"filename": ""})
    rewrites = (replace(main.plan.rewrites[0], edits=(cache,)), *main.plan.rewrites[1:])
    cached = with_part(with_main(session, "plan", rewrites=rewrites), "patch", covered=[one.key for one in rewrites])
    assert claim(cached).sentence == "From the second epoch on: the first one fills the cache."
    twice = (replace(rewrites[0], epochs_read=2.0), *rewrites[1:])
    gain = cached.training.speedup.median
    assert claim(with_main(cached, "plan", rewrites=twice)).sentence.endswith(
        f"fills the cache. All 2 epochs together: {words.ratio(2 / (1 + 1 / gain))}."
    )
    assert claim(session).sentence == ""


def test_input_is_fine_in_the_epochs_that_read_from_a_full_cache():
    first, later = samples.busy(), with_main(samples.busy(), "profile", cache_seconds=3.6)
    starts = [claim(one).sentence.split(" input is not")[0] for one in (first, later)]
    assert starts == ["The", "From the second epoch on, the"]


def test_a_confirmed_speedup_survives_an_interruption():
    session = replace(samples.photos(), status="interrupted")
    assert (claim(session).kind, claim(session).big) == ("faster", "1.36x")
    assert any("interrupted" in one for one in sentences(session, "answer"))


def test_profile_without_trials_recommends_nothing():
    untried = with_main(replace(samples.nothing(), trials=()), rejected=())
    session = with_options(untried, trials=False)
    unpromising = replace(samples.nothing(), trials=())  # rewrites, none of them expected to gain
    found = [claim(one) for one in (session, untried, unpromising)]
    assert [one.kind for one in found] == ["profiled", "nothing", "nothing"]
    assert [one.big for one in found] == ["Input-bound", "Nothing to try", "Nothing faster"]
    assert "nothing is recommended" in sentences(session, "answer")[0]
    assert "can be applied to this pipeline" in found[1].sentence
    assert "expected to make training faster" in found[2].sentence
    assert [[one.split()[1] for one in commands(each)] for each in (session, untried)] == [["analyze"], []]


@pytest.mark.parametrize(("low", "big"), [(1.1, "1.50x"), (0.99, "Nothing faster")])
def test_what_surely_gains_with_approval_stands_in_place_of_nothing(low: float, big: str):
    session = offering(samples.nothing(), 1.5, low, 1.9)
    found = claim(session)
    assert (found.kind, found.big) == ("nothing", big)
    assert ("needs your approval (--allow reorder), and ran 1.50x (1.10 to 1.90" in found.sentence) is (low > 1.03)
    assert not found.gain.known  # it is no speedup that pipetune hands out
    assert ("needs your approval" in why_no_patch(session)) is (low > 1.03)
    assert "--allow reorder" in commands(session)[0]
    late = replace(session.main_dataset.offered[0], why="no time was left to compare its data")
    told = sentences(with_main(session, offered=(late,)), "answer")
    assert ("No time was left to compare its data." in " ".join(told)) is (low > 1.03)
    assert not claim(with_main(session, candidate=samples.likely().candidate)).big.startswith("1.50x")


@pytest.mark.parametrize(("planned", "measured"), [(False, False), (True, True), (True, False)])
def test_what_was_not_measured_comes_with_what_it_changes_beside_a_plan_of_its_rule(planned: bool, measured: bool):
    session = samples.photos()
    (offer,) = session.main_dataset.offered
    session = with_main(session, offered=(offer if measured else replace(offer, gain=None),))
    another = replace(samples.CACHE, node="n1", notes=())
    session = with_main(session, plan=session.plan.with_rewrite(another)) if planned else session
    shown = [one for block in blocks(session, Commands, "answer") for one in block.commands]
    (text,) = (one.text for one in shown if "--allow" in one.label)
    changes = ". The file order of the first epoch is kept for all epochs."
    assert text.endswith(f"too: cache{changes if planned and not measured else ''}")


def test_what_validation_would_gain_with_approval_is_told_with_its_command():
    session = samples.nothing()
    why = "A pass takes 0.1 s with it and 1.2 s without."
    offer = replace(samples.photos().datasets[0].offered[0], gain=None, why=why)
    held_out = DatasetResult(pipeline("range 9 | batch 2"), "validation", offered=(offer,))
    held_out = with_part(held_out, "pipeline", name="held_out")
    session = replace(session, datasets=(*session.datasets, held_out))
    shown = [one for block in blocks(session, Commands, "answer") for one in block.commands]
    (command,) = (one for one in shown if "--allow reorder" in one.label)
    assert "too: cache of held_out. A pass takes 0.1 s with it and 1.2 s without. The file order" in command.text
    assert "Dataset held_out" in told(session) and "Allow it with --allow reorder." in told(session)


@pytest.mark.parametrize(("low", "asked"), [(3.9, ["python-cache"]), (4.6, ["python-cache", "python-cache,reorder"])])
def test_no_more_approval_is_asked_for_than_gains_more(low: float, asked: list[str]):
    one = samples.photos().datasets[0].offered[0]
    in_order = replace(one.rewrite, safety=Safety.EXACT, needs=frozenset({Consent.PYTHON_CACHE}))
    less = replace(one, rewrite=in_order, consent="--allow python-cache", gain=Interval(4.0, 3.5, 4.5, 6))
    frozen = replace(in_order, safety=Safety.REORDERS)
    more = replace(less, rewrite=frozen, consent="--allow python-cache,reorder", gain=Interval(5.0, low, 6.0, 6))
    found = with_main(samples.nothing(), offered=(more, less))
    assert claim(found).big == ("4.00x" if len(asked) == 1 else "5.00x")
    assert sorted(one.split()[3] for one in commands(found) if "--allow" in one) == asked


@pytest.mark.parametrize(
    ("pairs", "source"), [(0, "by the cost model alone:"), (1, "by the cost model and 1 pair of windows:")]
)
def test_a_candidate_that_windows_do_not_show_is_the_word_of_the_cost_model(pairs: int, source: str):
    session = samples.likely()
    gain = replace(session.main_dataset.candidate.gain, pairs=pairs)
    answer = claim(with_main(session, "candidate", gain=gain))
    assert answer.kind == "undecided" and source in answer.sentence
    assert "or may not" not in answer.sentence and "The chance of" not in answer.sentence


@pytest.mark.parametrize(("probability", "shown"), [(0.3, False), (0.7, True)])
def test_patch_of_a_candidate_is_shown_if_it_is_rather_faster_than_not(probability: float, shown: bool):
    doubtful = with_main(samples.likely(), "candidate", probability=probability)
    assert bool(blocks(doubtful, Diff)) is shown
    assert ["--unproven" in command for command in commands(doubtful)].count(True) == shown
    assert ("Its patch is not shown" in summary_text(doubtful)) is not shown


def test_why_the_source_cannot_express_a_candidate_is_said():
    session, not_covered = samples.likely(), (Rejection("prefetch", "n3", "It is a loop's."),)
    refused = replace(session.main_dataset.candidate.patch, diff="", not_covered=not_covered, covered=())
    text = summary_line(with_main(session, "candidate", patch=refused))
    assert "The source cannot express the change. It is a loop's." in text


def test_a_gain_stands_at_the_hunk_of_its_call():
    diff = samples.DIFF.replace("     ds = ds.shuffle(256)\n     ds = ds.batch(32)\n", "@@ -27,1 +27,1 @@\n")
    diff = diff.replace("@@ -21,7 +21,7 @@", "@@ -21,4 +21,4 @@")
    first, second = blocks(with_part(samples.photos(), "patch", diff=diff), Diff)[0].hunks
    assert [gain.split()[0] for gain in first.gains] == ["parallel-map"]
    assert [gain.split()[0] for gain in second.gains] == ["prefetch"]


def test_a_line_that_looks_like_the_header_of_a_file_is_shown():
    """SQL in a text of several lines."""
    diff = samples.DIFF.replace("-    ds = ds.map(decode_and_augment)\n", "--- SELECT\n+++ SELECT\n")
    (hunk,) = blocks(with_part(samples.photos(), "patch", diff=diff), Diff)[0].hunks
    assert hunk.file == "photo_input.py" and len(hunk.lines) == 10
    assert hunk.lines[3:5] == (("remove", "--- SELECT"), ("add", "+++ SELECT"))


def test_each_file_of_a_patch_has_its_hunks():
    second = samples.DIFF.partition("\n")[2].replace("photo_input.py", "of two words.py")
    name = "+++ b/of two words.py"
    found = blocks(with_part(samples.photos(), "patch", diff=samples.DIFF + second.replace(name, f"{name}\t")), Diff)
    assert [(hunk.file, len(hunk.lines)) for hunk in found[0].hunks] == [("photo_input.py", 9), ("of two words.py", 9)]


def test_a_patch_that_was_not_run_says_so():
    (found,) = blocks(with_part(samples.photos(), "patch", verified=None), Checks, "answer")
    assert found.answers[-1] == ("unknown", "the patched script was not run", "")


def test_the_time_is_blamed_only_where_it_was_the_reason():
    """A run on an unsteady machine whose trials were all decided had ended as "too short to decide"."""
    session = samples.undetermined()
    assert claim(session).sentence.startswith("The time ended with 1 of 1 trial undecided.")
    decided = all_rejected(session)
    assert claim(decided).sentence.startswith("1 trial, and none is proven faster")
    assert not [command for command in commands(decided) if "--budget" in command]
    open_one = Rejection("cache", "n2", "the time was up before it was tried", reason=RejectionReason.NO_TIME)
    left = with_main(decided, rejected=(open_one,))
    assert claim(left).sentence.startswith("The time ended with 1 rewrite untried.")
    assert any("--budget" in command for command in commands(left))
    assert not any("there is nothing to change" in one for one in sentences(left, "answer"))


def test_a_plan_that_cannot_be_written_says_why():
    patch = PatchResult(not_covered=samples.unverified().patch.not_covered)
    session = replace(samples.photos(), patch=patch)
    said = sentences(session, "answer")
    assert "No patch: the plan has no form in the source." in said
    assert any(one.startswith("Not in the patch: parallel-map.") for one in said)
    twice = with_part(session, "patch", not_covered=2 * patch.not_covered)
    assert sentences(twice, "answer") == said  # of two branches that one call makes
    assert commands(session)[0] == "pipetune run --plan reports/train/plan.json train.py --epochs 3"


def test_a_script_that_only_predicts_is_told_of_inference():
    session = with_main(samples.photos(), consumer="Model.predict")
    assert claim(session).note == "faster inference"
    assert step_times(session).wait_change.startswith("Inference waits for data")
    slower = with_part(session, "training", speedup=Interval(0.9, 0.85, 0.95, 16))
    assert claim(slower).sentence == "Inference runs slower with the plan."
    likely = with_main(samples.likely(), consumer="Model.predict")
    assert claim(likely).sentence.startswith("Inference probably runs 1.31x")


def test_slow_validation_is_no_warning_where_the_patch_changes_it():
    slow = Finding(VALIDATION_INPUT, "validation is slow", "analyze it", samples.SCRIPT, 40)
    session = replace(samples.photos(), findings=(slow,))
    (notice,) = reading.section(session, "warnings").blocks
    assert (notice.message, notice.hint, notice.place.text) == ("Validation is slow.", "Analyze it.", "train.py:40")
    first, second = session.datasets
    for speedup, warned in ((None, True), (Interval(3.0, 2.0, 4.0, 8), False)):
        changed = replace(second, patch=session.patch, input_speedup=speedup)
        assert ("warnings" in ids(replace(session, datasets=(first, changed), findings=(slow,)))) is warned


@pytest.mark.parametrize(("op", "line", "warned"), [("cache", 40, True), ("cache", 41, False), ("map", 40, False)])
def test_a_frozen_order_is_no_warning_where_the_patch_takes_its_cache_out(op: str, line: int, warned: bool):
    frozen = Finding("frozen-order", "cache() follows a shuffle", "move it", samples.SCRIPT, 40)
    node = Node("n0", op, location=SourceLocation(samples.SCRIPT, line, 0, line, 9, op))
    session = replace(with_main(samples.photos(), tuned=Pipeline((node,))), findings=(frozen,))
    assert ("warnings" in ids(session)) is warned
    assert "warnings" in ids(with_main(session, plan=None))


@pytest.mark.parametrize(("seconds", "warned"), [(0.05, False), (0.2, True), (None, True)])
def test_a_long_start_of_each_epoch_is_no_warning_where_the_patch_shortens_it(seconds: float | None, warned: bool):
    pause = Finding(EPOCH_PAUSE, "every epoch begins with a pause", "use repeat()", samples.SCRIPT, 40)
    rates = {"defaults": Rate(first_batch_seconds=0.5), "tuned": Rate(first_batch_seconds=seconds)}
    session = replace(with_main(samples.photos(), rates=rates), findings=(pause,))
    assert ("warnings" in ids(session)) is warned
    assert "warnings" in ids(with_main(session, plan=None))


def test_a_patch_for_validation_says_what_becomes_of_its_data():
    session, tuned = samples.undetermined(), samples.photos()
    drawn = Comparison(Safety.STATISTICAL, (EqualityCheck("values", True),), elements=20, epochs=3)
    cost = DatasetCost(element_wall_seconds=0.01, epoch_elements=25, first_wall_seconds=0.1)
    found = {"comparison": drawn, "patch": tuned.patch, "cost": cost, "input_speedup": Interval(4.2, 3.8, 4.7, 3)}
    validation = DatasetResult(tuned.datasets[1].pipeline, "validation", **found)
    undecided = replace(session, datasets=(*session.datasets, validation))
    changed = all_rejected(undecided)
    for one in (changed, undecided):
        assert (claim(one).big, claim(one).note) == ("4.20x", "faster validation")
    shared = claim(replace(changed, datasets=(*session.datasets, replace(validation, share=0.5))))
    assert (shared.big, shared.note) == ("1.62x", "faster epochs"), "0.5 + 0.5 / 4.2 of the time"
    assert "Nothing faster for training." in summary_text(changed)
    assert claim(all_rejected(session)).note == ""
    others = [replace(validation, input_speedup=None, share=share) for share in (0.2, None, 0.1)]
    several = claim(replace(changed, datasets=(*changed.datasets, *others))).sentence
    assert "Validation on validation_ds: its input runs 4.20x" in several
    assert "Left as it was: validation_ds and validation_ds, with 30 % of the time" in several
    asked = claim(offering(changed, 1.5, 1.1, 1.9))
    assert (asked.big, asked.note) == ("1.50x", "with your approval")
    trained = replace(tuned, datasets=(tuned.datasets[0], replace(validation, share=0.5)))  # and 1.36 times as fast
    for one, after in ((trained, "24 %"), (with_part(trained, "training", speedup=None), "19 %")):
        assert f"takes {after} of the time for training and validation instead of 50 %" in " ".join(
            headline(one, Places()).details
        )
    more = with_part(trained, "training", speedup=Interval(5.0, 4.8, 5.2, 16))  # a larger share than before
    assert "of the time" not in " ".join(headline(more, Places()).details)
    text = summary_line(replace(changed, patch=tuned.patch))
    assert "validation: same elements; random draws come from the same distribution" in text
    assert "per training step" in text and "the patch for training" not in text and "more memory" not in text
    kept = replace(validation, plan=Plan("tuned", (samples.CACHE,)))
    assert "validation: 155 MiB more memory (what its cache holds)" in summary_line(
        replace(changed, patch=tuned.patch, datasets=(*session.datasets, kept))
    )
    for source, said in (
        ("range 9 | map | map | batch 2", "validation: every epoch in the order of the first (which its cache keeps)"),
        ("range 9 | shuffle 4 | batch 2 | shuffle 4", "validation: the same batches in every epoch (which its"),
        ("range 9 | shuffle 4 | map | shuffle 4", ""),
    ):
        frozen = replace(kept, pipeline=pipeline(source))
        text = summary_line(replace(changed, patch=tuned.patch, datasets=(*session.datasets, frozen)))
        assert said in text and ("which its cache keeps" in text) is bool(said)
    likely = samples.likely()
    unproven = with_main(likely, candidate=replace(likely.candidate, plan=Plan("tuned", (samples.CACHE,))))
    assert "+ 155 MiB more memory (what its cache holds)" in summary_line(unproven)
    beside = summary_line(replace(likely, patch=tuned.patch, datasets=(likely.datasets[0], validation)))
    assert "apply the patch for training, not the one shown, although it is not proven" in beside


@pytest.mark.parametrize(
    ("words", "safety", "noun"),
    [
        ("range 9 | map | batch 4 | prefetch 1", Safety.EXACT, "batches"),
        ("range 9 | map | batch 4 | prefetch 1", Safety.REORDERS, "rows"),
        ("range 9 | map | group_by_window | prefetch 1", Safety.REORDERS, "batches"),
        ("range 9 | batch 4 | unbatch", Safety.EXACT, "elements"),
        ("range 9 | map", Safety.EXACT, "elements"),
    ],
)
def test_batches_in_another_order_are_compared_row_by_row(words: str, safety: Safety, noun: str):
    result = DatasetResult(pipeline(words), "training")
    extent = compared_extent(result, Comparison(safety, (), elements=768, epochs=3))
    assert extent == f"768 {noun} over 3 epochs"


def test_data_that_nothing_could_be_compared_of_is_not_said_to_be_compared():
    """Python that draws numbers, in a map that only becomes parallel: of two runs no element is the same."""
    unlike = EqualityCheck("values", None, "not reproducible, because two runs of the current pipeline differ")
    checks = (EqualityCheck("spec", True), unlike)
    drawn = Comparison(Safety.STATISTICAL, checks, elements=0, epochs=0)
    session = with_main(samples.photos(), comparison=drawn)
    why = "not compared: not reproducible, because two runs of the current pipeline differ"
    assert f"random draws come from the same distribution ({why})" in summary_line(session)
    assert f"The data was {why}." in " ".join(sentences(session, "equality"))
    assert "0 batches" not in summary_line(session)


def test_the_time_spent_adds_up():
    seconds = {"capture": 9.4, "verdict": 15.6, "trials": 50.0, "total": 93.0, "to_first_step": 9.0, "budget": 70.0}
    facts = blocks(replace(samples.photos(), seconds=seconds), Facts, "machine")[1].facts
    parts = [float(fact.text.removesuffix(" s")) for fact in facts[:4]]
    assert [fact.label for fact in facts[3:5]] == ["starting, and what is in no phase", "total"]
    assert sum(parts) == pytest.approx(93.0)


@pytest.mark.parametrize(
    ("options", "words", "log"),
    [
        ({"workers": 1, "parameter_servers": 0}, "", "script.log"),
        ({"workers": 2}, " --workers 2", "worker-0.log"),
        ({"force": True, "trials": False, "budget_seconds": 600.0}, " --force", "script.log"),
        ({"workers": 2, "parameter_servers": 1}, " --workers 2 --parameter-servers 1", "chief.log"),
        (
            {"steps": 40, "memory_limit_bytes": 1 << 30, "distribute": "service", "device": "auto", "dataset": None}
            | {"step_time_seconds": 0.0085, "allow": frozenset({Consent.STATISTICAL}), "without": frozenset("ab")}
            | {"cold": True},
            " --steps 40 --memory-limit 1073741824 --distribute service --step-time 8.5 --allow statistical "
            "--without a,b --cold",
            "script.log",
        ),
    ],
)
def test_next_steps_ask_for_what_was_asked_for(options: dict[str, int], words: str, log: str) -> None:
    again = with_options(samples.photos(), **options)
    assert any(command.startswith(f"pipetune analyze{words} --allow") for command in commands(again))
    failed = commands(replace(again, status="failed"))
    assert any(command.startswith("less ") and command.endswith(f"/{log}") for command in failed)
    before = words.replace("--force", "--budget 600 --no-trials --force")
    interrupted = commands(replace(again, status="interrupted"))
    assert any(command.startswith(f"pipetune analyze{before} train.py") for command in interrupted)
    emulated = any("(--step-time): the script's own steps" in one for one in sentences(again, "answer"))
    assert emulated is ("step_time_seconds" in options)


def test_no_step_is_suggested_that_does_not_apply() -> None:
    assert commands(samples.busy())[0] == "pipetune analyze --force train.py --epochs 3"
    for session in (with_options(samples.busy(), force=True), redact(samples.failed())):
        assert not commands(session)


def test_what_gained_nothing_is_not_suggested():
    changed = offering(samples.photos(), 0.9, 0.8, 1.0)
    assert not [command for command in commands(changed) if "--allow" in command]
    assert "needs approval" in [row.state for row in reading.table(changed, "tried").rows]  # shown all the same


def test_rewrites_of_one_rule_that_need_approval_are_named_once():
    gains = ((1.1, 0.9, 1.3), (1.5, 1.4, 1.6), (1.2, 1.1, 1.3))  # as of repeat behind a shuffle, and before it
    offers = [offering(samples.nothing(), *gain).datasets[0].offered[0] for gain in gains]
    session = with_main(samples.nothing(), offered=tuple(offers))
    lines = [line.strip() for line in summary_text(session).splitlines()]
    assert "measure what needs your approval, too: cache (1.50x)" in lines


def test_sentences_name_files_as_the_tables_do():
    changed = with_main(samples.photos(), "diagnosis", bottleneck_sentence=f"map ({samples.INPUT}:24) is slow")
    assert sentences(changed, "why")[0] == "map (photo_input.py:24) is slow."
    assert Places(base="/work").sentence("in /data/work/x") == "In /data/work/x."
    assert Places(base="/").sentence("in gs://bucket/x and /data") == "In gs://bucket/x and /data."


def test_a_module_is_called_as_one():
    session = replace(samples.photos(), command=Command(module="photos.train", arguments=("-v",)))
    assert page(session).title == "photos.train"
    assert "pipetune analyze -m photos.train -v" in told(session)


def test_names_outside_the_folder_stay_whole():
    session = with_part(samples.photos(), "command", directory="/somewhere/else")
    assert reading.texts(reading.table(session, "why").rows[0])[1] == f"{samples.INPUT}:21"


def test_two_studied_datasets_are_both_shown():
    session = samples.photos()
    both = replace(session, datasets=(session.datasets[0], with_part(session.datasets[0], "pipeline", name="other")))
    extra = next(one for one in ids(both) if one.startswith("dataset-"))
    assert reading.section(both, extra).title == "Dataset other"
    assert len(ids(both)) == len({*ids(both)})


def test_an_empty_pipeline_does_not_break_the_page():
    result = DatasetResult(Pipeline(()), "training", diagnosis=Diagnosis(Verdict.UNDETERMINED, ""))
    assert "why" not in ids(Session("0", Command(), datasets=(result,), training=TrainingResult()))


def test_a_busy_machine_is_said_behind_the_speedup() -> None:
    quiet = replace(samples.photos(), load=CpuLoad(60.0, 30, 2, own_share=0.6, others_share=0.05))
    busy = replace(quiet, load=CpuLoad(60.0, 30, 2, own_share=0.6, others_share=0.31))
    assert page(quiet).busy == "" and "other processes used" not in summary_text(quiet)
    assert summary_text(busy).splitlines()[1] == "  busy machine: other processes used 31 % of the 2 cores"
