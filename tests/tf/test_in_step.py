"""Windows of several processes in step: what the chief decides for all, what a follower does, what breaks it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, cast

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.edits import Plan
from pipetune.core.in_step import (
    Answer,
    Leave,
    Link,
    MeasureInput,
    MeasureTraining,
    Order,
    Prepare,
    Train,
    WritePatch,
)
from pipetune.core.json_lines import LinkBroken
from pipetune.core.measurement import RunFailed, Window
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.session import PatchResult
from pipetune.core.team import Team
from pipetune.tf.measure import compiling, in_step
from pipetune.tf.measure.runner import TensorFlowRunner
from pipetune.tf.script.in_step_consumer import InStepConsumer, OwnConsumer
from pipetune.tf.script.loop_consumer import LoopConsumer, LoopWindow

PIPELINE = Pipeline((Node("n0", "range"), Node("n1", "map")))


def window(steps: int = 5, compile_seconds: float = 0.0) -> Window:
    return Window(steps, 5, 0.5, 0.4, 0.1, compile_seconds=compile_seconds)


def raised(why: str) -> RunFailed:
    failure = RunFailed(why)
    failure.__cause__ = ValueError("theirs")
    return failure


class FellOut(Exception):
    """In place of the end of the process."""


@dataclass
class Fake:
    """Team, consumer and runner in one; remembers what was asked of it, and answers from `outcomes`."""

    outcomes: list[Window | RunFailed] = field(default_factory=list)
    others: list[list[Window]] = field(default_factory=list)
    asked: list[object] = field(default_factory=list)
    sentence = "a Python loop"
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
        self.asked.append(Train(steps, warmup))

    def windows(self, own: Window | None) -> list[Window]:
        self.asked.append("others")
        return self.others.pop(0) if self.others else []

    def fall_out(self, why: str, cause: BaseException | None = None) -> NoReturn:
        raise FellOut(why) from cause

    def counts(self, dataset: Any, *, steps: int, warmup: int) -> tuple[int, int]:
        return steps + 1, warmup + 2

    def exactly(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        self.asked.append((dataset, steps, warmup))
        return self._outcome()

    def prepared(self, plan: Plan | None) -> Any:
        self.asked.append(Prepare(plan))
        if plan is not None and plan.name == "impossible":
            raise RunFailed("The plan cannot be built.")
        return "prepared"

    def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
        self.asked.append(MeasureInput(seconds, warmup_seconds))
        return self._outcome()

    def restore(self) -> None:
        self.asked.append("restored")

    def _outcome(self) -> Window:
        found = self.outcomes.pop(0)
        if isinstance(found, RunFailed):
            raise found
        return found


def consumer(fake: Fake) -> InStepConsumer:
    return InStepConsumer(cast(OwnConsumer, fake), cast(Team, fake))


def test_all_are_told_the_very_steps_before_the_first_of_them() -> None:
    fake = Fake([window(6)])
    made = consumer(fake)
    assert made.window("data", steps=5, warmup=2) == window(6)
    assert fake.asked == [Train(6, 4), ("data", 6, 4), "others"]
    assert (made.kind, made.sentence) == ("loop", "a Python loop, in 2 processes in step")


@pytest.mark.parametrize("own", [0.0, 0.3])
def test_a_window_in_which_any_has_compiled_is_taken_again_by_all(own: float) -> None:
    fake = Fake([window(compile_seconds=own), window()], others=[[window(compile_seconds=0.2)], [window()]])
    assert consumer(fake).window("data", steps=4, warmup=0) == window()
    assert fake.asked == 2 * [Train(5, 2), ("data", 5, 2), "others"]


def test_one_that_compiles_for_ever_is_taken_twice_and_says_so() -> None:
    fake = Fake([window(), window()], others=[[window(compile_seconds=0.2)], [window(compile_seconds=0.1)]])
    assert consumer(fake).window("data", steps=4, warmup=0).compile_seconds == 0.1


def test_where_the_loop_has_ended_it_has_for_all() -> None:
    fake = Fake([RunFailed("The script's loop ended.")])
    with pytest.raises(RunFailed, match="loop ended"):
        consumer(fake).window("data", steps=4, warmup=0)
    assert fake.asked[-1] == "others", "their answers are not left for the next window"


def test_a_step_that_raises_puts_the_workers_out_of_step() -> None:
    with pytest.raises(FellOut, match="on worker 0: it raised") as caught:
        consumer(Fake([raised("it raised")])).window("data", steps=4, warmup=0)
    assert isinstance(caught.value.__cause__, ValueError), "of the user"


# -- the other workers


@pytest.fixture
def link() -> Iterator[tuple[Link, Link]]:
    """The chief's end, and the follower's."""
    near, far = socket.socketpair()
    made = Link(near.detach()), Link(far.detach())
    yield made
    for end in made:
        end.close()


def follow(fake: Fake, link: tuple[Link, Link], *orders: Order, trains: bool = True) -> tuple[list[Answer], list[str]]:
    """The follower's answers, the first to no order; and why it fell out of step."""
    told: list[str] = []
    for order in orders:
        link[0].order(order)
    own = cast(OwnConsumer, fake) if trains else None

    def fell_out(why: str, cause: BaseException | None) -> None:
        told.append(f"{why}: {cause}")

    in_step.Follower(cast(TensorFlowRunner, fake), own, link[1], out_of_step=fell_out).follow()
    return [link[0].next_answer(5) for _ in range(1 + len(orders) - isinstance(orders[-1], Leave))], told


def test_a_follower_does_what_it_is_told_until_it_may_leave(link: tuple[Link, Link]) -> None:
    fake = Fake([window(3), window()])
    plan = Plan("defaults")
    answers, told = follow(fake, link, Prepare(plan), Train(3, 1), Prepare(), MeasureInput(0.5, 0.1), Leave())
    assert answers == [
        Answer(operators=("range (n0)", "map (n1)")),
        Answer(),
        Answer(window=window(3)),
        Answer(),
        Answer(window=window()),
    ]
    assert fake.asked == [
        Prepare(plan),
        ("prepared", 3, 1),
        "restored",
        Prepare(),
        MeasureInput(0.5, 0.1),
    ]
    assert told == []


def test_a_follower_answers_why_it_cannot(link: tuple[Link, Link]) -> None:
    fake = Fake([RunFailed("The script's loop ended."), RunFailed("The dataset is empty.")])
    answers, told = follow(fake, link, Prepare(Plan("impossible")), Train(3, 1), MeasureInput(0.1, 0.0), Leave())
    why = ["", "The plan cannot be built.", "The script's loop ended.", "The dataset is empty."]
    assert [answer.why for answer in answers] == why
    assert told == [], "nobody has taken a step"


def test_a_follower_whose_step_raises_says_so_at_once(link: tuple[Link, Link]) -> None:
    fake = Fake([raised("it raised")])
    _, told = follow(fake, link, Train(3, 1), Leave())
    assert (told, fake.asked[-1]) == (["it raised: theirs"], "restored")


def test_a_follower_without_a_consumer_trains_nothing(link: tuple[Link, Link]) -> None:
    answers, _ = follow(Fake(), link, Train(3, 1), Leave(), trains=False)
    assert answers[1].why == "Nothing trains here."


def test_without_its_chief_a_follower_ends(link: tuple[Link, Link]) -> None:
    link[0].close()
    told: list[str] = []
    lost = in_step.Follower(
        cast(TensorFlowRunner, Fake()), None, link[1], out_of_step=lambda why, _cause: told.append(why)
    )
    lost.follow()
    assert told == [], "whoever started the chief knows"
    with pytest.raises(LinkBroken):
        link[1].next_order(1)


# -- a script that is measured when it is asked to


def test_a_held_script_measures_itself_or_a_baseline_until_it_may_leave(link: tuple[Link, Link]) -> None:
    asked: list[object] = []

    class Runner:
        def training_window(self, plan: Plan, *, steps: int) -> Window:
            asked.append((plan.name, steps))
            if steps == 9:
                raise RunFailed("it raised")
            return window(steps)

        def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
            asked.append((plan.name, seconds, warmup_seconds))
            return replace(window(), intervals=(0.1, 0.2))

    held = in_step.Held(
        cast(TensorFlowRunner, Runner()),
        {name: Plan(name) for name in ("defaults", "autotune")},
        patch=lambda rewrites: PatchResult(covered=rewrites),
    )
    orders: list[Order] = [
        MeasureTraining(5),
        Prepare(Plan("autotune")),
        MeasureInput(1.0, 0.5),
        MeasureTraining(9),
        Prepare(Plan("defaults")),
        MeasureTraining(6),
        WritePatch(("prefetch@n3",)),
        Train(3, 1),
        Leave(),
    ]
    for order in orders:
        link[0].order(order)
    held.serve(link[1], Answer(checked="equal"))
    answers = [link[0].next_answer(1) for _ in orders]
    assert asked == [("defaults", 5), ("autotune", 1.0, 0.5), ("autotune", 9), ("defaults", 6)]
    assert answers[0] == Answer(checked="equal"), "that it is there"
    assert [one.window.steps if one.window else one.why for one in answers[1:7]] == [5, "", 5, "it raised", "", 6]
    assert answers[3].window is not None and answers[3].window.intervals == ()
    assert answers[7].patch == PatchResult(covered=("prefetch@n3",))
    assert answers[8].why == "A script that is measured knows no such order."


# -- windows of so many steps


@pytest.mark.parametrize(("again", "taken"), [(True, 1 + 4 + 4), (False, 1 + 4)])
def test_a_window_of_a_loop_may_not_begin_again_by_itself(
    again: bool, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling.Watch, "compile_seconds", lambda *_given, **_named: 0.2)
    made = LoopWindow(tf.data.Dataset.range(9), steps=4, warmup=1, again=again)
    elements = 0
    while made.advance()[0]:
        elements += 1
    assert elements == taken
    assert made.result is not None and (made.result.steps, made.result.compile_seconds) == (4, 0.2)


def test_a_loop_counts_as_it_is_told() -> None:
    assert LoopConsumer().counts(None, steps=7, warmup=2) == (7, 2)
