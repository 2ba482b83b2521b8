"""Cases of pipelines: pipetune's proposals, single and combined, compared with the original over three epochs."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from tests.soundness import adapter, cases
from tests.soundness.cases import Case, Tried, asked, chosen, lot
from tests.soundness.chains import Chain, by_hand, compose, source
from tests.soundness.drained import Event, Raised, Run, Unbuilt, drain, in_order
from tests.soundness.functions import load
from tests.soundness.handwritten import HANDS
from tests.soundness.verdict import EXACT, REORDERS, Verdict, as_varied, judge

EPOCHS = 3
_MOST = 1200  # elements of an epoch that are drained: all of a finite one, the first of an endless one
_PLAIN = 4
_JOINT = 2  # plans of several rewrites that are tried for one pipeline
_AGAIN = 6
_DRAINED = 100  # more runs of the original before one of its rewrites is judged wrong,
_DRAIN_SECONDS = 45.0  # within this time


class Built:
    """A chain as a module, which builds its pipeline repeatedly."""

    def __init__(self, chain: Chain, folder: str) -> None:
        self.chain = chain
        self._folder = tempfile.mkdtemp(dir=folder)
        with cases.building():
            self._module = load(chain.text(), folder)

    def dataset(self) -> Any:
        """A new pipeline, with the same seeds each time, in a folder without cache files."""
        for name in os.listdir("."):
            if name.startswith("pipetune-cache"):
                (shutil.rmtree if os.path.isdir(name) else os.remove)(name)
        tf.random.set_seed(7)
        with cases.building():
            return self._module.make(self._folder)


def _drained(dataset: Any) -> Run:
    return drain(dataset, epochs=EPOCHS, most=_MOST)


def run(seed: str, index: int, *, folder: str, ask_all: bool = False) -> Case:
    given: dict[str, Any] = {"folder": folder, "seed": seed, "ask_all": ask_all}
    return cases.first_built("pipeline", seed, _AGAIN, lambda one: tried(compose(one), **given))


def run_by_hand(seed: str, index: int, *, folder: str, ask_all: bool = False, plain: int = 2) -> Case:
    """The case of the handwritten pipeline with this index, with `plain` rewrites that keep functions."""
    hand = HANDS[index]
    started = time.monotonic()
    case = tried(by_hand(hand), folder=folder, seed=hand.name, ask_all=ask_all, alone=True, plain=plain)
    return replace(case, family="hand", seconds=time.monotonic() - started)


@dataclass(frozen=True)
class Truth:
    runs: tuple[Run, ...]  # one if another run is equal, otherwise several
    endless: bool

    @property
    def run(self) -> Run:
        return self.runs[0]

    @property
    def repeats(self) -> bool:
        return len(self.runs) == 1


def truth_of(built: Built) -> Truth:
    """The original drained two or more times: some originals differ from run to run."""
    first = built.dataset()
    endless = int(first.cardinality()) == tf.data.INFINITE_CARDINALITY or ".repeat()" in built.chain.text()
    one = _drained(first)
    if not one.elements:
        raise Unbuilt("it gives no element")
    again = _drained(built.dataset())
    runs = (one,) if in_order(one, again) is None else (one, again, _drained(built.dataset()))
    return Truth(runs, endless or any(len(epoch) >= _MOST for epoch in one.epochs))


def drained_more(built: Built, truth: Truth) -> Truth:
    """The truth about an original with two equal runs, extended by different runs that occur occasionally.

    Branches of one shuffle draw its seeds in the order in which their iterators are created: where the script
    prefetches in one of them, or TensorFlow parallelizes a map, one run in ten may pair other elements.
    """
    end = time.monotonic() + _DRAIN_SECONDS
    runs = list(truth.runs)
    for _ in range(_DRAINED if truth.repeats else 0):
        if time.monotonic() > end:
            break
        again = _drained(built.dataset())
        if all(in_order(run, again) is not None for run in runs):
            runs.append(again)
    return truth if len(runs) == len(truth.runs) else replace(truth, runs=tuple(runs))


def tried(
    chain: Chain, *, folder: str, seed: str = "", ask_all: bool = False, alone: bool = False, plain: int = _PLAIN
) -> Case:
    """The proposals for the pipeline, single and combined (unless `alone`), and the truth about them.

    With `ask_all` every proposal is compared, not only those that are wrong and some others; `plain` keep functions.
    """
    built = Built(chain, folder)
    truth = truth_of(built)

    def planned() -> tuple[Sequence[adapter.Proposal], cases.Plans]:
        source, facts, proposals = _proposed(built)
        plans = [[one] for one in chosen(proposals, salt=seed, plain=plain)]
        return proposals, [*plans, *([] if alone else joint(source, proposals, facts, salt=seed))]

    def of_plan(plan: Sequence[adapter.Proposal]) -> Tried:
        return _tried(built, plan, truth, ask=ask_all or (asked(plan[0], salt=seed) and len(plan) == 1))

    return cases.of_plans(Case("pipeline", seed, operations=chain.operations), planned, of_plan, chain.packed)


def _proposed(built: Built) -> tuple[adapter.Source, adapter.Facts, list[adapter.Proposal]]:
    source, facts = adapter.read(built.dataset()), adapter.Facts(**built.chain.facts)
    return source, facts, source.proposals(facts, source.counts(most=_MOST))


def joint(
    source: adapter.Source, proposals: Sequence[adapter.Proposal], facts: adapter.Facts, *, salt: str
) -> list[list[adapter.Proposal]]:
    """Plans of two to four rewrites that pipetune would combine, in the order in which it applies them."""
    rng = random.Random(f"{salt}/joint")
    plans = []
    for number in range(_JOINT * 4):
        if len(plans) == _JOINT or len(proposals) < 2:
            break
        order = sorted(proposals, key=lambda one: lot(f"{salt}/{number}", one))
        wanted = order[: rng.choice([2, 2, 3, 4])]
        plan = [one for one in proposals if any(one is other for other in wanted)]
        with contextlib.suppress(adapter.Refused, adapter.Crash):
            if len(plan) > 1 and source.joined(plan, facts):
                plans.append(plan)
    return plans


def _tried(built: Built, plan: Sequence[adapter.Proposal], truth: Truth, *, ask: bool) -> Tried:
    safety = adapter.strictest(*(one.safety for one in plan))
    candidate = _drained(adapter.built(built.dataset()).replayed(plan))

    def judged_by(truth: Truth) -> Tried:
        def verdict(notes_zeros: bool) -> Verdict:
            return judged(built.chain, truth, candidate, plan, safety, notes_zeros=notes_zeros)

        return cases.tried(plan, safety, verdict, lambda: adapter.built(built.dataset()).compared(plan), ask=ask)

    found = judged_by(truth)
    if found.wrong and (more := drained_more(built, truth)) is not truth:
        found = judged_by(more)
    return found


def judged(
    chain: Chain, truth: Truth, candidate: Run, plan: Sequence[adapter.Proposal], safety: str, *, notes_zeros: bool
) -> Verdict:
    spare = sum(int(size) - 1 for size in re.findall(r"batch\((\d+), drop_remainder=True", chain.text())) * 12
    if ".cache(" in chain.text() and all(one.rule != "cache" for one in plan):
        sound = truth.run.sound_epochs
        truth = replace(truth, runs=tuple(run.first_epochs(sound) for run in truth.runs))
        candidate = candidate.first_epochs(sound)
    found = judge(truth.run, candidate, safety, spare=spare, notes_zeros=notes_zeros)
    if (chain.racy or (safety != EXACT and chain.random)) and _CHOOSES.search(chain.text()):
        return replace(found, right=True, kind=found.kind and "UNJUDGED")  # the number of elements depends on draws
    if not found.right and safety == REORDERS and len(_BATCHES.findall(chain.text())) > 1:
        found = judge(*map(_numbers, (truth.run, candidate)), safety, spare=spare)  # batches of other batches
    dropped = "ignore_errors" in chain.text()
    if safety != EXACT and (dropped or truth.run.errors or candidate.errors):
        return replace(found, right=True)  # with other draws or in another order, other elements raise or are lost
    if found.right or candidate.spec != truth.run.spec:
        return found
    if "deterministic=False" in chain.text() and (dropped or truth.run.errors or candidate.errors):
        return Verdict(True, "UNJUDGED", found.detail)  # the elements before the one that raises vary
    unordered = "deterministic=False" in chain.text() or "deterministic = False" in chain.text()
    # Another part of an endless dataset, or of one whose order varies, has other elements.
    by_place = bool(truth.run.errors) or _BY_PLACE.search(chain.text()) is not None
    other_part = truth.endless or (unordered and by_place)
    if chain.racy:
        varied = as_varied(truth.runs, candidate) if not other_part else ""
        return Verdict(not varied, "VALUES" if varied else "UNJUDGED", varied or found.detail)
    if truth.repeats and not unordered and safety == EXACT:
        if truth.endless and "shuffle(" in chain.text():  # how far the first iterator has read ahead varies
            one, other = (replace(run, epochs=run.epochs[:1]) for run in (truth.run, candidate))
            return judge(one, other, safety, spare=spare, notes_zeros=notes_zeros)
        return found
    if other_part:
        return Verdict(True, "UNJUDGED", found.detail)
    if not (chain.random or unordered or not truth.repeats):
        return found
    if varied := as_varied(truth.runs, candidate):
        return Verdict(False, "VALUES", varied)
    if chain.style in ("number", "hand") or not (chain.random or unordered):  # a state in Python
        return Verdict(True)
    first, *others = map(_numbers, truth.runs)
    if not all(judge(first, other, REORDERS, spare=spare).right for other in others):
        return Verdict(True, "UNJUDGED", found.detail)  # the elements of the original itself vary
    return judge(first, _numbers(candidate), REORDERS, spare=spare)


_BY_PLACE = re.compile(
    r"\.(take|skip|shard|take_while|scan|enumerate|window|concatenate|rebatch|unique)\(|zip|drop_remainder|choose"
)
"""Operators whose elements depend on the order of the upstream elements."""

_CHOOSES = re.compile(r"\.(filter|take_while|group_by_window|unique)\(")
_BATCHES = re.compile(r"\.(batch|padded_batch|ragged_batch|rebatch)\(")


def _numbers(run: Run) -> Run:
    """Only the first tensor of every element, flattened: the numbers, which no function of a pair makes random."""

    def first(event: Event) -> Event:
        return event if isinstance(event, Raised) else tuple(part.reshape(-1) for part in event[:1])

    return Run(run.spec, tuple(tuple(map(first, epoch)) for epoch in run.epochs))


# -- the smallest pipeline that fails in the same way


def smaller(chain: Chain) -> Iterator[Chain]:
    """Pipelines with one operator fewer, or with a simpler one."""
    for links in cases.without_one(chain.links):
        yield replace(chain, links=links)
    for place, link in enumerate(chain.links):
        for pattern in (r", (num_parallel_calls|deterministic)=[\w.]+", r", drop_remainder=True"):
            if (text := re.sub(pattern, "", link.text)) != link.text:
                yield replace(chain, links=(*chain.links[:place], replace(link, text=text), *chain.links[place + 1 :]))
    if chain.source.operator not in ("range", "from_tensor_slices"):
        yield replace(chain, source=source(random.Random(0), chain.style))


def of_rules(chain: Chain, rules: Sequence[str], *, folder: str) -> Iterator[Tried]:
    """Plans of one rewrite of each of these rules, and the truth about them."""
    built = Built(chain, folder)
    truth = truth_of(built)
    source, facts, proposals = _proposed(built)
    plans: list[list[adapter.Proposal]] = [[]]
    for rule in rules:
        plans = [[*plan, one] for plan in plans for one in proposals if one.rule == rule][:12]
    for plan in plans:
        ordered = [one for one in proposals if any(one is other for other in plan)]
        with contextlib.suppress(adapter.Refused):
            if len(ordered) == 1 or source.joined(ordered, facts):
                yield _tried(built, ordered, truth, ask=False)
