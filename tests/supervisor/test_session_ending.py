"""The messages at the end of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipetune.core.edits import Plan, Rewrite, Safety
from pipetune.core.results import Interval, Outcome, Trial
from pipetune.core.session import PatchResult, Session, SessionOutcome, outcome_of
from pipetune.search.confirmation import Confirmation
from pipetune.search.statistics import ratio_interval
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
