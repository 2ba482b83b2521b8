"""The checks of equality: values, randomness, epochs, and the structural facts that pinned runs hide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from pipetune.core.comparison import Check
from pipetune.core.edits import Safety
from pipetune.core.fused_shuffles import FUSED_SHUFFLE, fused_shuffles
from pipetune.tf.equality import distinct, generated, judging
from pipetune.tf.equality.elements import Drawn
from pipetune.tf.equality.paired_runs import CannotCompare, Graph, PairedRuns
from pipetune.tf.equality.pinning import CannotPin, Pinned, Pins

EPOCHS = 3
_NO_LIMIT = 1_000_000
_SHORTER_TRIES = 5
_MARGIN = 1.3  # safety factor on the time of three epochs, estimated from one
_OVERTIME = 2.0  # in time limits: how long shorter samples are tried if three epochs did not fit
_LAST_BATCHES = 0.5  # share of the time limit for each epoch with another number of rows in its last batch
_ONE_RUN = 0.3  # share of the time limit for one run of the functions on generated elements
_ZEROS = "The sign of zeros, and what becomes of denormals, differs: numbers alone and in packets are computed so."
_PROOF = ("values", "epochs", "randomness", "last batches", "generated inputs")


class Proof:
    """Runs the checks of one comparison; `elements` and `epochs` say how much was compared."""

    def __init__(self, runs: PairedRuns, seed: int) -> None:
        self._runs = runs
        self._seed = seed
        self._calls_on_batches = any(
            node.function is not None and node.function.called_on_batches for node in runs.sides[1].pipeline
        )
        self._random_ops: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._reproducible = True
        self.elements = 0
        self.epochs = 0

    def checks(self) -> list[Check]:
        """Runs all checks, as strictly as the safety class requires.

        Raises:
            CannotCompare, CannotPin, Unreadable: the values cannot be compared.
        """
        self._runs.record(until=0.15)
        if why := self._runs.hidden_error(until=0.25):
            return [Check("values", False, why)]
        invented = self._generated_inputs()
        if any(check.equal is False for check in invented):
            return invented
        if self._runs.safety == Safety.EXACT:
            return [*invented, *self._pinned_checks(Pins(self._seed), until=0.95)]
        return [*invented, *self._looser_checks()]

    def _looser_checks(self) -> list[Check]:
        """Runs the checks of a safety class under which draws, order or last bits may differ."""
        checks = self._pinned_checks(Pins(self._seed), until=0.6)
        if not self._reproducible:
            return [*checks, self._randomness()]
        if not any(check.equal is False for check in checks) or not any(self._random_ops):
            return checks
        # The draws cannot be matched one by one: all else must be equal, and there must be as many of them.
        try:
            checks = self._pinned_checks(Pins(self._seed, constant=True), until=self._until(0.75))
            checks.append(self._randomness())
        except CannotPin as error:
            checks.append(Check("randomness", None, str(error)))
        self._runs.notes.append(
            "Draws do not line up one by one; values are compared with every draw the same."
        )
        missing = next((check for check in checks if check.equal is None and check.name in _PROOF), None)
        if missing is not None:  # a difference was found; without this check it is not explained by the draws
            why = (
                f"the draws differ, and the rest is not shown to be equal ({missing.name}: {missing.detail})"
            )
            checks.append(Check("randomness", False, why))
        return checks

    def _pinned_checks(self, pins: Pins, *, until: float) -> list[Check]:
        pins = replace(pins, rounds=self._runs.rounds)
        graphs = self._runs.graphs()
        one, other = (self._runs.pin(graph, pins) for graph in graphs)
        self._random_ops = (one.random_ops, other.random_ops)
        checks = self._structure(one, other)
        if self._runs.safety == Safety.REORDERS and not pins.constant and any(self._random_ops):
            # Another order assigns the draws to other elements; no run is needed to know that.
            return [*checks, Check("values", False, "the draws go to other elements")]
        begin = self._runs.elapsed
        runs = self._draw(graphs, pins, until=begin + 0.4 * (until - begin))
        checks.append(self._values(graphs, pins, *runs))
        if any(check.equal is False for check in checks):
            return checks
        seconds = (self._runs.elapsed - begin) / self._runs.drawn_share(*runs)
        fits = (until - self._runs.elapsed) / max(1e-9, _MARGIN * EPOCHS * seconds)
        if fits < 1:
            self._runs.shrink(fits)
        for _ in range(_SHORTER_TRIES):
            before = self._runs.elapsed
            check = self._epochs(one, other, pins, until)
            if check.equal is not None or self._runs.elapsed > _OVERTIME:
                break
            # If the speed was overestimated, three epochs do not fit: a proof that stops just short of them is none.
            self._runs.shrink(0.5)
            until = max(until, 2 * self._runs.elapsed - before)
        checks.append(check)
        return [*checks, *self._last_batches(pins)] if check.equal else checks

    def _last_batches(self, pins: Pins) -> list[Check]:
        """Compares whole epochs whose last batch has one row, two rows, and one row less than a full batch."""
        compared: list[int] = []
        for rows, count in self._runs.last_batches().items():
            with self._runs.elements(count):
                graphs = self._runs.graphs()
                own = replace(pins, epochs=1, rounds=self._runs.rounds)
                first, second = self._draw(graphs, own, until=self._runs.elapsed + _LAST_BATCHES)
                failure = self._failure("last batches", graphs, own, first, second)
            if failure is not None:
                return [replace(failure, detail=f"{failure.detail} (an epoch that ends in a batch of {rows})")]
            if not (first.complete and second.complete):
                return [Check("last batches", None, f"the time ended before one of {rows} rows", late=True)]
            compared.append(rows)
        if not compared:
            return []
        return [Check("last batches", True, f"epochs that end in batches of {', '.join(map(str, compared))}")]

    def _generated_inputs(self) -> list[Check]:
        """Compares the part in which the pipelines differ on generated elements, beyond those that were sampled."""
        region = generated.changed_region(*self._runs.sides)
        if region is None:
            return []
        runs = self._runs.within(region)
        elements = generated.generate(
            region,
            count=max(generated.FEWEST, runs.needed),
            seed=self._seed,
            sample=self._runs.recordings.get(region.start),
            extremes=self._runs.safety != Safety.APPROXIMATE,
        )
        if elements is None:
            self._runs.notes.append("No elements can be generated for the functions: compared on those of the data.")
            return []
        proof = Proof(runs, self._seed)
        runs.give(region.start, elements)
        for rows, count in (runs.last_batches() or {0: len(elements)}).items():
            runs.give(region.start, generated.rolled(elements, by=rows))
            with runs.elements(count):
                failure = proof._on_generated()
            if failure is not None:
                where = f" (batches of {runs.batch_size} and {rows} rows)" if rows else ""
                return [replace(failure, detail=f"{failure.detail}{where}")]
        if proof._runs.zeros_alike:
            self._runs.zeros_alike = True
            self._runs.notes.append(_ZEROS)
        return [Check("generated inputs", True, f"{len(elements)} elements for the functions that change")]

    def _on_generated(self) -> Check | None:
        """The failed or unfinished check on generated elements; None if the runs agree."""
        graphs = self._runs.graphs()
        pins = Pins(self._seed, epochs=1)
        if self._runs.safety != Safety.EXACT and self._runs.pin(graphs[0], pins).random_ops:
            pins = replace(pins, constant=True)
        first, second = self._draw(graphs, pins, until=self._runs.elapsed + _ONE_RUN)
        failure = self._failure("generated inputs", graphs, pins, first, second)
        if failure is None and not (first.complete and second.complete):
            return Check("generated inputs", None, "the time ended", late=True)
        return failure

    def _structure(self, one: Pinned, other: Pinned) -> list[Check]:
        """Checks what a pinned run hides: parallel random functions, order no longer kept, buffers, repeats."""
        checks = []
        newly = Counter(other.made_serial) - Counter(one.made_serial)
        if newly and self._runs.safety == Safety.EXACT:
            why = "a random function was made parallel: its draws change hands"
            checks.append(Check("randomness", False, why))
        if self._runs.safety < Safety.REORDERS:
            kept = other.unordered <= one.unordered
            why = "" if kept else "a parallel step no longer keeps the order"
            checks.append(Check("determinism", kept, why))
            checks.append(_listed("shuffle", "shuffle buffers", one.buffers, other.buffers))
            if len({fused_shuffles(side.pipeline) for side in self._runs.sides}) > 1:
                checks.append(Check("shuffle", False, FUSED_SHUFFLE))
        checks.append(_listed("repeats", "repeats", one.repeats, other.repeats))
        if one.unordered:
            note = "The pipeline as written does not keep its order; it is compared as if it did."
            self._runs.notes.append(note)
        return checks

    def _values(self, graphs: tuple[Graph, Graph], pins: Pins, first: Drawn, second: Drawn) -> Check:
        both = min(len(first.hashes), len(second.hashes))
        failure = self._failure("values", graphs, pins, first, second)
        if failure is not None:
            return failure
        whole = first.complete and second.complete
        if both == 0 and not self._nothing_there():
            return Check("values", None, self._runs.shortage or "no element came out of the sample")
        if not whole and self._runs.whole_epochs:
            return Check("values", None, f"the time ended after {both} elements", late=True)
        if first.errors:
            raised = ", ".join(dict.fromkeys(first.errors))
            self._runs.notes.append(f"Both raise {raised} at the same places, {len(first.errors)} times in the sample.")
        if not whole and both < self._runs.count:
            self._runs.notes.append(f"The time ended after {both} elements.")
        self.elements = max(self.elements, both)
        self.epochs = max(1, self.epochs)
        return Check("values", True, f"{both} elements")

    def _epochs(self, one: Pinned, other: Pinned, pins: Pins, until: float) -> Check:
        """Compares `EPOCHS` whole epochs."""
        limits = self._runs.shuffle_limits({*one.buffers, *other.buffers})
        if limits:
            sizes = ", ".join(f"{size} to {small}" for size, small in limits.items())
            self._runs.notes.append(f"For epochs, shuffle buffers smaller than the sample in both: {sizes}.")
        pins = replace(pins, epochs=EPOCHS, buffers=limits)
        graphs = self._runs.graphs()
        first, second = self._draw(graphs, pins, until=until)
        failure = self._failure("epochs", graphs, pins, first, second)
        if failure is not None:
            return failure
        both = min(len(first.hashes), len(second.hashes))
        if both == 0 and not self._nothing_there():
            return Check("epochs", None, "no element came out of the sample")
        if not (first.complete and second.complete):
            agree = "" if self._runs.whole_epochs else f"; the first {both} elements agree"
            return Check("epochs", None, f"the time ended before three epochs{agree}", late=True)
        self.elements = max(self.elements, both)
        self.epochs = EPOCHS
        return Check("epochs", True, f"{EPOCHS} epochs, {both} elements")

    def _failure(
        self, name: str, graphs: tuple[Graph, Graph], pins: Pins, first: Drawn, second: Drawn
    ) -> Check | None:
        """The failed check for two runs; None if they agree, or if whole epochs are required and one is incomplete.

        Its `equal` is None instead of False if two runs of the original pipeline differ as well.
        """
        if self._runs.whole_epochs and not (first.complete and second.complete):
            return None
        spare = _dropped_rows(self._runs) if self._runs.whole_epochs else 0
        why = judging.difference(first, second, self._runs.safety, spare_rows=spare)
        if not why:
            return None
        count = max(1, len(first.hashes))
        again = self._runs.draw(graphs[0], pins, count=count, until=self._runs.elapsed + 0.3)
        common = min(len(first.hashes), len(again.hashes))
        if first.hashes[:common] != again.hashes[:common]:
            self._reproducible = False
            return Check(name, None, "not reproducible, because two runs of the pipeline as written differ")
        if self._calls_on_batches and not self._runs.zeros_alike:
            # Vectorized and scalar code may yield zeros of opposite sign.
            self._runs.zeros_alike = True
            runs = self._draw(graphs, pins, until=self._runs.elapsed + 0.3)
            if not judging.difference(*runs, self._runs.safety, spare_rows=spare):
                self._runs.notes.append(_ZEROS)
                return None
            self._runs.zeros_alike = False
        return Check(name, False, why)

    def _draw(self, graphs: tuple[Graph, Graph], pins: Pins, *, until: float) -> tuple[Drawn, Drawn]:
        """Draws from both pipelines: half of the time for the first, the rest for the second."""
        whole = bool(pins.epochs) or self._runs.whole_epochs
        middle = (self._runs.elapsed + until) / 2
        count = _NO_LIMIT if whole else self._runs.count
        first = self._runs.draw(graphs[0], pins, count=count, until=middle)
        # One more than the original yields reveals added elements.
        count = len(first.hashes) + first.complete
        return first, self._runs.draw(
            graphs[1], pins, count=count, until=max(until, self._runs.elapsed + 0.1)
        )

    def _until(self, share: float) -> float:
        """`share`, but at least a tenth of the time limit from now, even if overtime has used that share up."""
        return max(share, self._runs.elapsed + 0.1)

    def _nothing_there(self) -> bool:
        """Whether the pipeline itself yields nothing, not only on this sample."""
        recordings = self._runs.recordings.values()
        return int(self._runs.datasets[0].cardinality()) == 0 or (
            bool(recordings) and all(one.complete and len(one) <= self._runs.sample for one in recordings)
        )

    def _randomness(self) -> Check:
        if not self._runs.recordings:
            return Check("randomness", None, "not compared: the source cannot be replaced by one element")
        try:
            one, other = self._runs.graphs(copies=True)
            return distinct.randomness_check(
                self._counting(one), self._counting(other), random_ops=self._random_ops
            )
        except (TimeoutError, CannotCompare) as error:
            return Check("randomness", None, f"not compared: {error}")

    def _counting(self, graph: Graph) -> Callable[[int | None], distinct.Counts]:
        def counts(free: int | None) -> distinct.Counts:
            pins = Pins(self._seed, constant=free is not None, free=free, epochs=EPOCHS)
            counter = distinct.RowCounter(batched=self._runs.batched)
            run = self._runs.draw(graph, pins, count=_NO_LIMIT, until=self._until(1.2), observe=counter)
            if not run.complete:
                raise TimeoutError("the time ended before three epochs were counted")
            return counter.counts(epochs=EPOCHS)

        return counts


def _listed(name: str, words: str, one: tuple[int, ...], other: tuple[int, ...]) -> Check:
    return Check(name, one == other, "" if one == other else f"{words} {list(one)} became {list(other)}")


def _dropped_rows(runs: PairedRuns) -> int:
    """How many rows `drop_remainder` may exchange for others in three epochs if their order differs."""
    nodes = [node for node in runs.sides[0].pipeline if node.op in ("batch", "padded_batch")]
    sizes = [node.argument("batch_size") for node in nodes if node.argument("drop_remainder")]
    return sum((size - 1) * EPOCHS for size in sizes if isinstance(size, int))
