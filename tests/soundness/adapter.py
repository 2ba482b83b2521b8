"""The one door to pipetune: what the suite asks of it, in values of the suite's own.

It runs on any version of pipetune: what was renamed or moved is looked for here and nowhere else. Nothing of
pipetune's comparison is used to find the truth; it is only asked what it would have accepted.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from pipetune import rules
from pipetune.core.autotuned import BUFFER_SIZE, PARALLELISM, AutotuneReading, TunedValue
from pipetune.core.editing import apply_edits
from pipetune.core.edits import Plan, Rewrite, Safety, needs_proof
from pipetune.core.errors import PipetuneError
from pipetune.core.measurement import RunFailed
from pipetune.core.operators import facts
from pipetune.core.pipeline import AUTOTUNE, Pipeline
from pipetune.core.profile import (
    ConsumerProfile,
    CutCosts,
    Diagnosis,
    OperatorProfile,
    Profile,
    Stage,
    Verdict,
)
from pipetune.rules.base import RuleContext
from pipetune.rules.conflicts import conflict
from pipetune.search.equality import allows
from pipetune.tf.equality.compare import compare
from pipetune.tf.pipelines import live
from pipetune.tf.pipelines.replay import replay
from pipetune.tf.script import capture

EXACT, STATISTICAL, REORDERS, APPROXIMATE = "EXACT", "STATISTICAL", "REORDERS", "APPROXIMATE"

_ANSWERS = ("on_batches", "on_inputs", "fusion", "cropping", "shrinking", "cuts", "gathering", "generators")
"""Modules that tell a pipeline what its functions do in other forms, in the order `Study.told` asks them; those that
a version does not have are left out."""

COMPARE_SECONDS = 20.0  # what the command allows for one comparison at most: `stages/study.py`


@dataclass(frozen=True)
class Proposal:
    """A rewrite that a rule proposes for one pipeline."""

    rule: str
    key: str  # names it within the pipeline, the same in every run
    safety: str
    summary: str
    group: str
    numbers_only: bool  # it cannot change values or order: reading ahead, parallel calls, threads
    functional: bool  # a function is called in another form, cut in two, or on what another source puts out
    random: bool  # it gives draws, or an order, to other elements from run to run
    rewrite: Rewrite


@dataclass(frozen=True)
class Answer:
    """What pipetune's own comparison says of a plan."""

    accepted: bool
    safety: str
    why: str  # the difference it found, or why it could not compare
    notes_zeros: bool  # it says that zeros may change their sign, or that denormals may


@dataclass(frozen=True)
class Facts:
    """What the rules are told beside the pipeline; made up, so that as many of them as possible propose."""

    profiled: bool = True
    randomness_fixed: bool = False
    partial_read: bool = False
    epochs: int | None = None
    cores_believed: int | None = None
    memory_limit_bytes: float = 1e12


class Crash(Exception):
    """pipetune itself ended with an error that is none of its own, where the command would have ended with it."""


class Refused(Exception):
    """pipetune does not build the plan, in words of its own."""


@contextlib.contextmanager
def _guarded(doing: str) -> Iterator[None]:
    try:
        yield
    except (PipetuneError, RunFailed) as error:
        raise Refused(f"{doing}: {error}") from error
    except Exception as error:
        raise Crash(f"{doing}: {type(error).__name__}: {str(error).strip()[:300]}") from error


def read(dataset: Any) -> Source:
    """The pipeline of a live dataset, with what its functions do in other forms."""
    with _guarded("reading"):
        source = live.read(dataset)
        pipeline = source.pipeline
        for name in _ANSWERS:
            with contextlib.suppress(ModuleNotFoundError):
                pipeline = importlib.import_module(f"pipetune.tf.pipelines.{name}").with_answers(source, pipeline)
    return Source(source, pipeline)


def built(dataset: Any) -> Source:
    """The pipeline of a live dataset, to apply plans to that were made for another of the same make."""
    with _guarded("reading"):
        source = live.read(dataset)
    return Source(source, source.pipeline)


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """While open, datasets remember the lines that make them."""
    capture.forget()
    with capture.Recorder():
        yield


class Source:
    """A live dataset as pipetune reads it."""

    def __init__(self, source: live.LivePipeline, told: Pipeline) -> None:
        self._live = source
        self._told = told

    @property
    def operators(self) -> tuple[str, ...]:
        """Kinds of the operators, from the source to the output."""
        return tuple(node.op for node in self._live.pipeline)

    def counts(self, *, most: int) -> dict[int, int]:
        """Elements of an epoch of every operator whose number TensorFlow does not know, by its place; drained."""
        found: dict[int, int] = {}
        for place, node in enumerate(self._live.pipeline):
            if node.cardinality != -2 or any(
                above.cardinality == -1 for above in self._live.pipeline.upstream(node.id)
            ):
                continue
            with contextlib.suppress(Exception):  # what raises has no number
                count = sum(1 for _ in self._live.datasets[node.id].take(most))
                if count < most:
                    found[place] = count
        return found

    def proposals(self, given: Facts, counts: dict[int, int] | None = None) -> list[Proposal]:
        """What all rules propose.

        Args:
            counts: elements per epoch of operators whose number TensorFlow does not know, by their place.
        """
        with _guarded("proposing"):
            rewrites, _ = rules.propose_all(self._context(given, counts or {}))
        return [_described(one) for one in rewrites]

    def joined(self, chosen: Sequence[Proposal], given: Facts) -> bool:
        """Whether pipetune would put these into one plan."""
        with _guarded("joining"):
            return not conflict(self._context(given, {}), [one.rewrite for one in chosen])

    def replayed(self, chosen: Sequence[Proposal]) -> Any:
        """The dataset under a plan of these rewrites.

        Raises:
            Refused: the plan cannot be built.
        """
        with _guarded("replaying"):
            return replay(self._live, self._edited(chosen))

    def compared(self, chosen: Sequence[Proposal], *, seconds: float = COMPARE_SECONDS) -> Answer:
        """What pipetune's comparison says of a plan of these rewrites."""
        plan = Plan("tuned", tuple(one.rewrite for one in chosen))
        try:
            with _guarded("comparing"):
                found = compare(self._live, self._edited(chosen), plan.safety, time_limit_seconds=seconds)
                accepted = allows(found, plan)
        except Refused as reason:
            return Answer(False, plan.safety.name, str(reason), False)
        said = (
            *found.notes,
            *(check.detail for check in found.checks),
            *(n for one in plan.rewrites for n in one.notes),
        )
        missing = "; ".join(f"{one.name} {one.detail}" for one in found.checks if one.equal is None)
        return Answer(accepted, found.safety.name, found.why or missing, any(map(_NOTES_ZEROS.search, said)))

    def emitted(
        self, chosen: Sequence[Proposal], others: Sequence[Source] = ()
    ) -> tuple[dict[str, tuple[str, str]], tuple[str, ...]]:
        """Changed files, text before and after; and the keys of the rewrites that are in them.

        Args:
            others: the other datasets of the script.
        """
        plan = Plan("tuned", tuple(one.rewrite for one in chosen))
        from pipetune.source.emit import emit  # here, so that other cases import nothing of it

        with _guarded("emitting"):
            found = emit(self._live.pipeline, plan, others=[other._live.pipeline for other in others])
        return dict(found.files), found.covered

    def _edited(self, chosen: Sequence[Proposal]) -> Pipeline:
        return apply_edits(self._live.pipeline, [edit for one in chosen for edit in one.rewrite.edits])

    def _context(self, given: Facts, counts: dict[int, int]) -> RuleContext:
        pipeline = self._told
        by_id = {node.id: counts[place] for place, node in enumerate(pipeline) if place in counts}
        ids = tuple(node.id for node in pipeline)
        diagnosis = Diagnosis(Verdict.INPUT_BOUND, "", bottleneck=ids[0], sequential_segments=(ids,))
        profile = _profile(pipeline, by_id) if given.profiled else None
        return RuleContext(
            pipeline,
            profile=profile,
            diagnosis=diagnosis if given.profiled else None,
            cores=2,
            cycle_length_in_force=2,
            cores_believed=given.cores_believed,
            memory_limit_bytes=given.memory_limit_bytes,
            randomness_fixed=given.randomness_fixed,
            partial_read=given.partial_read,
            epochs=given.epochs,
            autotuned=_reading(pipeline) if given.profiled else None,
        )


_NOTES_ZEROS = re.compile(r"sign of (a )?zero|zero'?s? sign|denormal|subnormal|-0\.0")
"""How a comparison or a rewrite says that zeros and denormals may differ. The one place where words are searched:
the code of before says nothing of them, and has no value to ask for."""


_PLAIN_EDITS = frozenset({"SetArgument", "Insert", "Remove", "Move", "SetOption", "ReplaceOperator"})
"""Edits that leave every function the one that was traced."""


def _described(rewrite: Rewrite) -> Proposal:
    return Proposal(
        rule=rewrite.rule,
        key=rewrite.key,
        safety=rewrite.safety.name,
        summary=rewrite.summary,
        group=rewrite.group,
        numbers_only=not needs_proof(rewrite.edits),
        functional=any(type(edit).__name__ not in _PLAIN_EDITS for edit in rewrite.edits),
        random=not rewrite.reproducible,
        rewrite=rewrite,
    )


def _profile(pipeline: Pipeline, counts: dict[str, int]) -> Profile:
    """Every operator dear, every cut of a function worth its while, every count known."""
    visits: dict[str, float] = {pipeline.output.id: 1.0}
    for node in reversed(pipeline.nodes):
        size = node.argument("batch_size")
        ratio = float(size) if facts(node.op).batches and isinstance(size, int) and size > 0 else 1.0
        for above in node.inputs:
            visits[above] = visits.get(above, 0.0) + visits.get(node.id, 0.0) * ratio
    operators = []
    for node in pipeline:
        cuts = node.function.cuts if node.function is not None else None
        costs = {cut.kind.value: CutCosts(0.5, 1e-6, 5e-4) for cut in cuts or () if not cut.why_not}
        operators.append(
            OperatorProfile(
                node=node.id,
                stage=Stage.EXTRACT if facts(node.op).source else Stage.TRANSFORM,
                cpu_seconds=1e-3,
                wall_seconds=1e-3,
                visits=visits.get(node.id, 1.0),
                bytes_out=node.element_bytes or 1000.0,
                on_batch_seconds=1e-4,
                cropping_share=0.1,
                shrinking_share=0.1,
                cuts=costs or None,
            )
        )
    return Profile(operators=tuple(operators), consumer=ConsumerProfile(kind="none", why="made up"), cardinality=counts)


def _reading(pipeline: Pipeline) -> AutotuneReading:
    """AUTOTUNE as if it had settled on two calls and two elements everywhere."""
    values = []
    for node in pipeline:
        if AUTOTUNE in (node.argument("num_parallel_calls"), node.argument("num_parallel_reads")) or node.op == "map":
            values.append(TunedValue(node.id, node.op, PARALLELISM, 2.0, 1.0, 2.0, True, 1.0))
        if node.op == "prefetch" and node.argument("buffer_size") == AUTOTUNE:
            values.append(TunedValue(node.id, node.op, BUFFER_SIZE, 2.0, 1.0, 8.0, True, 2.0))
    return AutotuneReading(tuple(values), seconds=10.0, converged=True)


def rule_names() -> tuple[str, ...]:
    """Every rule there is."""
    return tuple(rule.name for rule in rules.find_rules())


def strictest(*classes: str) -> str:
    """The laxest of these classes, which is that of a plan."""
    return max((Safety[name] for name in classes), default=Safety.EXACT).name


# -- guards switched off, to show that the suite finds what they keep out


@contextlib.contextmanager
def without(guards: str) -> Iterator[bool]:
    """While open, these of the product's guards answer that all is well; whether this version has each of them.

    Args:
        guards: their names, with " and " between them.
    """
    with contextlib.ExitStack() as stack:
        there = [any([stack.enter_context(one) for one in _GUARDS[name]()]) for name in guards.split(" and ")]
        yield all(there)


@contextlib.contextmanager
def _replaced(module: str, name: str, value: Callable[[Any], Any]) -> Iterator[bool]:
    """While open, `module.name` is what `value` makes of it; False where this version has no such thing."""
    try:
        owner: Any = importlib.import_module(module)
        for part in name.split(".")[:-1]:
            owner = getattr(owner, part)
        original = getattr(owner, name.split(".")[-1])
    except (ModuleNotFoundError, AttributeError):
        yield False
        return
    with mock.patch.object(owner, name.split(".")[-1], value(original)):
        yield True


def _structure_off() -> list[contextlib.AbstractContextManager[bool]]:
    """Whatever has the spec it should have may stand behind the batch."""
    modules = "pipetune.tf.pipelines"
    return [
        _replaced(f"{modules}.on_batches", "lifting.lift", lambda _: _proven),
        _replaced(f"{modules}.cutting", "lift", lambda _: _proven),
        _replaced(f"{modules}.on_batches", "check_converters", lambda _: _proven),
        _replaced(f"{modules}.in_two", "check_converters", lambda _: _proven),
        _replaced(f"{modules}.on_batches", "check_lengths", lambda _: lambda graph: None),
        # of the code of before
        _replaced(f"{modules}.on_batches", "_content", lambda _: lambda graph: ()),
        _replaced(f"{modules}.on_batches", "inexact_ops", lambda _: lambda graph, arguments: ()),
    ]


def _proven(*_: object) -> object:
    lifted: object = importlib.import_module("pipetune.tf.pipelines.lifting").Lifted()
    return lifted


def _inputs_off() -> list[contextlib.AbstractContextManager[bool]]:
    """Nothing is compared on generated inputs. The code of before has none."""
    return [_replaced("pipetune.tf.equality.proof", "Proof._generated_inputs", lambda _: lambda proof: [])]


def _epochs_off() -> list[contextlib.AbstractContextManager[bool]]:
    """Whole epochs are not compared, however they end, only the sample."""
    from pipetune.core.comparison import Check

    def fine(*_: object) -> Check:
        return Check("epochs", True, "switched off")

    return [
        _replaced("pipetune.tf.equality.proof", "Proof._epochs", lambda _: fine),
        _replaced("pipetune.tf.equality.proof", "Proof._last_batches", lambda _: lambda *_: []),
    ]


def _sample_off() -> list[contextlib.AbstractContextManager[bool]]:
    """No values are compared at all: what the rules propose is accepted."""
    from pipetune.core.comparison import Check

    def fine(*_: object) -> None:
        return None

    return [
        _replaced("pipetune.tf.equality.proof", "Proof._failure", lambda _: fine),
        *_epochs_off(),
        _replaced("pipetune.tf.equality.proof", "Proof._values", lambda _: lambda *_: Check("values", True, "off")),
    ]


_GUARDS: dict[str, Callable[[], list[contextlib.AbstractContextManager[bool]]]] = {
    "none": list,
    "structure": _structure_off,
    "generated inputs": _inputs_off,
    "epochs": _epochs_off,
    "sample": _sample_off,
}
