"""The suite's only access to pipetune, with the suite's own types.

It runs on any version of pipetune: renamed or moved functions are looked up only here. pipetune's comparison is not
used to find the truth; the suite only records what it would have accepted.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from pipetune import probes
from pipetune.core.edits import Plan, Rewrite, Safety, apply_edits, needs_comparison
from pipetune.core.errors import PipetuneError
from pipetune.core.functions import GRAPH_EDITS
from pipetune.core.measurement import RunFailed
from pipetune.core.operators import operator_facts
from pipetune.core.pipeline import AUTOTUNE, Pipeline
from pipetune.core.profile import ConsumerProfile, Diagnosis, OperatorProfile, Profile, Stage, Verdict
from pipetune.core.results import BUFFER_SIZE, PARALLELISM, AutotuneValues, EqualityCheck, TunedValue
from pipetune.equality.compare import compare
from pipetune.pipelines import call_sites, live
from pipetune.pipelines.replay import replay
from pipetune.rewrites import propose_all
from pipetune.rewrites.conflicts import find_conflict
from pipetune.rewrites.rule import RuleContext
from pipetune.search.runner import allows

COMPARE_SECONDS = 20.0  # the command's limit for one comparison: `stages/study.py`


@dataclass(frozen=True)
class Proposal:
    """A rewrite that a rule proposes for one pipeline."""

    rule: str
    key: str  # identifies it within the pipeline, equal in every run
    safety: str
    numbers_only: bool  # it cannot change values or order: reading ahead, parallel calls, threads
    functional: bool  # replaces a function by a variant: on batches, split in two, or on another operator's input
    random: bool  # draws or order differ from run to run
    rewrite: Rewrite


@dataclass(frozen=True)
class Answer:
    """The result of pipetune's own comparison of a plan."""

    accepted: bool
    safety: str
    why: str  # the difference, or the reason why it could not compare
    notes_zeros: bool  # it notes that the sign of zeros, or denormals, may change


@dataclass(frozen=True)
class Facts:
    """The facts given to rules besides the pipeline; invented, so that as many rules as possible propose."""

    randomness_fixed: bool = False
    epochs: int | None = None
    cores_believed: int | None = None


class Crash(Exception):
    """pipetune raised an unexpected error, with which the command would have ended."""


class Refused(Exception):
    """pipetune does not build the plan; has its message."""


@contextlib.contextmanager
def _guarded(doing: str) -> Iterator[None]:
    try:
        yield
    except (PipetuneError, RunFailed) as error:
        raise Refused(f"{doing}: {error}") from error
    except Exception as error:
        raise Crash(f"{doing}: {type(error).__name__}: {str(error).strip()[:300]}") from error


def read(dataset: Any) -> Source:
    """The pipeline of a live dataset, with the variants of its functions."""
    source = built(dataset)._live
    with _guarded("reading"):
        return Source(source, probes.annotate(source))


def built(dataset: Any) -> Source:
    """The pipeline of a live dataset, to apply plans made for another dataset of the same program."""
    with _guarded("reading"):
        source = live.read(dataset)
    return Source(source, source.pipeline)


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """While open, the call sites of datasets are recorded."""
    call_sites.clear()
    with call_sites.Recorder():
        yield


class Source:
    def __init__(self, source: live.LivePipeline, told: Pipeline) -> None:
        self._live = source
        self._told = told

    def counts(self, *, most: int) -> dict[int, int]:
        """Elements per epoch of every operator with unknown cardinality, by its position; counted by draining."""
        found: dict[int, int] = {}
        for place, node in enumerate(self._live.pipeline):
            endless = any(above.cardinality == -1 for above in self._live.pipeline.upstream(node.id))
            if node.cardinality != -2 or endless:
                continue
            with contextlib.suppress(Exception):  # no count where it raises
                count = sum(1 for _ in self._live.datasets[node.id].take(most))
                if count < most:
                    found[place] = count
        return found

    def proposals(self, given: Facts, counts: dict[int, int] | None = None) -> list[Proposal]:
        """The proposals of all rules; `counts` are those of the method of this name."""
        with _guarded("proposing"):
            rewrites, _ = propose_all(self._context(given, counts or {}))
        return [_described(one) for one in rewrites]

    def joined(self, chosen: Sequence[Proposal], given: Facts) -> bool:
        with _guarded("joining"):
            return not find_conflict(self._context(given, {}), [one.rewrite for one in chosen])

    def replayed(self, chosen: Sequence[Proposal]) -> Any:
        """The dataset under a plan of these rewrites; raises `Refused` where it cannot be built."""
        with _guarded("replaying"):
            return replay(self._live, self._edited(chosen))

    def compared(self, chosen: Sequence[Proposal], *, seconds: float = COMPARE_SECONDS) -> Answer:
        """The result of pipetune's comparison of a plan of these rewrites."""
        plan = Plan("tuned", tuple(one.rewrite for one in chosen))
        try:
            with _guarded("comparing"):
                found = compare(self._live, self._edited(chosen), plan.safety, time_limit_seconds=seconds)
                accepted = allows(found, plan)
        except Refused as reason:
            return Answer(False, plan.safety.name, str(reason), False)
        said = [*found.notes, *(check.detail for check in found.checks)]
        said += [note for one in plan.rewrites for note in one.notes]
        missing = "; ".join(f"{one.name} {one.detail}" for one in found.checks if one.equal is None)
        return Answer(accepted, found.safety.name, found.why or missing, any(map(_NOTES_ZEROS.search, said)))

    def emitted(
        self, chosen: Sequence[Proposal], others: Sequence[Source] = ()
    ) -> tuple[dict[str, tuple[str, str]], tuple[str, ...]]:
        """Changed files with the text before and after, and the keys of the rewrites in them; of a script that also has
        these other datasets."""
        plan = Plan("tuned", tuple(one.rewrite for one in chosen))
        from pipetune.source.emit import emit  # imported here so that other cases do not import it

        with _guarded("emitting"):
            found = emit(self._live.pipeline, plan, other_pipelines=[other._live.pipeline for other in others])
        return dict(found.files), found.covered

    def _edited(self, chosen: Sequence[Proposal]) -> Pipeline:
        return apply_edits(self._live.pipeline, [edit for one in chosen for edit in one.rewrite.edits])

    def _context(self, given: Facts, counts: dict[int, int]) -> RuleContext:
        pipeline = self._told
        by_id = {node.id: counts[place] for place, node in enumerate(pipeline) if place in counts}
        ids = tuple(node.id for node in pipeline)
        diagnosis = Diagnosis(Verdict.INPUT_BOUND, "", bottleneck=ids[0], sequential_segments=(ids,))
        return RuleContext(
            pipeline, profile=_profile(pipeline, by_id), diagnosis=diagnosis, cores=2, serial_cycle_length=2,
            detected_cores=given.cores_believed, memory_limit_bytes=1e12, randomness_fixed=given.randomness_fixed,
            epochs=given.epochs, autotune_reading=_reading(pipeline),
        )  # fmt: skip


_NOTES_ZEROS = re.compile(r"sign of (a )?zero|zero'?s? sign|denormal|subnormal|-0\.0")
"""Messages of comparisons and rewrites that note that zeros and denormals may differ. Only here text is searched,
because earlier versions do not have a value for it."""

_PLAIN_EDITS = frozenset({"SetArgument", "Insert", "Remove", "Move", "SetOption", "ReplaceOperator"})
"""Edits that keep every traced function."""


def _described(rewrite: Rewrite) -> Proposal:
    functional = any(type(edit).__name__ not in _PLAIN_EDITS for edit in rewrite.edits)
    numbers_only, random = not needs_comparison(rewrite.edits), not rewrite.reproducible
    return Proposal(rewrite.rule, rewrite.key, rewrite.safety.name, numbers_only, functional, random, rewrite)


def _profile(pipeline: Pipeline, counts: dict[str, int]) -> Profile:
    """Every operator is expensive, every split of a function pays, every count is known."""
    visits: dict[str, float] = {pipeline.output.id: 1.0}
    for node in reversed(pipeline.nodes):
        size = node.argument("batch_size")
        ratio = float(size) if operator_facts(node.op).batches and isinstance(size, int) and size > 0 else 1.0
        for above in node.inputs:
            visits[above] = visits.get(above, 0.0) + visits.get(node.id, 0.0) * ratio
    operators = tuple(
        OperatorProfile(
            node.id, Stage.EXTRACT if operator_facts(node.op).source else Stage.TRANSFORM, cpu_seconds=1e-3,
            wall_seconds=1e-3, visits=visits.get(node.id, 1.0), bytes_out=node.element_bytes or 1000.0,
            on_batch_seconds=1e-4, variant_shares=dict.fromkeys(GRAPH_EDITS, 0.1), shrinking_share=0.1, head_share=0.5,
        )
        for node in pipeline
    )  # fmt: skip
    return Profile(operators=operators, consumer=ConsumerProfile(kind="none", why="made up"), cardinality=counts)


def _reading(pipeline: Pipeline) -> AutotuneValues:
    """Parameter readings as if AUTOTUNE had converged to two calls and two elements everywhere."""
    values = []
    for node in pipeline:
        if AUTOTUNE in (node.argument("num_parallel_calls"), node.argument("num_parallel_reads")) or node.op == "map":
            values.append(TunedValue(node.id, node.op, PARALLELISM, 2.0, 1.0, 2.0, True, 1.0))
        if node.op == "prefetch" and node.argument("buffer_size") == AUTOTUNE:
            values.append(TunedValue(node.id, node.op, BUFFER_SIZE, 2.0, 1.0, 8.0, True, 2.0))
    return AutotuneValues(tuple(values), seconds=10.0, converged=True)


def strictest(*classes: str) -> str:
    """The laxest of these classes, which is that of a plan."""
    return max((Safety[name] for name in classes), default=Safety.EXACT).name


# -- guards switched off, to show that the suite finds what they prevent


@contextlib.contextmanager
def without(guards: str) -> Iterator[bool]:
    """While open, these guards ("one and another") accept everything; yields whether this version has each of them."""
    with contextlib.ExitStack() as stack:
        there = [any([stack.enter_context(_replaced(*one)) for one in _GUARDS[name]]) for name in guards.split(" and ")]
        yield all(there)


@contextlib.contextmanager
def _replaced(module: str, name: str, value: Callable[..., Any]) -> Iterator[bool]:
    """While open, `module.name` is this function; False where this version does not have it."""
    try:
        owner: Any = importlib.import_module(module)
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        getattr(owner, last)
    except (ModuleNotFoundError, AttributeError):
        yield False
        return
    with mock.patch.object(owner, last, value):
        yield True


def _proven(*_: object) -> object:
    lifted: object = importlib.import_module("pipetune.pipelines.lifting").BatchProperties()
    return lifted


_BATCHES, _PROOF = "pipetune.probes.batches", "pipetune.equality.proof"
_WHOLE_EPOCHS = (
    (_PROOF, "EqualityProof._epochs", lambda *_: EqualityCheck("epochs", True, "switched off")),
    (_PROOF, "EqualityProof._last_batches", lambda *_: []),
)
_GUARDS: dict[str, tuple[tuple[str, str, Callable[..., Any]], ...]] = {
    "none": (),
    "structure": (  # any function with the expected spec may run on batches
        (_BATCHES, "lifting.prove_rows", _proven),
        ("pipetune.pipelines.function_splitting", "prove_rows", _proven),
        (_BATCHES, "check_converters", _proven),
        (_BATCHES, "check_lengths", lambda graph: None),
    ),
    "generated inputs": ((_PROOF, "EqualityProof._generated_inputs", lambda proof: []),),
    "epochs": _WHOLE_EPOCHS,  # only the sample is compared
    "sample": (  # no values are compared: all proposals of the rules are accepted
        (_PROOF, "EqualityProof._failure", lambda *_: None),
        (_PROOF, "EqualityProof._values", lambda *_: EqualityCheck("values", True, "off")),
        *_WHOLE_EPOCHS,
    ),
}
