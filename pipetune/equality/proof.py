"""The checks of equality: values, randomness, epochs, the structural facts, and how the elements of two runs differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.edits import Safety
from pipetune.core.operators import FUSED_SHUFFLE, fused_shuffles, settled_operators
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.results import EqualityCheck
from pipetune.equality import sample, sharing
from pipetune.equality.elements import EPOCHS, FEW_OUTCOMES, DrawnElements, RowCounter, is_error
from pipetune.equality.paired_runs import CannotCompare, PairedRuns, SerializedPipeline
from pipetune.equality.pinning import CannotPin, PinnedDataset, PinningOptions

TOLERANCE = 1e-5
"""Relative tolerance of APPROXIMATE; absolute for values whose magnitude is below 1."""


def difference(original: DrawnElements, candidate: DrawnElements, safety: Safety, *, replaceable_rows: int = 0) -> str:
    """Returns the first difference between two runs; '' if the elements drawn from both agree.

    Args:
        original: the run of the original pipeline.
        candidate: the run of the candidate.
        safety: under REORDERS elements are compared as multisets; under APPROXIMATE within `TOLERANCE`.
        replaceable_rows: under REORDERS, how many rows may be replaced by others, but no more than half of them: in
            another order, other rows are in the last batches that `drop_remainder` drops.
    """
    if safety == Safety.REORDERS:
        return _multiset_difference(original, candidate, replaceable_rows)
    common = min(len(original.hashes), len(candidate.hashes))
    for position in range(common):
        if original.hashes[position] != candidate.hashes[position]:
            differing = _element_difference(original, candidate, position, safety)
            if differing:
                return f"element {position} differs: {differing}"
    return _length_difference(original, candidate)


def _length_difference(original: DrawnElements, candidate: DrawnElements) -> str:
    one, other = len(original.hashes), len(candidate.hashes)
    if candidate.complete and other < one:
        return f"it ends after {other} elements, the original has {one}{_or_more(original)}"
    if original.complete and one < other:
        return f"it has {other}{_or_more(candidate)} elements, the original ends after {one}"
    return ""


def _multiset_difference(original: DrawnElements, candidate: DrawnElements, spare_rows: int) -> str:
    before, after = Counter(original.hashes), Counter(candidate.hashes)
    missing, added = (before - after).total(), (after - before).total()
    if added == missing <= min(spare_rows, before.total() // 2):
        return ""
    return f"{missing} of {before.total()} elements are missing and {added} are new"


def _element_difference(original: DrawnElements, candidate: DrawnElements, position: int, safety: Safety) -> str:
    one, other = original.hashes[position], candidate.hashes[position]
    if is_error(one) or is_error(other):
        here, there = (event[0] if is_error(event) else "yields an element" for event in (other, one))
        return f"it {here}, the original {there}"
    if len(one) != len(other):
        return f"{len(other)} components instead of {len(one)}"
    index = next(number for number in range(len(one)) if one[number] != other[number])
    if not original.values or not candidate.values:
        return f"component {index}"
    pair = [tf.nest.flatten(run.values[position], expand_composites=True) for run in (original, candidate)]
    distances = [_relative_difference(a, b) for a, b in zip(*pair, strict=True) if a is not None]
    if safety == Safety.APPROXIMATE and all(distance <= TOLERANCE for distance in distances):
        return ""
    return f"component {index}, relative difference {max(distances):.3g}"


def _relative_difference(one: Any, other: Any) -> float:
    """Returns the largest relative difference of two tensors.

    Infinite if dtypes, shapes, non-finite or discrete values differ.
    """
    if one.dtype != other.dtype or one.shape != other.shape:
        return float("inf")
    a, b = np.asarray(one.numpy()), np.asarray(other.numpy())
    if not (one.dtype.is_floating or one.dtype.is_complex):
        return 0.0 if np.array_equal(a, b) else float("inf")
    a, b = a.astype(np.complex128), b.astype(np.complex128)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    a, b = a[finite], b[finite]
    return float(np.max(np.abs(a - b) / np.maximum(np.abs(a), 1.0), initial=0.0))


def _or_more(run: DrawnElements) -> str:
    return "" if run.complete else " or more"


_NO_LIMIT = 1_000_000  # elements: more than any sample yields
_MAX_SHORTER_TRIES = 5  # each with half the sample, by judgement: after so many halvings little would be compared
_TIME_MARGIN = 1.3  # safety factor on the time of three epochs, estimated from one
_MAX_OVERTIME = 3.0  # in time limits: how long shorter samples are tried if three epochs did not fit
_LAST_BATCH_SHARE = 1.0  # share of the time limit for each epoch with another number of rows in its last batch
_VALUES_SHARE = 0.5  # share of the time limit for values that their first share did not suffice for
_COUNTED_RUN_SHARE = 0.3  # share of the time limit for one run that counts outputs, if the others took all of it
_GENERATED_RUN_SHARE = 0.45  # share of the time limit for one run of the functions on generated elements
_COPIED = (0, 1, 3, 7, 15, 31)  # positions of elements to copy, in turn, where a filter rejects those before
_ZERO_SIGN_NOTE = "Signs of zeros and the handling of denormals differ, as they do between scalar and vectorized code."
_NOT_GENERATED = "No inputs can be generated for the changed functions; they are compared on elements of the data."
_PROOF_CHECKS = ("values", "epochs", "randomness", "last batches", "generated inputs")


class EqualityProof:
    """Runs the checks of one comparison; `elements` and `epochs` say how much was compared."""

    def __init__(self, runs: PairedRuns) -> None:
        self._runs = runs
        self._calls_on_batches = any(
            node.function is not None and node.function.called_on_batches for node in runs.sides[1].pipeline
        )
        # Functions that are called as one make the same draws in the same order, but in another function.
        merged = any(node.function is not None and node.function.first for node in runs.sides[1].pipeline)
        self._pins = PinningOptions(
            runs.seed,
            counted_draws=merged,
            fixed_shuffles=self._fixed_shuffles(),
            keep_remainders=runs.keeps_remainders,
        )
        self._random_ops: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._reproducible = True
        self.elements = 0
        self.epochs = 0

    def checks(self) -> list[EqualityCheck]:
        """Runs all checks, as strictly as the safety class requires, and returns them.

        Raises:
            CannotCompare, CannotPin, IncomparableElement: the values cannot be compared.
        """
        self._runs.record(until_share=0.2)
        if why := self._runs.hidden_error(until_share=0.3):
            return [EqualityCheck("values", False, why)]
        invented = self._generated_inputs()
        if any(check.equal is False for check in invented):
            return invented
        if self._runs.safety == Safety.EXACT:
            return [*invented, *self._pinned_checks(self._pins, until=0.95)]
        return [*invented, *self._relaxed_checks()]

    def _fixed_shuffles(self) -> tuple[bool, ...]:
        """Returns for each shuffle whether its order is of no account, so that all epochs may be compared in one order.

        That is so in chains where a shuffle of all elements downstream draws every order anew (`settled_operators`): a
        uniform order of elements in any order is uniform. Empty where the two pipelines differ in this.
        """
        if self._runs.safety == Safety.EXACT:
            return ()
        settled = [settled_operators(side.pipeline) for side in self._runs.sides]
        fixed, other = (
            tuple(name in ids for name in _shuffles_in_turn(side.pipeline))
            for side, ids in zip(self._runs.sides, settled, strict=True)
        )
        if fixed != other or not any(fixed):
            return ()
        self._runs.notes.append(
            "A shuffle of all elements gives each epoch an order of its own: the order in which it gets them was the "
            "same in all epochs compared."
        )
        return fixed

    def _relaxed_checks(self) -> list[EqualityCheck]:
        """Runs the checks of a safety class under which draws, order or last bits may differ."""
        checks = self._pinned_checks(self._pins, until=0.6)
        if not self._reproducible:
            return [*checks, self._randomness()]
        if not any(check.equal is False for check in checks) or not any(self._random_ops):
            return checks
        # The draws cannot be matched one by one: everything else must be equal, and the outputs must vary as much.
        try:
            checks = self._pinned_checks(
                replace(self._pins, counted_draws=False, constant_draws=True), until=self._extended_until(0.75)
            )
            checks.append(self._randomness())
        except CannotPin as error:
            checks.append(EqualityCheck("randomness", None, str(error)))
        self._runs.notes.append(
            "Random draws cannot be matched one by one; values are compared with every draw replaced by the same "
            "constant."
        )
        missing = next((check for check in checks if check.equal is None and check.name in _PROOF_CHECKS), None)
        if missing is not None:  # a difference was found; without this check it is not explained by the draws
            why = (
                f"the random draws differ, and the rest could not be shown to be equal ({missing.name}: "
                f"{missing.detail})"
            )
            checks.append(EqualityCheck("randomness", False, why, late=missing.late))
        return checks

    def _pinned_checks(self, pins: PinningOptions, *, until: float) -> list[EqualityCheck]:
        pins = replace(pins, infinite_repeat_count=self._runs.infinite_repeat_count)
        one, other = (self._runs.pin(graph, pins) for graph in self._runs.graphs())
        self._random_ops = (one.random_ops, other.random_ops)
        checks = self._structure(one, other)
        if self._runs.safety == Safety.REORDERS and not pins.constant_draws and any(self._random_ops):
            # Another order assigns the draws to other elements; no run is needed to know that.
            return [*checks, EqualityCheck("values", False, "the random draws are assigned to other elements")]
        begin = self._runs.elapsed
        first, second, failure = self._compared("values", pins, until=begin + 0.25 * (until - begin))
        values = failure or self._values(first, second)
        if values.equal is False or any(check.equal is False for check in checks):
            return [*checks, values]
        seconds = (self._runs.elapsed - begin) / self._runs.drawn_share(first, second)
        fits = (until - self._runs.elapsed) / max(1e-9, _TIME_MARGIN * EPOCHS * seconds)
        if fits < 1 and self._runs.shrink(fits) > _TIME_MARGIN * fits:
            until = _MAX_OVERTIME  # a shorter sample would not fill a batch
        for _ in range(_MAX_SHORTER_TRIES):
            before = self._runs.elapsed
            check = self._epochs(one, other, pins, until)
            if check.equal is not None or self._runs.elapsed > _MAX_OVERTIME:
                break
            # If the speed was overestimated, three epochs do not fit, and fewer of them prove nothing.
            if self._runs.shrink(0.5) == 1.0:
                break
            until = max(until, 2 * self._runs.elapsed - before)
        if check.equal and values.late:  # its share was over, and three epochs of a shorter sample fitted
            until = max(until, self._runs.elapsed + _VALUES_SHARE)
            first, second, failure = self._compared("values", pins, until=until)
            values = failure or self._values(first, second)
        checks += [values, check]
        return [*checks, *self._last_batches(pins)] if check.equal and values.equal is not False else checks

    def _last_batches(self, pins: PinningOptions) -> list[EqualityCheck]:
        """Compares whole epochs whose last batch has one row, two rows, and one row less than a full batch."""
        compared: list[int] = []
        for rows, count in self._runs.last_batches().items():
            with self._runs.exact_sample(count):
                own = replace(pins, epochs=1, infinite_repeat_count=self._runs.infinite_repeat_count)
                until = self._runs.elapsed + _LAST_BATCH_SHARE
                first, second, failure = self._compared("last batches", own, until=until)
            if failure is not None:
                return [replace(failure, detail=f"{failure.detail} (in an epoch whose last batch has {rows} rows)")]
            if not (first.complete and second.complete):
                why = f"time ran out before the epoch whose last batch has {rows} rows"
                return [EqualityCheck("last batches", None, why, late=True)]
            compared.append(rows)
        if not compared:
            return []
        return [
            EqualityCheck("last batches", True, f"epochs whose last batches have {', '.join(map(str, compared))} rows")
        ]

    def _generated_inputs(self) -> list[EqualityCheck]:
        """Compares the part in which the pipelines differ on generated elements, in addition to the sample."""
        region = sharing.changed_region(*self._runs.sides)
        if region is None:
            return []
        runs = self._runs.for_region(region)
        elements = sample.generate(
            region,
            count=max(sample.MIN_ELEMENTS, runs.needed),
            seed=self._runs.seed,
            sample=self._runs.recordings.get(region.start),
            extremes=self._runs.safety != Safety.APPROXIMATE,
        )
        if elements is None:
            self._runs.notes.append(_NOT_GENERATED)
            return []
        proof = EqualityProof(runs)
        runs.use_elements(region.start, elements)
        counts = runs.last_batches()
        if max((rows + count for rows, count in counts.items()), default=0) < len(elements):
            counts[0] = len(elements)  # batches are small, or larger than all elements: the others are left out there
        for rows, count in counts.items():
            runs.use_elements(region.start, sample.roll_rows(elements, by=rows))
            with runs.exact_sample(count):
                failure = proof._generated_difference()
            if failure is not None:
                where = f" (batches of {runs.batch_size} and {rows} rows)" if rows else ""
                return [replace(failure, detail=f"{failure.detail}{where}")]
        if not proof.elements:  # fewer than a batch that `drop_remainder` keeps
            self._runs.notes.append(_NOT_GENERATED)
            return []
        if proof._runs.normalize_zeros:
            self._runs.normalize_zeros = True
            self._runs.notes.append(_ZERO_SIGN_NOTE)
        return [
            EqualityCheck("generated inputs", True, f"{len(elements)} generated elements for the changed functions")
        ]

    def _generated_difference(self) -> EqualityCheck | None:
        """Returns the failed or unfinished check on generated elements; None if the runs agree."""
        pins = replace(self._pins, epochs=1)
        if self._runs.safety != Safety.EXACT and self._runs.pin(self._runs.graphs()[0], pins).random_ops:
            pins = replace(pins, constant_draws=True)
        until = self._runs.elapsed + _GENERATED_RUN_SHARE
        first, second, failure = self._compared("generated inputs", pins, until=until)
        if failure is None and not (first.complete and second.complete):
            return EqualityCheck("generated inputs", None, "time ran out", late=True)
        self.elements = max(self.elements, len(first.hashes) - len(first.errors))
        return failure

    def _structure(self, one: PinnedDataset, other: PinnedDataset) -> list[EqualityCheck]:
        """Checks what a pinned run does not show: parallel random functions, lost order, buffers, repeats."""
        checks = []
        newly = Counter(other.parallel_draws) - Counter(one.parallel_draws)
        if newly and self._runs.safety == Safety.EXACT:
            why = "a random function was made parallel: its draws are assigned to other elements"
            checks.append(EqualityCheck("randomness", False, why))
        if self._runs.safety < Safety.REORDERS:
            kept = other.unordered_operators <= one.unordered_operators
            why = "" if kept else "a parallel operator no longer keeps the order"
            checks.append(EqualityCheck("determinism", kept, why))
            checks.append(_list_check("shuffle", "shuffle buffers", one.buffers, other.buffers))
            if len({fused_shuffles(side.pipeline) for side in self._runs.sides}) > 1:
                checks.append(EqualityCheck("shuffle", False, FUSED_SHUFFLE))
        checks.append(_list_check("repeats", "repeats", one.repeats, other.repeats))
        if one.unordered_operators:
            note = "The current pipeline does not keep its order; it is compared as if it did."
            self._runs.notes.append(note)
        return checks

    def _values(self, first: DrawnElements, second: DrawnElements) -> EqualityCheck:
        """Returns the check of two runs that agree."""
        both = min(len(first.hashes), len(second.hashes))
        whole = first.complete and second.complete
        if self._shows_nothing(first, both):
            return self._no_element("values", whole=whole)
        if not whole and self._runs.whole_epochs:
            return EqualityCheck("values", None, f"time ran out after {_elements(both)}", late=True)
        if first.errors:
            raised = ", ".join(dict.fromkeys(first.errors))
            self._runs.notes.append(
                f"Both pipelines raise {raised} at the same positions, {len(first.errors)} times in the sample."
            )
        if not whole and both < self._runs.count:
            self._runs.notes.append(f"Time ran out after {_elements(both)}.")
        self.elements = max(self.elements, both)
        self.epochs = max(1, self.epochs)
        return EqualityCheck("values", True, _elements(both))

    def _no_element(self, name: str, *, whole: bool) -> EqualityCheck:
        """The check of runs without an element, which more time would give where the time was over."""
        shortage = self._runs.shortage
        if self._runs.out_of_time or not whole:
            late = "time ran out before the first element"
            return EqualityCheck(name, None, f"{late}: {shortage}" if shortage else late, late=True)
        return EqualityCheck(name, None, shortage or "the sample yielded no element")

    def _epochs(self, one: PinnedDataset, other: PinnedDataset, pins: PinningOptions, until: float) -> EqualityCheck:
        """Compares `EPOCHS` whole epochs."""
        limits = self._runs.shuffle_limits({*one.buffers, *other.buffers})
        if limits:
            sizes = ", ".join(f"{size} to {small}" for size, small in limits.items())
            self._runs.notes.append(
                f"To compare epochs, shuffle buffers were made smaller than the sample in both pipelines: {sizes}."
            )
        pins = replace(pins, epochs=EPOCHS, buffers=limits)
        first, second, failure = self._compared("epochs", pins, until=until)
        if failure is not None:
            return failure
        both = min(len(first.hashes), len(second.hashes))
        whole = first.complete and second.complete
        if self._shows_nothing(first, both):
            return self._no_element("epochs", whole=whole)
        if not whole:
            agree = "" if self._runs.whole_epochs else f"; the first {both} elements agree"
            return EqualityCheck("epochs", None, f"time ran out before three epochs were compared{agree}", late=True)
        self.elements = max(self.elements, both)
        self.epochs = EPOCHS
        return EqualityCheck("epochs", True, f"{EPOCHS} epochs, {_elements(both)}")

    def _compared(
        self, name: str, pins: PinningOptions, *, until: float
    ) -> tuple[DrawnElements, DrawnElements, EqualityCheck | None]:
        """Returns elements of both pipelines, and the failed check of this name if they differ.

        No check failed if required whole epochs are incomplete. The `equal` of the failed one is None instead of False
        if two runs of the original pipeline differ as well.
        """
        runs, graphs = self._runs, self._runs.graphs()
        count = _NO_LIMIT if pins.epochs or runs.whole_epochs else runs.count
        first, second = runs.draw_both(graphs, pins, count=count, until_share=until)
        if runs.whole_epochs and not (first.complete and second.complete):
            return first, second, None
        spare = runs.dropped_rows * (pins.epochs or 1) if runs.whole_epochs else 0
        why = difference(first, second, runs.safety, replaceable_rows=spare)
        if not why:
            return first, second, None
        again = runs.draw(graphs[0], pins, count=max(1, len(first.hashes)), until_share=runs.elapsed + 0.3)
        common = min(len(first.hashes), len(again.hashes))
        if first.hashes[:common] != again.hashes[:common]:
            self._reproducible = False
            why = "not reproducible, because two runs of the current pipeline differ"
            return first, second, EqualityCheck(name, None, why)
        if self._calls_on_batches and not runs.normalize_zeros:
            # Vectorized and scalar code may yield zeros of opposite sign.
            runs.normalize_zeros = True
            both = runs.draw_both(graphs, pins, count=count, until_share=runs.elapsed + 0.3)
            if not difference(*both, runs.safety, replaceable_rows=spare):
                runs.notes.append(_ZERO_SIGN_NOTE)
                return first, second, None
            runs.normalize_zeros = False
        return first, second, EqualityCheck(name, False, why)

    def _extended_until(self, share: float) -> float:
        """Returns `share`, or a tenth of the time limit from now if that is later."""
        return max(share, self._runs.elapsed + 0.1)

    def _shows_nothing(self, run: DrawnElements, count: int) -> bool:
        """Whether the first `count` elements of a run show nothing of the data: there is none, or each is an error.

        Unless the pipeline itself yields nothing, not only on this sample.
        """
        empty = int(self._runs.datasets[0].cardinality()) == 0 or self._runs.serves_all
        return all(map(is_error, run.hashes[:count])) and (count > 0 or not empty)

    def _randomness(self) -> EqualityCheck:
        if not self._runs.recordings:
            return EqualityCheck("randomness", None, "not compared: the source cannot be replaced by one element")
        try:
            for position in _COPIED:
                self._runs.copied = position
                one, other = map(self._row_counter, self._runs.graphs(copies=True))
                found = randomness_check(one, other, random_ops=self._random_ops)
                if found is not None:
                    return found
        except (TimeoutError, CannotCompare) as error:
            late = isinstance(error, TimeoutError)
            return EqualityCheck("randomness", None, f"not compared: {error}", late=late)
        return EqualityCheck("randomness", None, "not compared: copies of single elements yield no output")

    def _row_counter(self, graph: SerializedPipeline) -> Callable[[int | None], RowCounter]:
        def counted(free: int | None) -> RowCounter:
            pins = PinningOptions(self._runs.seed, constant_draws=free is not None, free_op=free, epochs=EPOCHS)
            counter = RowCounter(batched=self._runs.batched)
            until = max(self._extended_until(1.2), min(_MAX_OVERTIME, self._runs.elapsed + _COUNTED_RUN_SHARE))
            run = self._runs.draw(graph, pins, count=_NO_LIMIT, until_share=until, observe=counter)
            if not run.complete:
                raise TimeoutError("time ran out before three epochs were counted")
            return counter

        return counted


def _list_check(name: str, words: str, one: tuple[int, ...], other: tuple[int, ...]) -> EqualityCheck:
    return EqualityCheck(name, one == other, "" if one == other else f"{words} {list(one)} became {list(other)}")


def _elements(count: int) -> str:
    return f"{count} element{'s' if count != 1 else ''}"


def _shuffles_in_turn(pipeline: Pipeline) -> list[str]:
    """Returns the ids of the shuffles as the graph of a dataset has them: input by input, and each as often as read."""

    def in_turn(node: Node) -> Iterator[str]:
        for name in node.inputs:
            yield from in_turn(pipeline[name])
        if node.op == "shuffle":
            yield node.id

    return list(in_turn(pipeline.output))


_MANY_OUTCOMES = 0.02
"""The same tolerance if (almost) every output of the original is distinct."""


def randomness_check(
    original: Callable[[int | None], RowCounter],
    candidate: Callable[[int | None], RowCounter],
    *,
    random_ops: tuple[tuple[str, ...], tuple[str, ...]],
) -> EqualityCheck | None:
    """Returns the check that the candidate's outputs vary as much as the original's; None if there are none.

    Args:
        original: counts rows of the original pipeline over `EPOCHS` epochs, with every draw free (None) or with only
            the random op of this index free and all others constant.
        candidate: the same for the candidate.
        random_ops: the random op types of each pipeline, in order.
    """
    numbers: list[int | None] = [None]
    if random_ops[0] == random_ops[1] and len(random_ops[0]) > 1:
        numbers += range(len(random_ops[0]))
    for number in numbers:
        one, other = original(number), candidate(number)
        if not one.rows:
            return None
        now = other.counts()
        for what, before in one.counts().items():
            after = now[what]
            many = before >= (1 - _MANY_OUTCOMES) * len(one.rows)
            by_chance = _MANY_OUTCOMES if many else FEW_OUTCOMES[what]
            if abs(before - after) > by_chance * before:
                which = "" if number is None else f" when only {random_ops[0][number]} is random"
                detail = f"{after} distinct outputs {what}, {before} in the current pipeline{which}"
                return EqualityCheck("randomness", False, detail)
    return EqualityCheck(
        "randomness", True, "as many distinct outputs per batch and over all epochs as in the current pipeline"
    )
