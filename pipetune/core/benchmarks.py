"""The results of `pipetune bench`: workloads, speed compared with rivals, and the targets."""

from __future__ import annotations

import math
import statistics
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipetune.core.accuracy import Claim
from pipetune.core.codec import Json, MalformedData, decode, encode
from pipetune.core.errors import PipetuneError
from pipetune.core.files import read_json, write_json
from pipetune.core.machine import Machine
from pipetune.core.results import Interval, Rate

FOLDER = Path(__file__).resolve().parents[2] / "examples"  # in a clone of the repository; not part of the package

QUICK = ("table", "series", "artificial")
"""The workloads of a quick run: they need no generated data, and their plan is found quickly."""


@dataclass(frozen=True)
class Workload:
    """One training script, and the published pipeline it represents."""

    name: str
    folder: Path
    title: str = ""
    source: str = ""  # paper and section, or benchmark; "" if it is invented
    published_bytes: int | None = None  # size of the raw data there; None: the workload represents only itself
    published_examples: int | None = None
    note: str = ""
    arguments: tuple[str, ...] = ()  # of the script, when it is analyzed

    @property
    def script(self) -> Path:
        """The training script."""
        return self.folder / "train.py"

    @property
    def data_script(self) -> Path | None:
        """The script that generates the data; None if none is needed."""
        path = self.folder / "make_data.py"
        return path if path.exists() else None


def find_workloads(folder: Path = FOLDER) -> dict[str, Workload]:
    """Returns all workloads by name, in alphabetical order: the examples with a workload.toml.

    Raises:
        PipetuneError: there is no folder of examples, or a workload.toml is invalid.
    """
    folders = {path.parent.name: path.parent for path in sorted(folder.glob("*/workload.toml"))}
    if not folders:
        raise PipetuneError(
            f"There are no workloads: {folder} contains no examples.",
            hint=(
                "Workloads are part of the repository, not of the package: run pipetune from a clone (pip install "
                "-e .)."
            ),
        )
    return {name: _read(name, place) for name, place in folders.items()}


def choose_workloads(names: Sequence[str], *, quick: bool = False, folder: Path = FOLDER) -> dict[str, Workload]:
    """Returns the workloads with these names; if no names are given, all, or with `quick` those of a quick run.

    Raises:
        PipetuneError: a name is unknown, or as in `find_workloads`.
    """
    known = find_workloads(folder)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise PipetuneError(f"There is no workload called {unknown[0]!r}.", hint="Workloads: " + ", ".join(known))
    chosen_names = names or [name for name in (QUICK if quick else known) if name in known]
    return {name: known[name] for name in dict.fromkeys(chosen_names)}


def _read(name: str, folder: Path) -> Workload:
    path = folder / "workload.toml"
    try:
        about = tomllib.loads(path.read_text(encoding="utf-8"))
        return Workload(
            name,
            folder,
            title=_text_value(about, "title") or name,
            source=_text_value(about, "source"),
            published_bytes=_positive_value(about, "published_bytes"),
            published_examples=_positive_value(about, "published_examples"),
            note=_text_value(about, "note"),
            arguments=tuple(str(word) for word in about.get("arguments", ())),
        )
    except (OSError, ValueError) as error:
        raise PipetuneError(f"{path} cannot be read: {error}.", hint="See another example for the format.") from error


def _text_value(about: Mapping[str, object], name: str) -> str:
    return str(about.get(name, ""))


def _positive_value(about: Mapping[str, object], name: str) -> int | None:
    value = about.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} must be a positive integer, not {value!r}")
    return value


SCHEMA = 1  # schema version of benchmarks.json; files with a different one are not read

PIPETUNE, EXPERT = "pipetune", "expert"

RIVALS = ("off", "defaults", "autotune", "stage_based", "plumber", EXPERT, PIPETUNE)
"""All measured variants, by their names in benchmarks.json and in its order. The expert is a person: `expert.py`."""

BASELINES = ("defaults", "autotune")
"""The rivals for which a geometric mean of the training step is computed as well."""

MAX_CACHED_BYTES = 64e9
"""A cache counts if the published data would fit into this many bytes."""


@dataclass(frozen=True)
class CacheUse:
    """The bytes a plan caches of the example data, and an estimate for the published data."""

    held_bytes: float  # of the example data
    bytes_ratio: float | None  # cached bytes over the bytes of the source; None: unknown
    published_bytes: float | None  # size of the published source; None: the workload represents only itself
    counts: bool
    why: str


@dataclass(frozen=True)
class WorkloadResult:
    """Results of one workload. A ratio is pipetune's rate over the rival's, for the input alone."""

    name: str
    rivals: Mapping[str, Rate]  # only rivals that could be run
    ratio_over: Mapping[str, Interval]  # including the caches that count
    without_cache: Mapping[str, Interval]  # neither side adds a cache that the script does not have
    end_to_end: Interval | None = None  # speedup of the training step over the original script
    plan_seconds: float | None = None  # of the whole `pipetune analyze` run
    rewrites: tuple[str, ...] = ()  # rules of the plan
    equality: Mapping[str, object] | None = None  # as in a session's summary
    title: str = ""
    rewrites_without_cache: tuple[str, ...] = ()  # of the plan without caches, if the other plan has one
    end_to_end_over_autotune: Interval | None = None
    over_defaults: Mapping[str, Interval] = field(default_factory=dict)  # rate of each rival over that of `defaults`
    caches: Mapping[str, CacheUse] = field(default_factory=dict)  # by rival
    plans: Mapping[str, str] = field(default_factory=dict)  # what each rival sets, in words
    failed: Mapping[str, str] = field(default_factory=dict)  # rivals that could not be run, and why
    verdict: str = ""
    why: str = ""  # why there is no plan
    analysis_seconds: Mapping[str, float] = field(default_factory=dict)  # `plan_seconds` by part, as in its session
    seconds: float = 0.0  # in total
    date: str = ""
    notes: tuple[str, ...] = ()

    @property
    def best_rival(self) -> str | None:
        """The rival over which pipetune's lead is smallest, including the caches that count."""
        return min(self.ratio_over, key=lambda name: self.ratio_over[name].median, default=None)


@dataclass(frozen=True)
class Benchmarks:
    """All benchmark results measured so far."""

    version: str
    machine: Machine | None = None
    date: str = ""
    quick: bool = False  # a quick run: few workloads, short windows, a small budget
    seed: int = 0
    workloads: tuple[WorkloadResult, ...] = ()
    suite: tuple[str, ...] = ()  # names of all workloads to measure; empty: exactly `workloads`

    @property
    def missing(self) -> tuple[str, ...]:
        """Workloads of the suite that have not been measured yet."""
        return tuple(name for name in self.suite if name not in self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the measured workloads."""
        return tuple(workload.name for workload in self.workloads)

    @property
    def seconds(self) -> float:
        """Time spent on all measured workloads in total."""
        return sum(workload.seconds for workload in self.workloads)

    def with_workload(self, result: WorkloadResult) -> Benchmarks:
        """Returns a copy with this workload added, or replaced if the name exists; sorted by name."""
        others = (one for one in self.workloads if one.name != result.name)
        ordered = sorted((*others, result), key=lambda one: one.name)
        return replace(self, workloads=tuple(ordered), date=result.date or self.date)


def geometric_mean_over(workloads: Iterable[WorkloadResult]) -> dict[str, dict[str, float | None]]:
    """Returns the geometric means of pipetune's ratios over `BASELINES`, and for the input alone also over the expert.

    A mean is None if nothing was measured. If no plan was found, the script stays unchanged, so its training step
    counts with a ratio of 1.
    """
    results = tuple(workloads)

    def of_ratios(ratios: Callable[[WorkloadResult], Mapping[str, Interval]]) -> dict[str, float | None]:
        return {name: _mean(ratios(one).get(name) for one in results) for name in (*BASELINES, EXPERT)}

    return {
        "all": of_ratios(lambda one: one.ratio_over),
        "without_cache": of_ratios(lambda one: one.without_cache),
        "end_to_end": {
            "defaults": _mean(one.end_to_end or (None if one.rewrites else _UNCHANGED) for one in results),
            "autotune": _mean(one.end_to_end_over_autotune for one in results),
        },
    }


_UNCHANGED = Interval(1.0, 1.0, 1.0, 0, "unchanged")


def _mean(intervals: Iterable[Interval | None]) -> float | None:
    known = [math.log(interval.median) for interval in intervals if interval is not None]
    return math.exp(statistics.fmean(known)) if known else None


def benchmarks_data(benchmarks: Benchmarks) -> dict[str, Json]:
    """Returns the contents of benchmarks.json, the documented keys first."""
    return {
        "schema": SCHEMA,
        "pipetune": benchmarks.version,
        "machine": encode(benchmarks.machine),
        "date": benchmarks.date,
        "seconds": round(benchmarks.seconds, 1),
        "workloads": encode(benchmarks.workloads),
        "geometric_mean_over": encode(geometric_mean_over(benchmarks.workloads)),
        "quick": benchmarks.quick,
        "seed": benchmarks.seed,
        "suite": encode(benchmarks.suite),
    }


def save(benchmarks: Benchmarks, path: Path) -> None:
    """Writes benchmarks.json atomically.

    Raises:
        PipetuneError: the folder cannot be written to.
    """
    write_json(path, benchmarks_data(benchmarks))


def load(path: Path) -> Benchmarks | None:
    """Returns the contents of the benchmarks.json at `path`; None if there is no such file.

    Raises:
        PipetuneError: the file is damaged, or was written by another release.
    """
    if not path.exists():
        return None
    data = read_json(path, kind="benchmarks", schema=SCHEMA)
    try:
        return decode(Benchmarks, {**data, "version": data.get("pipetune")})
    except MalformedData as error:
        raise PipetuneError(f"{path} is damaged. {error.message}", hint="Remove it, and measure again.") from error


RIVAL_AHEAD_BELOW = 0.97
"""A rival is ahead if the whole interval of pipetune's ratio over it lies below this value."""

EXPERT_REACHED = 0.95  # target for pipetune's ratio over the expert's script, on every workload
TARGET_WITHOUT_CACHE, TARGET_WITH_CACHE = 2.0, 4.0  # targets for the geometric mean of pipetune's ratio over a baseline
TARGET_PLAN_SECONDS = 60.0  # target for the mean time to a plan: a goal, see docs/accuracy.md
TARGET_CORES = 2  # cores granted to the machine that the targets are set for; on others they are not checked


def claims(benchmarks: Benchmarks) -> tuple[Claim, ...]:
    """Returns the targets and the measured values; only the complete suite on two cores is checked against them.

    If workloads have not been measured yet, the first claim lists them.
    """
    workloads, machine, missing = benchmarks.workloads, benchmarks.machine, benchmarks.missing
    means = geometric_mean_over(workloads)
    result = [
        _minimum_claim(f"geometric mean over {name}, {condition}", means[part][name], target)
        for part, condition, target in (
            ("without_cache", "no caches", TARGET_WITHOUT_CACHE),
            ("all", "with caches", TARGET_WITH_CACHE),
        )
        for name in BASELINES
    ]
    if missing:
        measured = f"{len(workloads)} of {len(workloads) + len(missing)} (missing: {', '.join(missing)})"
        result.insert(0, Claim("workloads measured", measured, "all"))
    for name in BASELINES:
        mean = means["end_to_end"][name]
        if mean is not None:
            what = f"geometric mean over {name}, training step{_coverage_note(name, workloads)}"
            result.append(Claim(what, _ratio(mean)))
    result += [_expert_claim(workloads), _faster_rivals_claim(workloads), _plan_seconds_claim(workloads)]
    complete = not (benchmarks.quick or missing)
    if complete and machine is not None and round(machine.cores_granted) == TARGET_CORES:
        return tuple(result)
    return tuple(replace(claim, met=None) for claim in result)


def _coverage_note(name: str, workloads: Sequence[WorkloadResult]) -> str:
    """Returns how many workloads the mean covers: the step is compared with AUTOTUNE only if there is a plan."""
    measured = sum(one.end_to_end_over_autotune is not None for one in workloads)
    return f", the {measured} with a plan" if name == "autotune" and measured < len(workloads) else ""


def _minimum_claim(what: str, mean: float | None, target: float) -> Claim:
    measured = "not measured" if mean is None else _ratio(mean)
    return Claim(what, measured, f"at least {target:g}x", None if mean is None else mean >= target)


def _faster_rivals_claim(workloads: Sequence[WorkloadResult]) -> Claim:
    names = [one.name for one in workloads if faster_rivals(one)]
    measured = f"{len(names)} of {len(workloads)}" + (f" ({', '.join(names)})" if names else "")
    what = f"workloads with a certainly faster rival (ratio below {RIVAL_AHEAD_BELOW:g})"
    return Claim(what, measured, "none", not names if workloads else None)


def _expert_claim(workloads: Sequence[WorkloadResult]) -> Claim:
    what = f"workloads at {EXPERT_REACHED:g} of the expert's script or better"
    compared = [one for one in workloads if EXPERT in one.ratio_over]
    if not compared:
        return Claim(what, "not measured", "all")
    slower = [one.name for one in compared if one.ratio_over[EXPERT].median < EXPERT_REACHED]
    measured = f"{len(compared) - len(slower)} of {len(compared)}" + (f" (not: {', '.join(slower)})" if slower else "")
    return Claim(what, measured, "all", not slower)


def _plan_seconds_claim(workloads: Sequence[WorkloadResult]) -> Claim:
    what, target = "mean time to a plan", f"at most {TARGET_PLAN_SECONDS:.0f} s"
    known = [one.plan_seconds for one in workloads if one.plan_seconds is not None]
    if not known:
        return Claim(what, "not measured", target)
    mean = statistics.fmean(known)
    return Claim(what, f"{mean:.0f} s", target, mean <= TARGET_PLAN_SECONDS)


def shortfall_reasons(benchmarks: Benchmarks) -> tuple[str, ...]:
    """Returns one sentence for each workload that has no plan or is slower than a rival."""
    reasons = []
    for one in benchmarks.workloads:
        if one.why:
            reasons.append(f"{one.name}: {one.why}")
        ahead = min(faster_rivals(one), key=lambda name: one.ratio_over[name].median, default=None)
        if ahead is not None:
            ratio, sets = one.ratio_over[ahead], one.plans.get(ahead, "")
            reasons.append(
                f"{one.name}: {ahead} is faster, pipetune's ratio over it is {_ratio(ratio.median)} ("
                f"{_ratio(ratio.low)} to {_ratio(ratio.high)})" + (f"; it sets {sets}" if sets else "")
            )
    return tuple(reasons)


def faster_rivals(workload: WorkloadResult) -> tuple[str, ...]:
    """Returns the rivals that are certainly faster (the whole interval is below `RIVAL_AHEAD_BELOW`)."""
    return tuple(name for name, ratio in workload.ratio_over.items() if ratio.high < RIVAL_AHEAD_BELOW)


def _ratio(value: float) -> str:
    return f"{value:.2f}x"
