"""Cases whose right answer is known, and the results of `pipetune bench --decisions`.

The cases are in examples/decisions/cases.toml. What can be gained in each was measured beforehand, with the script an
expert wrote, and is in examples/decisions/gains.json.
"""

from __future__ import annotations

import json
import math
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks import EXAMPLES
from benchmarks.figures import Results, check_names
from pipetune.core.codec import Json, decode, encode
from pipetune.core.errors import MalformedData, PipetuneError
from pipetune.core.files import read_value, write_text
from pipetune.core.machine import Machine

SCHEMA = 1  # schema version of gains.json; a file with a different one is not read

CASES = EXAMPLES / "decisions" / "cases.toml"
GAINS = EXAMPLES / "decisions" / "gains.json"

FIXED_PAIRS = 60
"""Quiet pairs that the gain of a case needs in order to count as fixed."""

JUDGING_PAIRS = 12
"""Quiet pairs that the judgement of a patch needs."""

REACHED = 0.8
"""Share of the possible gain, on the log scale, that a right patch reaches."""

HARMFUL_BELOW = 0.97
"""A patch with a median ratio below this makes training slower."""

PROVEN, LIKELY = "proven", "likely"
NOTHING = ("none", "not-input-bound")
"""The answers that say that nothing should be changed; a case that has one of them as the right answer accepts both."""


@dataclass(frozen=True)
class Run:
    """One analysis of a case."""

    neighbours: int
    seed: int


@dataclass(frozen=True)
class Case:
    """A script and the right answer to it."""

    name: str
    script: str  # below examples/; the expert's is expert.py beside it, if there is one
    wanted: str  # "proven", or one of `NOTHING`
    arguments: tuple[str, ...] = ()  # of the script
    timed_arguments: tuple[
        str, ...
    ] = ()  # of the script when it is timed, in addition: so many epochs that none is last
    loop: bool = False  # it trains in a loop of its own, not by `fit`
    options: tuple[str, ...] = ()  # of `pipetune analyze`
    neighbours: tuple[int, ...] = (0,)  # numbers of processes beside the analysis that now and then take a core
    repeats: int = 1  # with as many seeds; beside neighbours at least two

    @property
    def path(self) -> Path:
        return EXAMPLES / self.script

    @property
    def expert(self) -> Path | None:
        """The expert's script; None if there is none."""
        path = self.path.with_name("expert.py")
        return path if path.exists() else None

    @property
    def cold_files(self) -> tuple[Path, ...]:
        """The files that are read from storage whenever the script is timed: its data, if it is analyzed so, too."""
        data = (self.path.parent / "data").rglob("*") if "--cold" in self.options else ()
        return tuple(sorted(path for path in data if path.is_file()))

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(
            Run(count, seed)
            for count in self.neighbours
            for seed in range(max(2, self.repeats) if count else self.repeats)
        )


@dataclass(frozen=True)
class PossibleGain:
    """What the expert's script gains: the ratios of its quiet pairs."""

    ratios: tuple[float, ...]
    starts_counted: bool  # whether the start of an epoch is part of the ratios
    commit: str  # of the script and the expert's script

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def fixed(self) -> bool:
        return len(self.ratios) >= FIXED_PAIRS


@dataclass(frozen=True)
class Decision:
    """The answer to one case in one run, judged."""

    name: str
    neighbours: int
    seed: int
    wanted: str
    answer: str  # an outcome of a session
    right: bool | None  # None: the possible gain is not fixed, or the patch was not timed on a quiet machine
    harmful: bool | None  # None: the patch was not timed on a quiet machine
    seconds_to_verdict: float | None  # from the first training step
    seconds_to_patch: float | None  # from the first training step; None: there is no patch
    seconds_total: float  # of the whole command
    commit: str
    gain: float | None = None  # of the patch, by the stopwatch: median of the quiet pairs
    wanted_gain: float | None = None
    pairs: int = 0  # quiet ones
    rules: tuple[str, ...] = ()
    others_share: float | None = None  # of the cores, used by other processes during the analysis, neighbours included
    date: str = ""

    @property
    def run(self) -> str:
        """Name of the run, as in `runs_of`."""
        return f"{self.name}-{self.neighbours}-{self.seed}"


@dataclass(frozen=True)
class Decisions(Results):
    """All decisions judged so far, in runs of any release."""

    cases: tuple[Decision, ...] = ()

    figure_type = Decision

    @property
    def measured(self) -> Mapping[str, Decision]:
        return {decision.run: decision for decision in self.cases}

    def with_figure(self, name: str, figure: Decision, machine: Machine | None) -> Decisions:
        """Returns a copy with this decision added, or replaced if the run exists; sorted."""
        decisions = {**self.measured, name: figure}.values()
        ordered = sorted(decisions, key=lambda known: (known.name, known.neighbours, known.seed))
        return replace(self, cases=tuple(ordered), machine=machine or self.machine, date=figure.date)

    def updated(self) -> Decisions:
        """Returns a copy judged by what is known now of what can be gained: that may have been fixed since."""
        cases, gains = choose_cases(()), load_gains().gains
        return replace(
            self,
            cases=tuple(
                judged_by(one, cases[one.name], gains.get(one.name)) if one.name in cases else one for one in self.cases
            ),
        )

    def data(self) -> dict[str, Json]:
        return {**super().data(), "cases": encode(self.cases), "summary": encode(judgements(self.cases))}


@dataclass(frozen=True)
class Judgement:
    """Counts over the decisions beside the same number of neighbours."""

    right: int
    cases: int  # those that are right or wrong
    harmful: int
    median_seconds: float | None  # from the first training step to the patch
    p95_seconds: float | None
    unjudged: int = 0  # further cases, not known to be right or wrong
    gain_over_expert: float | None = None
    """Gains of the patches over those of the experts' scripts: the geometric mean over the judged cases in which
    something can be gained, with 1 where no patch is shipped."""


def is_right(
    case: Case, answer: str, *, shipped: bool, gain: float | None, possible: PossibleGain | None
) -> bool | None:
    """Returns whether the answer is right; None if that is not known.

    Args:
        case: the case.
        answer: the outcome of the session.
        shipped: whether there is a patch that counts.
        gain: that of the patch by the stopwatch; None if there is none, or too few pairs were quiet.
        possible: the gain of the expert's script.
    """
    if case.wanted in NOTHING:
        return answer in NOTHING
    if not shipped:
        return False
    if gain is None or possible is None or not possible.fixed:
        return None
    return gain > 0 and math.log(gain) >= REACHED * math.log(possible.median)


def judged_by(decision: Decision, case: Case, possible: PossibleGain | None) -> Decision:
    """Returns the decision with whether it is right, by what can be gained."""
    shipped = decision.seconds_to_patch is not None
    return replace(
        decision,
        right=is_right(case, decision.answer, shipped=shipped, gain=decision.gain, possible=possible),
        wanted_gain=possible.median if possible else None,
    )


def judgements(decisions: Iterable[Decision]) -> dict[str, Judgement]:
    """Returns the counts by the number of neighbours, as text: the keys of JSON."""
    by_neighbours: dict[int, list[Decision]] = {}
    for decision in decisions:
        by_neighbours.setdefault(decision.neighbours, []).append(decision)
    return {str(count): _judgement(beside) for count, beside in sorted(by_neighbours.items())}


def _judgement(decisions: Sequence[Decision]) -> Judgement:
    judged = [decision.right for decision in decisions if decision.right is not None]
    seconds = sorted(one.seconds_to_patch for one in decisions if one.seconds_to_patch is not None)
    return Judgement(
        right=sum(judged),
        cases=len(judged),
        harmful=sum(decision.harmful is True for decision in decisions),
        median_seconds=statistics.median(seconds) if seconds else None,
        p95_seconds=seconds[math.ceil(0.95 * len(seconds)) - 1] if seconds else None,
        unjudged=len(decisions) - len(judged),
        gain_over_expert=_gain_over_expert(decisions),
    )


def _gain_over_expert(decisions: Iterable[Decision]) -> float | None:
    by_case = defaultdict[str, list[float]](list)
    for one in decisions:
        if one.right is not None and one.wanted not in NOTHING and one.wanted_gain is not None:
            by_case[one.name].append((one.gain or 1.0) / one.wanted_gain)
    return statistics.geometric_mean(map(statistics.geometric_mean, by_case.values())) if by_case else None


def load_cases(path: Path = CASES) -> dict[str, Case]:
    """Returns all cases by name, in the order of the file.

    Raises:
        PipetuneError: there is no such file, or it is invalid.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))["case"]
        cases = {case.name: case for case in (decode(Case, table) for table in tables)}
    except (OSError, ValueError, KeyError, TypeError, MalformedData) as error:
        raise PipetuneError(
            f"{path} cannot be read: {error}.",
            hint="The cases are part of the repository, not of the package: run pipetune from a clone.",
        ) from error
    invalid = [case.name for case in cases.values() if case.wanted not in (PROVEN, *NOTHING)]
    if invalid or len(cases) < len(tables):
        raise PipetuneError(f"{path} is invalid: {invalid[0] if invalid else 'a case is there twice'}.")
    return cases


def choose_cases(names: Sequence[str], path: Path = CASES) -> dict[str, Case]:
    """Returns the cases with these names, or all if none is given.

    Raises:
        PipetuneError: a name is unknown, or as in `load_cases`.
    """
    cases = load_cases(path)
    check_names(names, cases, kind="case")
    return {name: case for name, case in cases.items() if name in names or not names}


def runs_of(cases: Iterable[Case]) -> dict[str, tuple[Case, Run]]:
    """Returns every run of these cases by its name: "photos-2-0" is beside two neighbours, with seed 0."""
    return {f"{case.name}-{run.neighbours}-{run.seed}": (case, run) for case in cases for run in case.runs}


@dataclass(frozen=True)
class Gains:
    """The contents of gains.json."""

    machine: str = ""  # where the last of them was measured
    gains: Mapping[str, PossibleGain] = field(default_factory=dict)


def load_gains(path: Path = GAINS) -> Gains:
    """Returns the possible gains by case; none if there is no such file.

    Raises:
        PipetuneError: the file is damaged.
    """
    return read_value(path, lambda data: decode(Gains, data), kind="gains", schema=SCHEMA) if path.exists() else Gains()


def save_gains(gains: Gains, path: Path = GAINS) -> None:
    """Writes gains.json atomically, a case on each line.

    Raises:
        PipetuneError: the folder cannot be written to.
    """
    lines = (f"  {json.dumps(name)}: {json.dumps(encode(gain))}" for name, gain in sorted(gains.gains.items()))
    head = f'{{\n "schema": {SCHEMA},\n "machine": {json.dumps(gains.machine)},\n "gains": {{\n'
    write_text(path, head + ",\n".join(lines) + "\n }\n}\n")
