"""Windows in lockstep: the chief's decisions, the peers' replies, and the loss of lockstep."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, cast

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture.lockstep_consumer import LocalConsumer, LockstepConsumer
from pipetune.capture.loop_consumer import LoopWindow
from pipetune.core.edits import Plan
from pipetune.core.lockstep import (
    ConnectionLost,
    LockstepTeam,
    MeasureInput,
    MeasureTraining,
    NoMoreRequests,
    PreparePipeline,
    RequestLink,
    StepReply,
    StepRequest,
    TakeSteps,
    WritePatch,
)
from pipetune.core.measurement import RunFailed, Window
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.session import PatchResult
from pipetune.measure import lockstep
from pipetune.measure.runner import TensorFlowRunner
from pipetune.timing.windows import WindowTimer
from tests.core.test_lockstep import FellOut, window

PIPELINE = Pipeline((Node("n0", "range"), Node("n1", "map")))


def raised(why: str) -> RunFailed:
    failure = RunFailed(why)
    failure.__cause__ = ValueError("theirs")
    return failure


@dataclass
class Fake:
    """Team, consumer and runner in one; records its calls, and answers from `outcomes`."""

    outcomes: list[Window | RunFailed] = field(default_factory=list)
    others: list[list[Window]] = field(default_factory=list)
    asked: list[object] = field(default_factory=list)
    description = "a Python loop"
    kind = "loop"

    def __len__(self) -> int:
        return 2

    @property
    def source(self) -> Any:
        return self

    @property
    def pipeline(self) -> Pipeline:
        return PIPELINE

    def train(self, *, steps: int, warmup: int) -> None:
        self.asked.append(TakeSteps(steps, warmup))

    def collect_windows(self, own: Window | None) -> list[Window]:
        self.asked.append("others")
        return self.others.pop(0) if self.others else []

    def abort(self, why: str, cause: BaseException | None = None) -> NoReturn:
        raise FellOut(why) from cause

    def window_counts(self, dataset: Any, *, steps: int, warmup: int) -> tuple[int, int]:
        return steps + 1, warmup + 2

    def exact_window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        self.asked.append((dataset, steps, warmup))
        return self._outcome()

    def training_dataset(self, plan: Plan | None) -> Any:
        self.asked.append(PreparePipeline(plan))
        if plan is not None and plan.name == "impossible":
            raise RunFailed("The plan cannot be built.")
        return "prepared"

    def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
        self.asked.append(MeasureInput(seconds, warmup_seconds))
        return self._outcome()

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.asked.append("restored")

    def _outcome(self) -> Window:
        found = self.outcomes.pop(0)
        if isinstance(found, RunFailed):
            raise found
        return found


def consumer(fake: Fake) -> LockstepConsumer:
    return LockstepConsumer(cast(LocalConsumer, fake), cast(LockstepTeam, fake))


def test_all_workers_get_the_exact_steps_before_the_first_one() -> None:
    fake = Fake([window(6)])
    made = consumer(fake)
    assert made.window("data", steps=5, warmup=2) == window(6)
    assert fake.asked == [TakeSteps(6, 4), ("data", 6, 4), "others"]
    assert (made.kind, made.description) == ("loop", "a Python loop, in 2 processes in lockstep")


@pytest.mark.parametrize(("own", "again"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.1)])
def test_window_in_which_any_worker_compiled_is_repeated_once_by_all(own: float, again: float) -> None:
    others = [[window(compile_seconds=0.2)], [window(compile_seconds=again)]]
    fake = Fake([window(compile_seconds=own), window()], others=others)
    assert consumer(fake).window("data", steps=4, warmup=0) == window(compile_seconds=again)
    assert fake.asked == 2 * [TakeSteps(5, 2), ("data", 5, 2), "others"]


def test_ended_loop_of_the_chief_still_collects_the_other_windows() -> None:
    fake = Fake([RunFailed("The script's loop ended.")])
    with pytest.raises(RunFailed, match="loop ended"):
        consumer(fake).window("data", steps=4, warmup=0)
    assert fake.asked[-1] == "others", "their answers are not left for the next window"


def test_step_that_raises_breaks_the_lockstep() -> None:
    with pytest.raises(FellOut, match="on worker 0: it raised") as caught:
        consumer(Fake([raised("it raised")])).window("data", steps=4, warmup=0)
    assert isinstance(caught.value.__cause__, ValueError), "of the user"


# -- the other workers


@pytest.fixture
def link() -> Iterator[tuple[RequestLink, RequestLink]]:
    """The chief's end of the connection, and the peer's."""
    near, far = socket.socketpair()
    made = RequestLink(near.detach()), RequestLink(far.detach())
    yield made
    for end in made:
        end.close()


def follow(
    fake: Fake, link: tuple[RequestLink, RequestLink], *orders: StepRequest, trains: bool = True
) -> tuple[list[StepReply], list[str]]:
    """The peer's replies, the first one without a request; and the reasons for which it lost lockstep."""
    told: list[str] = []
    for order in orders:
        link[0].send_request(order)
    own = cast(LocalConsumer, fake) if trains else None

    def fell_out(why: str, cause: BaseException | None) -> None:
        told.append(f"{why}: {cause}")

    lockstep.LockstepWorker(cast(TensorFlowRunner, fake), own, link[1], on_lockstep_lost=fell_out).run()
    return [link[0].receive_reply(5) for _ in range(1 + len(orders) - isinstance(orders[-1], NoMoreRequests))], told


def test_peer_serves_requests_until_there_are_no_more(link: tuple[RequestLink, RequestLink]) -> None:
    fake = Fake([window(3), window()])
    plan = Plan("defaults")
    answers, told = follow(
        fake, link, PreparePipeline(plan), TakeSteps(3, 1), PreparePipeline(), MeasureInput(0.5, 0.1), NoMoreRequests()
    )
    assert answers == [
        StepReply(operators=("range (n0)", "map (n1)")),
        StepReply(),
        StepReply(window=window(3)),
        StepReply(),
        StepReply(window=window()),
    ]
    assert fake.asked == [
        PreparePipeline(plan),
        ("prepared", 3, 1),
        "restored",
        PreparePipeline(),
        MeasureInput(0.5, 0.1),
    ]
    assert told == []


def test_peer_replies_with_the_reason_of_a_failure(link: tuple[RequestLink, RequestLink]) -> None:
    fake = Fake([RunFailed("The script's loop ended."), RunFailed("The dataset is empty.")])
    answers, told = follow(
        fake, link, PreparePipeline(Plan("impossible")), TakeSteps(3, 1), MeasureInput(0.1, 0.0), NoMoreRequests()
    )
    why = ["", "The plan cannot be built.", "The script's loop ended.", "The dataset is empty."]
    assert [answer.why for answer in answers] == why
    assert told == [], "nobody has taken a step"


def test_peer_whose_step_raises_reports_lost_lockstep(link: tuple[RequestLink, RequestLink]) -> None:
    fake = Fake([raised("it raised")])
    _, told = follow(fake, link, TakeSteps(3, 1), NoMoreRequests())
    assert (told, fake.asked[-1]) == (["it raised: theirs"], "restored")


def test_peer_without_a_consumer_replies_that_it_does_not_train(link: tuple[RequestLink, RequestLink]) -> None:
    answers, _ = follow(Fake(), link, TakeSteps(3, 1), NoMoreRequests(), trains=False)
    assert answers[1].why == "This worker does not train on the dataset, or its dataset cannot be switched."


def test_peer_without_a_chief_ends_without_a_report(link: tuple[RequestLink, RequestLink]) -> None:
    link[0].close()
    told: list[str] = []
    lost = lockstep.LockstepWorker(
        cast(TensorFlowRunner, Fake()), None, link[1], on_lockstep_lost=lambda why, _cause: told.append(why)
    )
    lost.run()
    assert told == [], "whoever started the chief knows"
    with pytest.raises(ConnectionLost):
        link[1].receive_request(1)


# -- a script under verification


def test_held_script_measures_itself_or_a_baseline_on_request(link: tuple[RequestLink, RequestLink]) -> None:
    class Runner(Fake):
        def training_window(self, plan: Plan, *, steps: int) -> Window:
            self.asked.append((plan.name, steps))
            return self._outcome()

        def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
            self.asked.append((plan.name, seconds, warmup_seconds))
            return self._outcome()

    fake = Runner([window(5), replace(window(), intervals=(0.1, 0.2)), RunFailed("it raised"), window(6)])
    held = lockstep.VerifiedScript(
        cast(TensorFlowRunner, fake),
        {name: Plan(name) for name in ("defaults", "autotune")},
        patch=lambda rewrites: PatchResult(covered=rewrites),
    )
    orders: list[StepRequest] = [
        MeasureTraining(5),
        PreparePipeline(Plan("autotune")),
        MeasureInput(1.0, 0.5),
        MeasureTraining(9),
        PreparePipeline(Plan("defaults")),
        MeasureTraining(6),
        WritePatch(("prefetch@n3",)),
        TakeSteps(3, 1),
        NoMoreRequests(),
    ]
    for order in orders:
        link[0].send_request(order)
    held.serve(link[1], StepReply(checked="equal"))
    answers = [link[0].receive_reply(1) for _ in orders]
    assert fake.asked == [("defaults", 5), ("autotune", 1.0, 0.5), ("autotune", 9), ("defaults", 6)]
    assert answers[0] == StepReply(checked="equal"), "that it is there"
    assert [one.window.steps if one.window else one.why for one in answers[1:7]] == [5, "", 5, "it raised", "", 6]
    assert answers[3].window is not None and answers[3].window.intervals == ()
    assert answers[7].patch == PatchResult(covered=("prefetch@n3",))
    assert answers[8].why == "A script under verification does not support this order."


# -- windows with an exact number of steps


@pytest.mark.parametrize(("again", "taken"), [(True, 1 + 4 + 4), (False, 1 + 4)])
def test_loop_window_restarts_after_compiling_only_where_it_may(
    again: bool, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WindowTimer, "compile_seconds", lambda *_given, **_named: 0.2)
    made = LoopWindow(tf.data.Dataset.range(9), steps=4, warmup=1, may_restart=again)
    elements = 0
    while made.advance()[0]:
        elements += 1
    assert elements == taken
    assert made.result is not None and (made.result.steps, made.result.compile_seconds) == (4, 0.2)
