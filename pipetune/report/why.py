"""Why training waits: the chain of operators with what each takes of a training step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import Diagnosis, OperatorProfile, Profile, Verdict
from pipetune.core.session import DatasetResult, Session
from pipetune.report import words
from pipetune.report.blocks import Block, Cell, Column, Facts, Listing, Part, Row, Sentence, Table
from pipetune.report.distribution import between
from pipetune.report.files import storage_sentence
from pipetune.report.places import Places
from pipetune.report.step_times import epochs_sentence
from pipetune.report.words import Fact, argument_list, argument_words


def why(session: Session, places: Places) -> Iterable[Block]:
    result = session.main_dataset
    return operators(result, places) if result is not None and result.pipeline.nodes else ()


def operators(result: DatasetResult, places: Places) -> Iterator[Block]:
    diagnosis = result.diagnosis
    if diagnosis is not None and diagnosis.bottleneck_sentence:
        yield Sentence(
            " ".join(map(places.sentence, (diagnosis.bottleneck_sentence, *_why_it_stays(result, diagnosis))))
        )
    for sentence in (between(result), storage_sentence(result), epochs_sentence(result.course)):
        if sentence:
            yield Sentence(sentence)
    yield operator_table(result, places)
    profile = result.profile
    if profile is None:
        yield Sentence("This dataset was not profiled.", quiet=True)
        return
    yield from (Sentence(text, quiet=True) for text in (*_threads(result), *map(words.clean, profile.notes)))


_RELIEVE = ("parallel-map", "parallel-interleave", "cache")
"""The rules that most often take a bottleneck away."""


def _why_it_stays(result: DatasetResult, diagnosis: Diagnosis) -> Iterator[str]:
    """Yields why these rules left the bottleneck alone, where nothing was found in their place; advice has Python's."""
    found = result.plan or result.candidate or result.offered or diagnosis.verdict is Verdict.NOT_INPUT_BOUND
    for silence in () if found else result.silences:
        function = result.pipeline[silence.node].function
        if silence.node == diagnosis.bottleneck and silence.rule in _RELIEVE and not (function and function.python):
            yield silence.why


def step_seconds(operator: OperatorProfile) -> tuple[float, float] | None:
    """Returns CPU seconds and waiting seconds of an operator per training step; None if its cost is unknown."""
    if operator.cpu_seconds is None or operator.visits is None:
        return None
    waiting = operator.waiting_seconds or 0.0
    return operator.cpu_seconds * operator.visits, waiting * operator.visits


def operator_table(result: DatasetResult, places: Places) -> Table:
    """One row per operator, sources first."""
    profile = result.profile or Profile((), None)  # type: ignore[arg-type]
    times = {operator.node: step_seconds(operator) for operator in profile.operators}
    longest = max((sum(time) for time in times.values() if time is not None), default=0.0) or 1.0
    bottleneck = result.diagnosis.bottleneck if result.diagnosis else None
    rows = []
    for node in result.pipeline:
        operator = profile.operator(node.id)
        limiting = node.id == bottleneck
        function = words.clean(node.function.name) if node.function and not places.confidential else ""
        name = words.clean(node.title) + (f"({function})" if function else "")
        place = places.place_of(node.location)
        cells = (
            Cell(name, note=", ".join(_marks(node, operator, limiting=limiting)), strong=limiting),
            Cell(place=place) if place else Cell(why="the call is unknown"),
            *_time_cells(times.get(node.id), longest),
            Cell(_parallelism(node, result.tuned)),
            _size(node, operator),
        )
        rows.append(Row(cells, details=tuple(_details(node, operator, result.calls.get(node.id, "")))))
    return Table(
        "CPU time (solid) and waiting (hatched) of each operator per training step, at parallelism 1",
        (
            Column("Operator"),
            Column("Source"),
            Column("Time"),
            Column("ms per step", number=True),
            Column("Parallel calls"),
            Column("Element", number=True),
        ),
        tuple(rows),
    )


def _marks(node: Node, operator: OperatorProfile | None, *, limiting: bool) -> Iterator[str]:
    if limiting:
        yield "bottleneck"
    if (operator and operator.random) or (node.function and node.function.random):
        yield "random"
    if (operator and operator.python) or (node.function and node.function.python):
        yield "Python"


def _time_cells(time: tuple[float, float] | None, longest: float) -> tuple[Cell, Cell]:
    if time is None:
        return Cell(why=_UNSEEN), Cell(why=_UNSEEN)
    cpu, waiting = time
    parts = (Part("cpu", cpu / longest), Part("waiting", waiting / longest))
    total = 1000 * sum(time)
    # At most three digits; what cannot matter is not spelled out.
    text = "<0.01" if 0 < total < 0.01 else words.significant(total) if total >= 0.1 else f"{total:.2f}"
    return Cell(bar=tuple(part for part in parts if part.share > 0)), Cell(text, sort=total)


def _parallelism(node: Node, tuned: Pipeline | None) -> str:
    """The value in the script, and that of the plan where it is another."""
    before = _calls(node)
    after = _calls(tuned[node.id]) if tuned is not None and node.id in tuned else before
    return before if before == after else f"{before or '1'} \N{RIGHTWARDS ARROW} {after or '1'}"


def _calls(node: Node) -> str:
    for name in ("num_parallel_calls", "num_parallel_reads"):
        value = node.arguments.get(name)
        if value is not None:
            return argument_words(name, value).partition("=")[2]
    return "1" if node.op in ("map", "interleave") else ""


def _size(node: Node, operator: OperatorProfile | None) -> Cell:
    size = operator.bytes_out if operator and operator.bytes_out is not None else node.element_bytes
    return Cell(why=_UNSEEN) if size is None else Cell(words.byte_size(size), sort=size)


def _details(node: Node, operator: OperatorProfile | None, call: str) -> Iterator[Block]:
    if call:
        yield Listing(words.clean(call, lines=True), "Source")
    facts = []
    if arguments := argument_list(node.arguments):
        facts.append(Fact("Arguments", arguments))
    seen = operator or OperatorProfile(node.id, None)  # type: ignore[arg-type]
    for label, seconds, span in (
        ("CPU time per element", seen.cpu_seconds, seen.cpu_interval),
        ("waiting per element", seen.waiting_seconds, seen.waiting_interval),
    ):
        if seconds is not None:
            note = f"from the {seen.cost_source.value}"
            if span is not None:
                rounds = words.count(span.pairs, "round")
                note = f"{words.seconds(span.low)} to {words.seconds(span.high)}, {rounds}"
            facts.append(Fact(label, words.seconds(seconds), note))
    if seen.visits is not None:
        facts.append(Fact("elements per step", words.significant(seen.visits)))
    if seen.buffered_bytes:
        elements = words.significant(seen.buffered_elements or 0)
        facts.append(Fact("buffered", words.byte_size(seen.buffered_bytes), f"{elements} elements"))
    if node.inner:
        facts.append(Fact("inside", words.clean(" > ".join(node.inner))))
    if seen.inside:
        shares = [f"{words.clean(name) or 'itself'} {words.percent(share)}" for name, share in seen.inside.items()]
        facts.append(Fact("of its time", ", ".join(shares), "by the runtime's model"))
    if seen.cpu_seconds is not None and seen.visits == 0:
        facts.append(Fact("runs", "in the first epoch only", "it is in front of a cache"))
    if node.shared > 1:
        facts.append(Fact("this call created", words.count(node.shared, "dataset")))
    if facts:
        yield Facts(tuple(facts))


def _threads(result: DatasetResult) -> Iterator[str]:
    """Operators between two asynchronous borders run in one thread, so their times add up."""
    for segment in result.diagnosis.sequential_segments if result.diagnosis else ():
        names = [words.clean(result.pipeline[node].title) for node in segment if node in result.pipeline]
        if len(names) > 1:
            yield f"{words.joined(names)} run one after another in one thread."


_UNSEEN = "the runtime shows no such operator"
