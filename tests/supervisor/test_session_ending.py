"""The end of a run: when it comes, by what real runs did, and the messages then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.recorded import FakeClock
from pipetune.core.edits import Plan, Rewrite, Safety
from pipetune.core.measurement import Interval
from pipetune.core.results import Outcome, Trial
from pipetune.core.session import PatchResult, Session, SessionOutcome, outcome_of
from pipetune.search.confirmation import Confirmation
from pipetune.search.statistics import ratio_interval
from pipetune.supervisor.display import TimeLeft
from pipetune.supervisor.session_ending import interrupted_before_proof, with_verification
from pipetune.supervisor.verification import Verification
from pipetune.supervisor.worker_state import exception_line
from tests.core.sessions import session

PLAN = session().trials[0].plan
FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    fit()\n'
CONVERTED = (
    'in user code:\n\n    File "train.py", line 9, in None  *\n        tf.concat(both)\n\n    TypeError: [a, b]\n'
)
IN_GRAPH = "<stack traces unavailable>\ntoo much\n\t [[{{node Map}}]] [Op:__inference_step]\n"
QUOTED = 'Traceback (most recent call last):\n\n  File "ops.py", line 1, in call\n    f()\n\nValueError: inner\n'


@pytest.mark.parametrize(("traceback", "line"), [
    (f"{FRAMES}ValueError: of the user\n", "ValueError: of the user"),
    (f"{FRAMES}OpError: broken [x]\n\t [[node Assert]] [Op:Next] name: \n", "OpError: broken [x]"),
    (f"{FRAMES}OpError: ValueError: inner\n{QUOTED}\n\t [[node]] name: \n", "OpError: ValueError: inner"),
    (f"{FRAMES}KeyError: 'a'\n\nDuring handling, another:\n\n{FRAMES}TypeError: b\n", "TypeError: b"),
    ("Traceback (most recent call last):\nValueError: no frame is left\n", "ValueError: no frame is left"),
    (f"{FRAMES}TypeError: {CONVERTED}    of two lines\n", "TypeError: [a, b]"),
    (f"{FRAMES}TypeError: in user code:\n", "TypeError: in user code:"),
    (f"{FRAMES}OpError: Graph execution error:\n\nDetected at node Map\n{IN_GRAPH}", "OpError: too much"),
    (f"{FRAMES}OpError: Graph execution error:\n", "OpError: Graph execution error:"),
    ("", ""),
])  # fmt: skip
def test_exception_line_of_traceback(traceback: str, line: str) -> None:
    assert exception_line(traceback) == line


def before(*trials: Trial) -> Session:
    """A session with a patch that is not verified."""
    patch = PatchResult("the diff", ("/x/train.py",), covered=tuple(rewrite.key for rewrite in PLAN.rewrites))
    return replace(session(), patch=patch, trials=trials)


def verified(ratios: Sequence[float]) -> Session:
    """Its patch was measured at these ratios, and not confirmed."""
    proof = Confirmation(False, "It is not proven faster.", "training", ratio_interval(ratios), ratios=tuple(ratios))
    return with_verification(before(), Verification(proof.why, confirmation=proof))


def test_a_patch_that_may_be_faster_becomes_a_candidate() -> None:
    after = verified([1.2, 0.99, 1.3, 1.1, 1.25, 0.98])
    assert after.plan is None and after.patch is not None and after.patch.diff == ""
    assert after.candidate is not None and after.candidate.likely and after.candidate.gain.pairs == 6
    assert after.candidate.patch is not None and after.candidate.patch.diff == "the diff"
    assert outcome_of(after) is SessionOutcome.LIKELY
    assert outcome_of(verified([1.2, 0.8, 1.3, 0.9, 1.25, 0.8])) is SessionOutcome.UNDECIDED
    assert verified([0.98, 1.01, 0.99, 1.0, 0.97, 1.0]).candidate is None, "no gain is in sight"


def test_the_only_rewrite_of_a_plan_gains_what_its_patch_was_measured_to_gain() -> None:
    measured = Interval(4.1, 3.9, 4.3, 6)
    proof = Confirmation(True, "It is proven faster.", "training", measured)
    first, second = (Rewrite(name, "n1", Safety.EXACT, (), "") for name in ("cache", "prefetch"))
    searched = {first.key: Interval(4.4, 1.2, 15.0, 2)}
    assert proof.gains(Plan("tuned", (first,)), searched) == {first.key: measured}
    assert proof.gains(Plan("tuned", (first, second)), searched) == searched


def test_an_interrupted_verification_leaves_what_the_race_accepted() -> None:
    accepted = Trial(PLAN, Outcome.ACCEPTED, "", gain=Interval(1.5, 1.2, 1.8, 6), kind="search", unit="training")
    after = interrupted_before_proof(before(accepted))
    assert after.plan is None and after.candidate is not None
    assert (after.candidate.gain.median, after.candidate.unit) == (1.5, "training")
    assert after.candidate.patch is not None and after.candidate.patch.diff == "the diff"
    assert interrupted_before_proof(before()).candidate is None


# -- when a run ends


RECORDED = {
    "csv": (83.8, (
        (8.3, "measuring", "profile", 59.2, False), (17.8, "verdict", "input-bound"),
        (17.8, "measuring", "costs", 49.7, False), (26.7, "measuring", "files", 40.7, False),
        (35.5, "measuring", "trials", 31.9, False), (37.5, "measuring", "emission", 29.9, True),
        (40.5, "verifying", 0, False), (57.6, "verifying", 1, False), (61.6, "verifying", 3, False),
        (66.9, "verifying", 6, False), (66.9, "verifying", 0, True), (76.6, "verifying", 0, False),
    )),
    "busy": (26.6, (
        (10.1, "measuring", "profile", 59.2, False), (20.9, "verdict", "not-input-bound"),
        (20.9, "measuring", "costs", 48.3, False), (24.0, "measuring", "steps", 45.3, False),
    )),
    "photos": (71.3, (
        (9.4, "measuring", "profile", 59.3, False), (20.0, "verdict", "undetermined"),
        (20.0, "measuring", "costs", 48.6, False), (29.9, "measuring", "files", 38.7, False),
        (40.5, "measuring", "trials", 28.2, False), (53.2, "measuring", "trials", 15.4, False),
        (55.0, "measuring", "validation", 13.6, False), (60.3, "measuring", "memory", 8.3, False),
        (67.2, "measuring", "files", 1.5, False),
    )),
}  # fmt: skip
"""Real runs of three examples with the default budget: seconds in all, and what was reported when."""


def time_left() -> tuple[TimeLeft, FakeClock]:
    clock = FakeClock()
    return TimeLeft(60, clock.now), clock


def test_nothing_is_said_before_the_first_training_step_and_after_the_verdict_no_it_is_soon_over() -> None:
    left = TimeLeft(60)
    assert left.seconds("capture", None) is None and left.seconds("capture", 60) is None
    searching = left.seconds("profile", 60)
    assert searching is not None and (left.seconds("trials", 60, promising=True) or 0) < searching
    left.verdict = "not-input-bound"
    assert 2 <= (left.seconds("course", 48) or 0) <= 8


def test_the_estimate_shrinks_as_the_patch_is_verified() -> None:
    left, clock = time_left()
    clock.advance(6)
    left.seconds("profile", 60)
    estimates = [left.verifying()]
    clock.advance(5)
    estimates.append(left.verifying())
    clock.advance(5)
    estimates += [left.verifying(pairs=pairs) for pairs in (1, 3, 6)]
    estimates.append(left.verifying(proven=True))
    clock.advance(60)
    assert estimates == sorted(estimates, reverse=True)
    assert left.verifying() > 0, "something is always left while it runs"


def test_scripts_that_take_turns_start_five_times() -> None:
    left, clock = time_left()
    clock.advance(12)
    left.seconds("profile", 60)
    left.in_turn = True
    begin = left.verifying()
    assert begin >= 5 * 12
    clock.advance(50)
    assert left.verifying(pairs=3) == begin - 50, "the other half of the starts is still to come"


@pytest.mark.parametrize("name", RECORDED)
def test_after_the_verdict_the_estimate_is_within_a_third_of_the_truth(name: str) -> None:
    """Or within five seconds, near the end."""
    end, events = RECORDED[name]
    (left, clock), now, known = time_left(), 0.0, False
    for moment, kind, *details in events:
        clock.advance(moment - now)
        now = moment
        if kind == "verdict":
            left.verdict = details[0]
            known = True
            continue
        if kind == "measuring":
            estimate = left.seconds(details[0], details[1], promising=details[2])
        else:
            estimate = left.verifying(pairs=details[0], proven=details[1])
        truth = end - moment
        if known:
            assert estimate is not None and abs(estimate - truth) <= max(truth / 3, 5), (moment, estimate, truth)
