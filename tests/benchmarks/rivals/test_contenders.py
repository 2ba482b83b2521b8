"""The contenders: each rival's plan, Plumber's compared by hand, which caches count, and the rates of the windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import ProgressCallback
from benchmarks.recorded import FakeClock, FakeRunner, Noise, rewrite
from benchmarks.rivals import contenders
from benchmarks.rivals.contenders import UNCACHED, Contenders, cache_use, choose_contenders, describe_plan, source_bytes
from benchmarks.rivals.plumber import allocate, cache_place, plumber_edits
from benchmarks.rivals.results import EXPERT, PIPETUNE, RIVALS
from benchmarks.rivals.rounds import Length, compare_rates, measure_windows
from benchmarks.rivals.workloads import Workload
from pipetune.core.edits import Insert, Plan, Rewrite, Safety, SetArgument, apply_edits
from pipetune.core.measurement import RunFailed, Window
from pipetune.core.storage import FileUse, Sweep, SweepReader
from pipetune.rewrites import baselines
from pipetune.rewrites.rule import RuleContext
from tests.words import parse

TEXT = "range elements=100 bytes=100 | map bytes=1k | shuffle 9 bytes=1k | map random | batch 10"
INVENTED = Workload("invented", Path("examples/invented"))
CACHE = Rewrite(
    "cache", "n1", Safety.EXACT, (Insert("n1", "cache", "cache@n1", {"filename": ""}),), "", predicted_bytes=100e3
)
FASTER = Rewrite("parallel-map", "n3", Safety.STATISTICAL, (SetArgument("n3", "num_parallel_calls", 2),), "")
MACHINE_RIVALS = [rival for rival in RIVALS if rival != EXPERT]
OUR_PLAN = Plan("dataset", (CACHE, FASTER))


def context(text: str = TEXT) -> RuleContext:
    words = parse(text)
    return RuleContext(words.pipeline, words.profile, cores=2, memory_limit_bytes=1e9)


def published(size: int | None) -> Workload:
    return replace(INVENTED, published_bytes=size)


def machine_contenders(workload: Workload = INVENTED) -> Contenders:
    known = context()
    off, autotune = baselines.off_plan(known.pipeline), baselines.autotune_plan(known)
    plans = {"off": off, "defaults": Plan("defaults"), "autotune": autotune}
    return choose_contenders(known, plans, OUR_PLAN, workload=workload)


def test_every_rival_has_a_plan_and_two_if_its_cache_counts() -> None:
    all_contenders = machine_contenders()
    assert [name for name in all_contenders.plans if not name.endswith(UNCACHED)] == MACHINE_RIVALS
    uncached = [name for name in all_contenders.plans if name.endswith(UNCACHED)]
    assert uncached == ["plumber" + UNCACHED, PIPETUNE + UNCACHED]
    assert all_contenders.without_cache(PIPETUNE) == PIPETUNE + UNCACHED
    assert all_contenders.without_cache("off") == "off"
    for name, plan in all_contenders.plans.items():
        caches = [node for node in apply_edits(context().pipeline, plan.edits) if node.op == "cache"]
        assert len(caches) == (name in ("plumber", PIPETUNE)), name
    bare = apply_edits(context().pipeline, all_contenders.plans[PIPETUNE + UNCACHED].edits)
    assert bare["n3"].argument("num_parallel_calls") == 2, "all else is kept"


def test_cache_too_large_at_published_size_is_not_measured() -> None:
    few = machine_contenders(workload=published(10**12))
    assert list(few.plans) == MACHINE_RIVALS
    assert not any(use.counts for use in few.caches.values())
    for name in ("plumber", PIPETUNE):
        assert "cache" not in [node.op for node in apply_edits(context().pipeline, few.plans[name].edits)]
    assert few.without_cache(PIPETUNE) == PIPETUNE


def test_uncached_contender_has_the_plan_found_without_caches() -> None:
    known = context()
    plans = {"off": Plan("off"), "defaults": Plan("defaults"), "autotune": Plan("autotune")}
    other = Plan("dataset", (FASTER, rewrite("something")))
    for size in (None, 10**12):
        all_contenders = choose_contenders(known, plans, OUR_PLAN, workload=published(size), uncached_plan=other)
        assert all_contenders.plans[all_contenders.without_cache(PIPETUNE)].rewrites == other.rewrites


@pytest.mark.parametrize(("size", "counts"), [(None, True), (10**12, False)])
def test_expert_precedes_pipetune_and_its_cache_must_fit(size: int | None, counts: bool) -> None:
    expert = parse("range | map | cache | shuffle 9 | batch 10").pipeline
    expert = replace(expert, nodes=tuple(replace(node, element_bytes=1000.0, cardinality=100) for node in expert))
    known = contenders.add_expert(machine_contenders(), expert, workload=published(size), source_bytes=10e3)
    assert [name for name in known.plans if not name.endswith(UNCACHED)] == list(RIVALS)
    assert known.caches[EXPERT].counts is counts and known.caches[EXPERT].held_bytes == 100e3
    measured = {name: plan for name, plan in known.plans.items() if name.startswith(EXPERT)}
    assert [name for name, plan in measured.items() if not plan.edits] == [EXPERT] * counts
    assert "cache" not in [node.op for node in apply_edits(expert, known.plans[known.without_cache(EXPERT)].edits)]


# 100 kB held of 10 kB read: ten times the source.
@pytest.mark.parametrize(("size", "counts"), [(None, True), (6_400_000_000, True), (6_400_000_001, False)])
def test_cache_counts_if_published_data_would_fit(size: int | None, counts: bool) -> None:
    use = cache_use(OUR_PLAN, context(), published(size))
    assert use is not None and use.bytes_ratio == pytest.approx(10) and use.held_bytes == 100e3
    assert use.counts is counts
    assert ("does not fit" in use.why) is not counts and "64 GB" in use.why


def test_cache_of_unknown_size_does_not_count() -> None:
    unknown = context("range | map bytes=1k | shuffle 9 | map random | batch 10")
    assert source_bytes(unknown) is None
    use = cache_use(OUR_PLAN, unknown, published(10**9))
    assert use is not None and not use.counts and "not known" in use.why
    assert cache_use(Plan("dataset", (FASTER,)), context(), published(10**9)) is None


def test_source_bytes_are_those_of_files_if_there_are_any() -> None:
    known = context()
    assert source_bytes(known) == 100 * 100
    assert known.profile is not None
    profile = replace(known.profile, files=FileUse(files=2, bytes_total=777))
    assert source_bytes(replace(known, profile=profile)) == 777


def test_plan_descriptions() -> None:
    plans, pipeline = machine_contenders().plans, context().pipeline
    assert describe_plan(plans["defaults"], pipeline) == ""
    assert describe_plan(plans["stage_based"], pipeline).endswith("options.autotune.autotune_algorithm=STAGE_BASED")
    assert describe_plan(plans["plumber"], pipeline).endswith("cache()")
    assert describe_plan(plans[PIPETUNE], pipeline) == "cache, parallel-map"


def window(rate: float) -> Window:
    return Window(10, 100, 100 / rate, 1e-3, 0.1)


def test_ratios_are_between_windows_of_the_same_round() -> None:
    rates = {"defaults": 100, "plumber": 400, "plumber" + UNCACHED: 100, PIPETUNE: 800, PIPETUNE + UNCACHED: 300}
    windows = {name: [window(rate * turn) for turn in (1.0, 1.1, 0.9)] for name, rate in rates.items()}
    compared = compare_rates("small", windows, Contenders(dict.fromkeys(windows, Plan(""))))
    assert set(compared.rivals) == {"defaults", "plumber", PIPETUNE}
    assert compared.rivals["defaults"].examples_per_second == pytest.approx(100)
    for ratios, expected in (compared.ratio_over, (8.0, 2.0)), (compared.without_cache, (3.0, 3.0)):
        found = {name: round(ratio.median, 6) for name, ratio in ratios.items()}
        assert found == dict(zip(("defaults", "plumber"), expected, strict=True))
    assert compared.over_defaults["plumber"].median == pytest.approx(4)
    assert compared.ratio_over["defaults"].high == pytest.approx(8)  # drift falls on both sides of a round alike


def in_rounds(
    plans: Mapping[str, Plan], runner: FakeRunner, *, rounds: int, progress: ProgressCallback = lambda activity: None
) -> tuple[dict[str, list[Window]], dict[str, str]]:
    length = Length(rounds, window_seconds=0.5)
    return measure_windows(Contenders(plans), runner, runner.clock, length=length, seed=3, progress=progress)


def test_rounds_measure_every_contender_once_and_drop_failed_ones() -> None:
    plans = {"defaults": Plan("defaults"), "plumber": Plan("plumber", (rewrite("breaks"),))}
    plans[PIPETUNE] = Plan(PIPETUNE, (rewrite("faster"),))
    noise, fails = Noise(spread=0.02, wander=0.1), {rewrite("breaks").key: "no such op"}
    gain = {PIPETUNE: 2.0}
    runner = FakeRunner(FakeClock(), gain=lambda plan: gain.get(plan.name, 1.0), noise=noise, fails=fails)
    activities: list[str] = []
    windows, failed = in_rounds(plans, runner, rounds=12, progress=activities.append)
    assert failed == {"plumber": "no such op"}
    assert {name: len(taken) for name, taken in windows.items()} == {"defaults": 12, PIPETUNE: 12}
    orders = {tuple(key for _, key in runner.windows[start : start + 2]) for start in range(3, 25, 2)}
    assert len(orders) == 2  # now one first, now the other
    ratio = compare_rates("small", windows, Contenders(plans)).ratio_over["defaults"]
    assert ratio.low < 2 < ratio.high and ratio.high / ratio.low < 1.2
    assert activities[0].startswith("round 1 of 12, 3 pipelines") and "2 pipelines" in activities[-1]


def test_plan_without_edits_has_the_windows_of_the_original() -> None:
    numbers = Plan("autotune", (rewrite("numbers"),))
    plans = {"defaults": Plan("defaults"), "autotune": numbers, PIPETUNE: Plan(PIPETUNE)}
    runner = FakeRunner(FakeClock(), noise=Noise(spread=0.3))
    windows, _ = in_rounds(plans, runner, rounds=5)
    assert len(runner.windows) == 10 and windows[PIPETUNE] == windows["defaults"]
    found = compare_rates("small", windows, Contenders(plans))
    over = found.ratio_over["defaults"]
    assert (over.low, over.median, over.high) == (1.0, 1.0, 1.0) and found.ratio_over["autotune"].high > 1


def test_failure_of_the_original_is_an_error() -> None:
    runner = FakeRunner(FakeClock(), fails={rewrite("breaks").key: "no such op"})
    with pytest.raises(RunFailed, match="current pipeline could not be measured: no such op"):
        in_rounds({"defaults": Plan("defaults", (rewrite("breaks"),))}, runner, rounds=1)


def granted(text: str, *, cores: int = 4, memory: float = 1e9) -> RuleContext:
    words = parse(text)
    return RuleContext(words.pipeline, words.profile, cores=cores, memory_limit_bytes=memory)


TWO_MAPS = "range elements=100 cpu=0us | map cpu=3ms | map cpu=1ms | batch 10 cpu=0us"


def test_cores_are_divided_by_work() -> None:
    found = allocate(granted(TWO_MAPS))
    assert found.rate == pytest.approx(100)  # batches: 40 ms of work each, four cores
    assert found.cores == {"n1": pytest.approx(3), "n2": pytest.approx(1)}
    assert found.calls == {"n1": 3, "n2": 2}  # never fewer than two
    assert found.in_flight == pytest.approx(4)


def test_single_threaded_operator_bounds_the_rate() -> None:
    found = allocate(granted("range cpu=0us | map cpu=4ms | shuffle 9 cpu=2ms | batch 1 cpu=0us", cores=16))
    assert found.rate == pytest.approx(500)
    assert found.calls == {"n1": 2} and found.cores["n2"] == pytest.approx(1)


def test_storage_bounds_the_rate() -> None:
    sweep = Sweep(SweepReader.FILES, (), ceiling=5e7)
    known = granted(TWO_MAPS)
    assert known.profile is not None
    files = FileUse(bytes_per_element=1e6, sweeps=(sweep,))
    found = allocate(replace(known, profile=replace(known.profile, files=files)))
    assert found.rate == pytest.approx(50) and found.calls == {"n1": 2, "n2": 2}


PLACES: list[tuple[str, str | None]] = [
    ("range elements=100 | map bytes=1k | shuffle 9 bytes=1k | batch 10 bytes=10k", "n1"),  # above what differs
    ("range elements=100 | map bytes=1k | batch 10 bytes=10k", "n2"),  # as near the end as it goes
    ("range elements=100 | map bytes=1k | batch 10 bytes=10k | repeat", "n2"),
    ("range elements=100 | map bytes=1k | map random bytes=1k | batch 10 bytes=10k", "n1"),
    ("range elements=100 | map bytes=1k | map bytes=9k | batch 10 bytes=90k", "n1"),  # what is behind it is too large
    ("range elements=100 | map random bytes=1k | batch 10 bytes=10k", None),
    ("range elements=100 bytes=8 | batch 10 bytes=80", None),  # memory is a cache already
    ("range elements=100 | map bytes=9k | batch 10 bytes=90k", None),
    ("range | map bytes=1k | batch 10 bytes=10k", None),  # nobody knows how many
    ("range elements=100 | repeat | map bytes=1k", None),
    ("range elements=100 | map bytes=1k | cache | batch 10 bytes=10k", None),
    ("from_generator elements=100 | map bytes=1k | batch 10 bytes=10k", None),
]


@pytest.mark.parametrize(("text", "place"), PLACES)
def test_cache_is_as_near_the_end_as_allowed(text: str, place: str | None) -> None:
    found = cache_place(granted(text, memory=200e3))
    assert (found and found.id) == place


def test_tenth_of_the_memory_stays_free() -> None:
    text = "range elements=100 | map bytes=1k"
    assert cache_place(granted(text, memory=110e3)) is None
    assert cache_place(granted(text, memory=112e3)) is not None


def test_operators_after_a_cache_get_all_cores() -> None:
    known = granted("range elements=100 cpu=0us | map cpu=9ms bytes=1k | map random cpu=1ms | batch 1 cpu=0us")
    edited = apply_edits(known.pipeline, plumber_edits(known))
    assert [node.op for node in edited] == ["range", "map", "cache", "map", "batch", "prefetch"]
    assert [node.argument("num_parallel_calls") for node in edited if node.op == "map"] == [2, 4]
    assert edited.output.argument("buffer_size") == 4
    bare = apply_edits(known.pipeline, plumber_edits(known, cached=False))
    assert [node.argument("num_parallel_calls") for node in bare if node.op == "map"] == [4, 2]


def test_prefetch_follows_a_cache_at_the_end() -> None:
    known = granted("range elements=100 | map bytes=1k")
    edited = apply_edits(known.pipeline, plumber_edits(known))
    assert [node.op for node in edited] == ["range", "map", "cache", "prefetch"]
