"""Which epochs are measured where the script has a cache, and how far the input's own time limits its wait."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture.consumption import LoopReadings, WayOut
from pipetune.core.edits import Plan, Rewrite, Safety, SetArgument
from pipetune.core.measurement import Interval
from pipetune.core.profile import ConsumerProfile, CostSource, Profile
from pipetune.measure.differencing import Cost, DifferencingResult
from pipetune.measure.stall import Stall
from pipetune.pipelines import call_sites
from pipetune.stages import profiling
from pipetune.stages.profiling import _limited, _slowdown, profile_training, with_differences
from pipetune.stages.study import Study
from tests.stages.studies import study_here
from tests.words import parse

Dataset = tf.data.Dataset
COUNT = 64


class Reads:
    """Numbers, each of which is counted and takes its time, as files do that are read and decoded."""

    def __init__(self, *, seconds: float = 0.0, count: int = COUNT, parallel: int | None = None) -> None:
        self.taken, self._seconds = 0, seconds
        self.dataset = Dataset.range(count).map(
            lambda x: tf.ensure_shape(tf.numpy_function(self._read, [x], tf.int64), []), num_parallel_calls=parallel
        )

    def _read(self, number: Any) -> Any:
        self.taken += 1
        time.sleep(self._seconds)
        return number


def measured_with(profile: Profile, monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """Lets this be the profile; returns the seconds for which caches were filled, by profile taken."""
    taken: list[float | None] = []

    def take(study: Study, *, cache_seconds: float | None = None) -> Profile:
        taken.append(cache_seconds)
        return replace(profile, cache_seconds=cache_seconds)

    monkeypatch.setattr(profiling, "take_profile", take)
    return taken


def trained(seconds: float | None) -> Profile:
    return Profile((), ConsumerProfile("fit", seconds))


@pytest.mark.parametrize("parallel", [None, 2])
def test_later_epochs_read_from_the_cache(parallel: int | None) -> None:
    reads = Reads(seconds=0.002, parallel=parallel)
    study = study_here(reads.dataset.cache().shuffle(COUNT).batch(8), quick=True)
    before = reads.taken
    profile = profile_training(study)
    assert profile.cache_seconds is not None and profile.cache_seconds > COUNT * 0.001
    assert reads.taken - before < 3 * COUNT  # to see how long it takes, and to fill it
    assert profile.operator("n1") is None or not profile.operator("n1").elements  # type: ignore[union-attr]
    before = reads.taken
    study.runner.input_window(Plan("defaults"), seconds=0.05, warmup_seconds=0.0)
    assert reads.taken == before
    assert len(list(study.subject.source.dataset)) == COUNT // 8 and reads.taken == before + COUNT  # it is the script's


def test_a_part_of_a_cache_stands_for_all_of_it_where_filling_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    measured_with(trained(0.01), monkeypatch)
    study = study_here(Reads(seconds=0.02, count=5000).dataset.cache().batch(8), quick=True)
    found = profile_training(study)
    assert found.cache_seconds is not None and 80 < found.cache_seconds < 300
    assert "What was measured are the epochs after it" in study.journal.session.findings[0].message


def test_a_cache_that_a_plan_rebuilds_is_full_too(monkeypatch: pytest.MonkeyPatch) -> None:
    measured_with(trained(None), monkeypatch)
    reads = Reads()
    study = study_here(reads.dataset.shuffle(9).cache().batch(8))
    profile_training(study)
    edit = SetArgument("n2", "buffer_size", 4)
    plan = Plan("tuned", (Rewrite("shuffle", "n2", Safety.EXACT, (edit,), "smaller"),))
    before = reads.taken
    study.runner.dataset(plan)
    filled = reads.taken
    assert filled >= before + COUNT
    study.runner.input_window(plan, seconds=0.05, warmup_seconds=0.0)
    assert reads.taken == filled


@pytest.mark.parametrize(("make", "use"), [
    (lambda data: data.batch(8), {}),  # no cache
    (lambda data: data.cache().batch(8), {"epochs": 1, "epochs_certain": True}),
    (lambda data: data.cache().batch(8), {"readings": LoopReadings(fewest=3)}),  # a loop that may leave it early
    (lambda data: data.cache().batch(8).take(3), {}),
    (lambda data: data.cache().batch(8), {"steps_per_epoch": 3}),
    (lambda data: data.repeat().cache().batch(8), {}),
    (lambda data: data.cache().repeat().batch(8), {"readings": LoopReadings(fewest=3)}),
    (lambda data: data.cache().batch(8).repeat(), {"steps_per_epoch": 3, "epochs": 4, "epochs_certain": True}),
])  # fmt: skip
def test_the_first_epoch_is_measured_where_the_cache_serves_no_other(make, use, monkeypatch) -> None:
    taken = measured_with(trained(0.01), monkeypatch)
    study = study_here(make(Reads().dataset))
    study.subject = replace(study.subject, use=replace(study.subject.use, **use))
    assert profile_training(study).cache_seconds is None and taken == [None]
    assert study.runner.measured is study.subject.source


@pytest.mark.parametrize(("epochs", "repeats"), [(None, 0), (None, 3), (3, 0)])  # epochs of a `fit` in each iteration
@pytest.mark.parametrize("seconds", [2.0, 12.0])
def test_a_cache_that_a_loop_rebuilds_is_full_only_for_passes_of_the_same_iteration(
    epochs: int | None, repeats: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured_with(trained(None), monkeypatch)
    fill = profiling._fill_own_caches
    monkeypatch.setattr(profiling, "_fill_own_caches", lambda study: replace(fill(study), seconds=seconds))
    with call_sites.Recorder():
        for _ in range(2):
            data = Reads().dataset.cache().batch(8)
            data = data.repeat(repeats) if repeats else data
            read = call_sites.path_from(sys._getframe())
    study = study_here(data)
    use = replace(study.subject.use, call_path=read, epochs=epochs, epochs_certain=epochs is not None)
    study.subject = replace(study.subject, use=use)
    anew = not epochs and not repeats
    assert (profile_training(study).cache_seconds is None) is (anew and seconds > 10)
    (finding,) = study.journal.session.findings
    assert ("again in each iteration of the loop" in finding.message) is anew
    assert ("which this script does not have" in finding.message) is (anew and seconds < 10)


@pytest.mark.parametrize(("batches", "later"), [(3, False), (12, True)])
def test_filling_a_cache_tells_how_many_elements_it_has(batches, later, monkeypatch) -> None:
    taken = measured_with(trained(0.01), monkeypatch)
    study = study_here(Reads().dataset.filter(lambda number: number >= 0).cache().repeat().batch(8))
    readings = LoopReadings(fewest=batches)
    study.subject = replace(study.subject, use=replace(study.subject.use, readings=readings))
    assert (profile_training(study).cache_seconds is not None) is later and len(taken) == 1
    assert (study.runner.measured is study.subject.source) is not later


def test_a_cache_in_a_file_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured_with(trained(0.01), monkeypatch)
    profile_training(study_here(Reads().dataset.cache(str(tmp_path / "cache")).batch(8)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "use",
    [{"readings": LoopReadings(way_out=WayOut.NEXT)}, {"steps_per_epoch": 3, "epochs": 9, "epochs_certain": True}],
)
def test_one_iterator_reads_on_in_endless_data(use: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    measured_with(trained(0.01), monkeypatch)
    study = study_here(Reads().dataset.cache().batch(8).repeat())
    study.subject = replace(study.subject, use=replace(study.subject.use, **use))
    assert profile_training(study).cache_seconds is not None and study.subject.elements_read is None


FILLS = "The first epoch fills this cache, which takes about"


@pytest.mark.parametrize(("seconds", "step_seconds", "epochs", "told", "profiles"), [  # eight steps per epoch
    (12.0, 0.1, 2, f"{FILLS} 12 s, longer than later epochs by 88 % of the training. So this epoch was", 2),
    (12.0, 0.1, 20, f"{FILLS} 12 s, longer than later epochs by 41 % of the training. What was measured", 1),
    (2.0, 0.01, 2, f"{FILLS} 2 s, longer than later epochs by 92 % of the training. What was measured", 1),
    (12.0, 1.5, 20, "", 1),
    (12.0, None, 20, f"{FILLS} 12 s. ", 1),
])  # fmt: skip
def test_what_filling_adds_decides_which_epoch(seconds, step_seconds, epochs, told, profiles, monkeypatch) -> None:
    taken, fill = measured_with(trained(step_seconds), monkeypatch), profiling._fill_own_caches
    monkeypatch.setattr(profiling, "_fill_own_caches", lambda study: replace(fill(study), seconds=seconds))
    study = study_here(Reads().dataset.cache().batch(8))
    study.subject = replace(study.subject, use=replace(study.subject.use, epochs=epochs, epochs_certain=True))
    found = profile_training(study)
    assert len(taken) == profiles and (found.cache_seconds is None) is (profiles == 2)
    assert (study.runner.measured is study.subject.source) is (profiles == 2)
    messages = [one.message for one in study.journal.session.findings]
    assert len(messages) == bool(told) and all(one.startswith(told) for one in messages)


def test_what_filling_adds_is_told_where_the_cache_alone_knows_how_long_an_epoch_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with records in files: TensorFlow does not know how many there are."""
    measured_with(trained(0.01), monkeypatch)
    fill = profiling._fill_own_caches
    monkeypatch.setattr(profiling, "_fill_own_caches", lambda study: replace(fill(study), seconds=2.0))
    study = study_here(Reads().dataset.filter(lambda x: x >= 0).batch(8).cache().prefetch(1))
    study.subject = replace(study.subject, use=replace(study.subject.use, epochs=2, epochs_certain=True))
    profile_training(study)
    (finding,) = study.journal.session.findings
    assert finding.message.startswith(f"{FILLS} 2 s, longer than later epochs by 92 % of the training.")


def test_a_cache_that_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    measured_with(trained(0.01), monkeypatch)
    study = study_here(Reads(seconds=0.02, count=5000).dataset.cache().unique().batch(8))
    assert profile_training(study).cache_seconds is None
    (finding,) = study.journal.session.findings
    assert finding.code == "cache-fill"
    assert "only that epoch was measured. Filling the cache would take" in finding.message


# -- the input wait is limited by the time of the input alone


@pytest.mark.parametrize(("measured", "most", "bounded"), [
    ((0.30, 0.25, 0.35), 0.50, (0.30, 0.25, 0.35)),  # below the limit
    ((0.30, 0.25, 0.35), 0.32, (0.30, 0.25, 0.32)),
    ((0.30, 0.25, 0.35), 0.28, (0.265, 0.25, 0.28)),
    ((0.40, 0.35, 0.45), 0.015, (0.0075, 0.0, 0.015)),  # never 1.5 % (1.5 % to 1.5 %), nor 1.5 % (0.0 to 1.5 %)
])  # fmt: skip
def test_input_wait_is_limited_by_time_of_input_alone(measured, most, bounded) -> None:
    found = _limited(Interval(*measured, 8, "t"), input_share=most / 4, slowdown=2.0, start_share=most / 2)
    assert (found.median, found.low, found.high) == bounded
    assert ("times what the input takes alone" in found.method) is (bounded != measured)


@pytest.mark.parametrize(
    ("ratios", "high"), [((1.2, 1.15, 1.3, 1.25), 0.8), ((1.2, 1.15, 1.3, 1.02), 0.0), ((0.99, 1.0, 1.01, 1.0), 0.0)]
)
def test_a_longer_step_on_a_repeated_batch_says_nothing_of_the_wait(ratios: tuple[float, ...], high: float) -> None:
    nothing = Interval(0.0, 0.0, 0.0, 4, "t")
    found = _limited(nothing, input_share=0.4, slowdown=2.0, start_share=0.0, ratios=ratios)
    assert (found.median, found.low, found.high) == (0.0, 0.0, pytest.approx(high))


@pytest.mark.parametrize(("cpu_seconds", "slowdown"), [(0.0, 2.0), (0.2, 2.5), (0.4, 3.0), (0.5, 3.0)])
def test_input_may_get_slower_beside_a_model_that_needs_its_cores(cpu_seconds: float, slowdown: float) -> None:
    stall = Stall(0.3, 0.2, Interval(0.3, 0.2, 0.4, 8, "t"), steps=10, bound_cpu_seconds=cpu_seconds)
    assert _slowdown(stall, cores=2.0) == pytest.approx(slowdown)


def _cost(cpu: tuple[float, float, float], waiting: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Cost:
    wall = tuple(one + other for one, other in zip(cpu, waiting, strict=True))
    return Cost(*(Interval(*values, 8, "t") for values in (cpu, wall, waiting)))


@pytest.mark.parametrize(("node", "cost", "seconds", "source"), [
    # 0 to 500 us of 20 ms: the 90 us of the runtime's model are in it
    ("n2", _cost((0.0, 0.0, 500e-6)), 90e-6, CostSource.RUNTIME_MODEL),
    ("n2", _cost((80e-6, 60e-6, 100e-6)), 80e-6, CostSource.PREFIX_DIFFERENCING),
    # what a function takes besides its kernels the model only shares out
    ("n1", _cost((0.0, 0.0, 50e-6)), 0.0, CostSource.PREFIX_DIFFERENCING),
    ("n1", _cost((0.0, 0.0, 900e-6)), 600e-6, CostSource.RUNTIME_MODEL),
    # it waits, which the model takes for work
    ("n2", _cost((0.0, 0.0, 500e-6), (2e-3, 1.9e-3, 2.1e-3)), 0.0, CostSource.PREFIX_DIFFERENCING),
])  # fmt: skip
def test_cost_lost_in_the_noise_of_differences_is_that_of_the_runtime(node, cost, seconds, source) -> None:
    words = parse("range cpu=1us | map cpu=600us | batch 32 cpu=90us")
    found = with_differences(words.profile, words.pipeline, DifferencingResult({node: cost}, {})).operator(node)
    assert found is not None and found.cpu_seconds == pytest.approx(seconds) and found.cost_source is source
