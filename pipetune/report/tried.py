"""What was tried: one table of every change, with its state, its gain and what it does to the data."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pipetune.core.edits import Plan, Rewrite
from pipetune.core.pipeline import Pipeline
from pipetune.core.results import Outcome, RejectionReason, Trial
from pipetune.core.session import DatasetResult, Session
from pipetune.report import words
from pipetune.report.blocks import Block, Cell, Column, Filter, Forest, Row, Sentence, Table, ratio_axis
from pipetune.report.places import Places
from pipetune.report.words import Figure, interval, operator_name, plan_text

_BASELINE = "baseline"
_ABLATION = "ablation"  # of a plan without one of its rewrites: its interval is what that one gains over the others
_LAST = ("verification", "confirmation")  # of the whole plan: their interval is the headline's

_SHOWN = ("in the patch", "in the plan", "likely", "undecided", "needs approval")
"""States that a reader sees first; the others when asked for."""

_COLOURS = {
    "in the patch": "good",
    "in the plan": "good",
    "faster": "good",
    "likely": "amber",
    "undecided": "amber",
    "needs approval": "amber",
    "failed": "bad",
    "changes the data": "bad",
}

_OUTCOMES = {
    Outcome.ACCEPTED: "faster",
    Outcome.REJECTED: "not faster",
    Outcome.SCREENED: "not promising",
    Outcome.SKIPPED: "not tried",
    Outcome.REFUSED: "not tried",
    Outcome.FAILED: "failed",
    Outcome.UNDECIDED: "undecided",
}

_REASONS = {
    RejectionReason.NOT_EQUAL: "changes the data",
    RejectionReason.NOT_COMPARED: "not compared",
    RejectionReason.FAILED: "failed",
    RejectionReason.REFUSED: "not tried",
    RejectionReason.EXCLUDED: "not tried",
    RejectionReason.OTHER_KIND: "not tried",
    RejectionReason.PREDICTED_SLOWER: "not tried",
    RejectionReason.NOT_EXPECTED: "not promising",
    RejectionReason.NOT_FASTER: "not faster",
    RejectionReason.ADDS_NOTHING: "not faster",
    RejectionReason.UNDECIDED: "undecided",
    RejectionReason.NO_TIME: "undecided",
    RejectionReason.NEEDS_CONSENT: "not promising",  # what is promising is offered
}

_FENCE = 3.0  # interquartile ranges beyond a quartile: "far out" (Tukey, Exploratory Data Analysis, 1977)
_FEWEST = 5  # pairs without which quartiles say nothing
_NAMED = 3


def tried(session: Session, places: Places) -> Iterator[Block]:
    result = session.main_dataset
    if result is None:
        return
    if table := changes_table(session, result, places):
        yield table
    for note in dict.fromkeys(places.sentence(note) for note in session.notes if note):
        yield Sentence(note, quiet=True)


def changes_table(session: Session, result: DatasetResult, places: Places) -> Table | None:
    """The table of one dataset; the session's trials are those of the main one."""
    trials = session.trials if result is session.main_dataset else ()
    found = list(_Changes(session, result, trials, places).rows())
    if not found:
        return None
    order = list(dict.fromkeys((*_SHOWN, *sorted(row.state for row in found))))
    found.sort(key=lambda row: order.index(row.state))  # stable: within a state as they were found
    counts = Counter(row.state for row in found)
    return Table(
        "Gain over the current pipeline, of a part of the plan over the rest of it; dots are single pairs of "
        "measurements, the bar is the interval",
        (Column("Change"), Column("Where"), Column("State"), Column("Gain"), Column(""), Column("Data"), Column("Why")),
        tuple(found),
        filters=tuple(Filter(state, counts[state], state in _SHOWN) for state in order if counts[state]),
        sortable=True,
    )


class _Changes:
    """The rows of one dataset. Each change is in one row: in the plan, offered, tried, or left out."""

    def __init__(self, session: Session, result: DatasetResult, trials: Iterable[Trial], places: Places) -> None:
        self._session = session
        self._result = result
        self._places = places
        self._pipelines: tuple[Pipeline | None, ...] = (result.tuned, result.pipeline)
        self._pairs = {interval(one.gain, words.ratio): one.ratios for one in trials if one.gain is not None}
        if (candidate := result.candidate) is not None:
            own = (one.ratios for one in trials if one.plan.key == candidate.plan.key)
            self._pairs[interval(candidate.gain, words.ratio)] = next(filter(None, own), ())
        self._trials = [trial for trial in trials if trial.kind not in (_BASELINE, _ABLATION, *_LAST)]
        offers = (offer.gain for offer in result.offered)
        gains = [*result.gains.values(), *(trial.gain for trial in self._trials), *offers]
        self._axis = ratio_axis(interval(gain, words.ratio) for gain in gains if gain is not None)
        self._told: set[str] = set()  # keys of rewrites
        self._places_told: set[tuple[str, str]] = set()  # rule and operator

    def rows(self) -> Iterator[Row]:
        yield from self._planned()
        yield from self._candidate()
        yield from self._offered()
        yield from self._tried()
        yield from self._rejected()
        yield from self._silent()

    def _planned(self) -> Iterator[Row]:
        plan, shipped = self._result.plan, self._session.patch
        patch = shipped if self._result is self._session.main_dataset else self._result.patch
        for rewrite in plan.rewrites if plan else ():
            covered = patch is not None and shipped is not None and bool(shipped.diff) and rewrite.key in patch.covered
            gain = interval(self._result.gains.get(rewrite.key), words.ratio, why="not measured on its own")
            state = "in the patch" if covered else "in the plan"
            yield self._rewrite(rewrite, state, gain, self._places.sentence(rewrite.summary))

    def _candidate(self) -> Iterator[Row]:
        candidate = self._result.candidate
        if candidate is None:
            return
        rewrites = candidate.plan.rewrites
        own = interval(candidate.gain if len(rewrites) == 1 else None, words.ratio, why="not measured on its own")
        state = "likely" if candidate.likely else "undecided"
        level = " The interval holds 80 of 100 cases." if own.known else ""
        for rewrite in rewrites:
            yield self._rewrite(rewrite, state, own, self._places.sentence(rewrite.summary) + level)

    def _offered(self) -> Iterator[Row]:
        for offer in self._result.offered:
            gain = interval(offer.gain, words.ratio, why="not measured")
            approve = f"Allow it with {words.clean(offer.consent)}."
            why = (self._places.sentence(offer.rewrite.summary), self._places.sentence(offer.why), approve)
            state = "needs approval"
            yield self._rewrite(offer.rewrite, state, gain, " ".join(filter(None, why)))

    def _tried(self) -> Iterator[Row]:
        for trial in self._trials:
            rewrites = trial.plan.rewrites
            if len(rewrites) == 1 and rewrites[0].key in self._told:
                continue
            foreign = trial.outcome is Outcome.FAILED
            why = self._places.foreign(trial.why) if foreign else words.clean(trial.why)
            text = " ".join(filter(None, (words.sentence(why), outlier_sentence(trial.ratios))))
            gain = interval(trial.gain, words.ratio, why="no pair was measured")
            yield self._row(trial.plan, _OUTCOMES[trial.outcome], gain, text, trial.ratios)

    def _rejected(self) -> Iterator[Row]:
        left = (one for one in self._result.rejected if (one.rule, one.node) not in self._places_told)
        for rejection, times in Counter(left).items():
            gain = interval(rejection.gain, words.ratio, why="no speed was measured")
            why = self._places.sentence(rejection.why) + (f" ({times} variants)" if times > 1 else "")
            state = _REASONS[rejection.reason] if rejection.reason is not None else "not faster"
            yield self._at(rejection.rule, rejection.node, state, gain, why)

    def _silent(self) -> Iterator[Row]:
        for silence in self._result.silences:
            missing = Figure(why="it does not apply")
            yield self._at(silence.rule, silence.node, "does not apply", missing, self._places.sentence(silence.why))

    def _rewrite(self, rewrite: Rewrite, state: str, gain: Figure, why: str) -> Row:
        return self._row(Plan(rewrite.rule, (rewrite,)), state, gain, why, self._pairs.get(gain, ()))

    def _row(self, plan: Plan, state: str, gain: Figure, why: str, pairs: tuple[float, ...]) -> Row:
        rules, edits = plan_text(plan, *self._pipelines)
        nodes = list(dict.fromkeys(rewrite.node for rewrite in plan.rewrites))
        if len(plan.rewrites) == 1:
            self._told.add(plan.rewrites[0].key)
            self._places_told.add((plan.rewrites[0].rule, plan.rewrites[0].node))
        safety = plan.safety.name.lower() if plan.rewrites else ""
        return self._cells(Cell(rules, note=edits), nodes, state, gain, safety, why, pairs)

    def _at(self, rule: str, node: str, state: str, gain: Figure, why: str) -> Row:
        change = Cell(words.clean(rule), note=f"at {operator_name(node, *self._pipelines)}")
        return self._cells(change, [node], state, gain, "", why, ())

    def _cells(
        self, change: Cell, nodes: list[str], state: str, gain: Figure, safety: str, why: str, pairs: tuple[float, ...]
    ) -> Row:
        places = [place for node in nodes if (place := self._places.place_of_node(node, *self._pipelines))]
        where = Cell(place=places[0]) if places else Cell(why="the call is unknown")
        if len({place.text for place in places}) > 1:
            where = replace(where, note=f"and {len({place.text for place in places}) - 1} more")
        colour = _COLOURS.get(state, "plain")
        shown = Cell(gain.short, note=gain.span, sort=gain.value) if gain.known else Cell(why=gain.why)
        drawn = Cell(forest=Forest(gain, self._axis, pairs, colour)) if gain.known or pairs else Cell()
        cells = (change, where, Cell(state, chip=colour), shown, drawn, Cell(safety), Cell(why))
        return Row(cells, state=state)


def far_out(ratios: Sequence[float]) -> tuple[float, ...]:
    """The ratios beyond Tukey's outer fences, on logs, furthest first."""
    logs = [math.log(ratio) for ratio in ratios if ratio > 0]
    if len(logs) < _FEWEST:
        return ()
    low, middle, high = statistics.quantiles(logs, n=4, method="inclusive")
    reach = _FENCE * (high - low)
    found = [one for one in logs if one < low - reach or one > high + reach]
    return tuple(math.exp(one) for one in sorted(found, key=lambda one: -abs(one - middle)))


def outlier_sentence(ratios: Sequence[float]) -> str:
    """Pairs that lie far from the others are said, and kept: none is ever left out of an interval.

    "2 of 16 pairs lie far from the others (0.41x, 2.10x); they count in the interval."; '' without any.
    """
    found = far_out(ratios)
    if not found:
        return ""
    named = ", ".join(words.ratio(one) for one in found[:_NAMED]) + (", ..." if len(found) > _NAMED else "")
    lie, they = ("lies", "it counts") if len(found) == 1 else ("lie", "they count")
    pairs = words.count(len(ratios), "pair")
    return f"{len(found)} of {pairs} {lie} far from the others ({named}); {they} in the interval."
