"""The requirements of a larger job and of a service, compared with results by hand; properties for all jobs."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetune.core.edits import Insert, Plan, apply_edits
from pipetune.core.measurement import Rate
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import ConsumerProfile
from pipetune.core.results import ServiceNeed
from pipetune.core.session import DatasetResult
from pipetune.core.sizing import Origin, QuantityRange, ScalingLimit, Sizing, TrainingJob
from pipetune.core.storage import FileUse
from pipetune.model.sizing import compute_sizing, epoch_examples, recommendation, service_need
from tests.core.sessions import MACHINE
from tests.words import parse

# A record of 100 kB, 1 ms of a map on any number of cores, batches of 10; 4000 records in 6 files.
SOURCE = "TFRecordDataset bytes=100k elements=4000 cpu=0us"
TEXT = f"{SOURCE} | map AUTOTUNE bytes=50k cpu=1ms | batch 10 bytes=500k cpu=0us | prefetch 2 bytes=500k cpu=0us"
SERIAL = f"{SOURCE} | map AUTOTUNE cpu=1ms | map random cpu=200us | batch 10 cpu=0us | prefetch 2 cpu=0us"
MEASURED = Rate(examples_per_second=1500.0, cpu_us_per_example=1100.0, peak_rss_mib=20.0)


def result(
    text: str = TEXT, *, rate: Rate | None = MEASURED, tuned: Pipeline | None = None, **more: Any
) -> DatasetResult:
    words = parse(text)
    files = more.pop("files", FileUse(files=6, bytes_per_element=1e6))
    known: dict[str, Any] = {"examples_per_element": 10.0, "element_bytes": 500e3, "input_cpu_seconds": 10e-3}
    profile = replace(words.profile, files=files, **{**known, **more})
    rates, plan = {} if rate is None else {"defaults": rate}, None if tuned is None else Plan("tuned")
    return DatasetResult(words.pipeline, "training", profile=profile, rates=rates, tuned=tuned, plan=plan)


def job(replicas: int = 16, **more: Any) -> TrainingJob:
    """16 replicas on 4 hosts; a replica takes 10 examples in 0.1 s: 100 per second, 400 per host, 1600 in total."""
    cores = {"host_cores": 2.0, "worker_cores": 2.0}
    return TrainingJob(replicas, **{"per_host": 4, "step_seconds": 0.1, "batch_examples": 10.0, **cores, **more})


def sized(text: str = TEXT, *, asked: TrainingJob | None = None, **more: Any) -> Sizing:
    return compute_sizing(result(text, **more), MACHINE, asked or job())


def ends(quantity: QuantityRange | None) -> tuple[float, float]:
    assert quantity is not None
    return quantity.low, quantity.high


def limits(sizing: Sizing) -> dict[ScalingLimit, tuple[float, float]]:
    return {one.limit: ends(one.replicas) for one in sizing.ceilings}


# -- unknown values are omitted and reported


def test_only_unmeasured_values_are_missing() -> None:
    found = sized(rate=None, files=None, element_bytes=None)
    assert found.best_requirements.storage_bytes_per_second is None and found.service_bytes_per_second is None
    assert found.best_requirements.memory_bytes is None and found.best_requirements.memory_bytes_rebatched is None
    assert found.files.files is None
    assert {"storage", "network for tf.data service", "files", "memory"} <= {one.figure for one in found.missing}
    # the other values are predicted, without a measured rate
    assert ends(found.best_requirements.host_rate) == pytest.approx((2000, 2000))
    assert found.best_requirements.host_rate.basis is Origin.PREDICTED  # type: ignore[union-attr]
    assert ends(found.best_requirements.cpu_seconds) == pytest.approx((1e-3, 1e-3))


def test_unknown_bandwidth_gives_no_limit() -> None:
    found = sized()
    assert {ScalingLimit.STORAGE, ScalingLimit.NETWORK}.isdisjoint(limits(found))
    assert {"--storage-bandwidth", "--network", "--compression"} <= {one.ask for one in found.missing}
    assert found.service_bytes_compressed is None
    given_all = sized(asked=job(storage_bytes_per_second=1e9, network_bytes_per_second=1e9, compression=2.0))
    no_option_gives = {"cores for the training loop itself", "gradients on the network"}
    assert {one.figure for one in given_all.missing} == no_option_gives


def test_pipeline_with_python_has_measured_rate_only() -> None:
    text = f"{SOURCE} | map python cpu=1ms | batch 10 cpu=0us"
    found = sized(text)
    assert "runs Python code" in found.best_requirements.why
    assert found.best_requirements.host_rate == QuantityRange(1500, 1500, Origin.MEASURED)
    assert found.best_requirements.host_limit is ScalingLimit.INPUT and found.best_requirements.most_rate is None
    assert limits(found)[ScalingLimit.INPUT] == (15, 15)
    elsewhere = sized(text, asked=job(host_cores=8.0))
    assert elsewhere.best_requirements.host_rate is None and elsewhere.best_requirements.can_feed(4) is None
    assert elsewhere.best_requirements.cores is not None  # the CPU time is known nevertheless
    assert all(rung.delivered is None for rung in elsewhere.rungs)
    assert any("measured on 2 cores" in one.why for one in elsewhere.missing)


# -- closed forms


def test_cores_and_rates() -> None:
    feed = sized().best_requirements
    assert ends(feed.cpu_seconds) == pytest.approx((1.0e-3, 1.1e-3))  # 10 ms per batch of 10, and 1100 us
    # at least 400/s times 1 ms; 0.533 at the measured 750/s per core
    assert ends(feed.cores) == pytest.approx((0.4, 400 / 750))
    assert feed.host_rate == QuantityRange(1500, 1500, Origin.MEASURED)
    assert ends(feed.replicas_fed) == pytest.approx((15, 15))
    assert feed.can_feed(15) is True and feed.can_feed(16) is False
    assert ends(feed.service_workers) == (2, 2)  # 1600 of 1500


def test_rate_with_more_cores_is_corrected_by_prediction_error() -> None:
    feed = sized(asked=job(host_cores=8.0, worker_cores=4.0)).best_requirements
    # 8000/s predicted; on this machine 2000 predicted and 1500 measured
    assert ends(feed.host_rate) == pytest.approx((6000, 8000))
    assert feed.host_rate is not None and feed.host_rate.basis is Origin.PREDICTED
    assert feed.can_feed(60) is True and feed.can_feed(61) is None and feed.can_feed(81) is False
    assert feed.most_rate is None  # more cores always help
    assert ends(feed.service_workers) == (1, 1)


def test_single_thread_limits_rate_with_any_number_of_cores() -> None:
    found = sized(SERIAL, rate=None)
    assert ends(found.best_requirements.most_rate) == pytest.approx((5000, 5000), rel=1e-2)  # 200 us per example
    assert found.best_requirements.most_node == "n2"
    assert found.best_requirements.host_limit is ScalingLimit.CORES
    assert limits(found)[ScalingLimit.THREADS] == pytest.approx((50, 50), rel=1e-2)
    many = sized(SERIAL, rate=None, asked=job(host_cores=64.0))
    assert many.best_requirements.host_limit is ScalingLimit.THREADS and many.best_requirements.host_node == "n2"


def test_bytes_per_second_of_storage_and_service() -> None:
    found = sized(asked=job(compression=4.0))
    assert ends(found.best_requirements.storage_bytes_per_second) == pytest.approx((160e6, 160e6))  # 100 kB, 1600 times
    assert ends(found.service_bytes_per_second) == pytest.approx((20e6, 20e6))  # 50 kB, 400 times
    assert ends(found.service_bytes_compressed) == pytest.approx((5e6, 5e6))


def test_cache_in_memory_needs_no_storage_and_that_of_a_file_is_unknown() -> None:
    cache = Insert("n0", "cache", "cache@n0", {"filename": ""})
    tuned = apply_edits(parse(TEXT).pipeline, [cache])
    written, cached = sized(tuned=tuned).feeds
    assert cached.variant == "tuned" and ends(cached.storage_bytes_per_second) == (0, 0)
    assert written.storage_bytes_per_second is not None and written.storage_bytes_per_second.low > 0
    found = sized(f"{SOURCE} | cache /tmp/x | map AUTOTUNE cpu=1ms | batch 10 cpu=0us")
    assert found.best_requirements.storage_bytes_per_second is None
    assert any("cache file" in one.why for one in found.missing)


def test_memory_of_one_host() -> None:
    text = "range elements=4000 bytes=8 cpu=0us | shuffle 1000 bytes=8 cpu=0us | batch 10 bytes=80 cpu=0us"
    found = sized(f"{text} | prefetch 2 bytes=80 cpu=0us", rate=None, element_bytes=80.0)
    # 1000 numbers in shuffle, one batch in progress, 2 prefetched, and 1 for each of 4 replicas
    assert ends(found.best_requirements.memory_bytes) == (8000 + 80 + 160 + 4 * 80,) * 2
    # global batches of 160 on every host, and 2 elements prefetched for each of 4 replicas downstream
    assert ends(found.best_requirements.memory_bytes_rebatched) == (8000 + 16 * (80 + 160) + 8 * 80,) * 2
    peak = sized(f"{text} | prefetch 2 bytes=80 cpu=0us", element_bytes=80.0, peak_rss_mib=1.0).best_requirements
    low, high = ends(peak.memory_bytes)
    assert (low, high) == (8560, 8560 + 2**20 - 8240)  # plus the memory that no buffer explains


def test_cache_per_host_is_a_share_of_the_data_or_all_of_it() -> None:
    text = "TFRecordDataset elements=4000 bytes=100k cpu=0us | cache bytes=100k cpu=0us | batch 10 bytes=1M cpu=0us"
    low, high = ends(sized(text, rate=None, element_bytes=1e6).best_requirements.memory_bytes)
    assert high - low == pytest.approx(400e6 * 3 / 4)  # 4 hosts


def test_files_needed() -> None:
    found = sized("from_tensor_slices cpu=0us | interleave cycle_length=3 cpu=0us | map cpu=1ms | batch 10")
    assert (found.files.files, found.files.at_least, found.files.to_overlap) == (6, 4, 12)
    assert found.files.used_share == pytest.approx(6 / 8)  # two hosts read 2 files, two read 1
    assert limits(found)[ScalingLimit.FILES] == (24, 24)


def test_loop_uses_cores_only_with_accelerator() -> None:
    assert sized().loop_cores is None
    consumer = ConsumerProfile("keras-fit", bound_seconds=0.05, bound_cpu_seconds=0.02)
    there = compute_sizing(result(consumer=consumer), replace(MACHINE, device="gpu"), job())
    assert ends(there.loop_cores) == pytest.approx((0.8, 0.8))  # 4 replicas, 20 of each 100 ms


# -- limits of scaling


def test_lowest_limit_is_first() -> None:
    found = sized(asked=job(storage_bytes_per_second=100e6, network_bytes_per_second=500e6))
    assert limits(found) == {
        ScalingLimit.STORAGE: (10, 10),  # 10 MB/s for each replica
        ScalingLimit.FILES: (24, 24),
        ScalingLimit.DATA: (400, 400),  # 4000 examples
        ScalingLimit.CORES: (15, 15),
        ScalingLimit.NETWORK: (50, 50),
    }
    assert [one.limit for one in found.ceilings if one.reached] == [ScalingLimit.STORAGE]
    assert found.first_ceiling is not None and found.first_ceiling.limit is ScalingLimit.STORAGE
    table = {rung.replicas: (rung.delivered, rung.held_by) for rung in found.rungs}
    held = dict.fromkeys((16, 32), (1000, ScalingLimit.STORAGE))
    assert table == {1: (100, None), 2: (200, None), 4: (400, None), 8: (800, None), **held}


def test_unreached_limit_of_host_is_not_first() -> None:
    first = sized().first_ceiling
    assert first is not None and first.limit is ScalingLimit.FILES and not first.reached
    crowded = sized(asked=job(64, per_host=16))
    assert crowded.first_ceiling is not None and crowded.first_ceiling.limit is ScalingLimit.CORES
    assert {rung.replicas: rung.delivered for rung in crowded.rungs}[64] == pytest.approx(4 * 1500)


def test_data_limit_with_less_than_one_step() -> None:
    found = sized(asked=job(512), files=FileUse(bytes_per_element=1e6))
    assert found.first_ceiling is not None and found.first_ceiling.limit is ScalingLimit.DATA
    last = found.rungs[-1]
    assert last.held_by is ScalingLimit.DATA and last.delivered == last.needed


@pytest.mark.parametrize(("text", "wanted"), [
    ("range elements=95 | batch 10", 95),
    ("range elements=95 | batch 10 | repeat", 95),
    ("range elements=95 | batch 10 | repeat 3", 95),
    ("range elements=95 | shuffle 9 | repeat | batch 10 | prefetch 1", 95),
    ("range elements=95 | repeat | batch 10 | take 4", 40),
    ("range elements=95 | filter | batch 10", 95),
    ("from_tensor_slices elements=3 | interleave | batch 10", None),
    ("TFRecordDataset | batch 10", None),
])  # fmt: skip
def test_examples_in_an_epoch(text: str, wanted: int | None) -> None:
    words = parse(text)
    profile = replace(words.profile, examples_per_element=10.0)
    assert epoch_examples(words.pipeline, profile) in ((95, 100) if wanted == 95 else (wanted,))


# -- properties for all jobs

COUNTS = st.integers(1, 4096)
JOBS = st.builds(
    lambda replicas, per_host, step, cores: job(replicas, per_host=per_host, step_seconds=step, host_cores=cores),
    COUNTS,
    st.integers(1, 16),
    st.floats(1e-4, 10),
    st.integers(1, 128).map(float),
)
RESULTS = {text: result(text) for text in (TEXT, SERIAL)}


@pytest.mark.mission("B2.memory")
@settings(max_examples=30)
@given(st.sampled_from(sorted(RESULTS)), JOBS, st.integers(1, 64))
def test_more_replicas_never_need_fewer_resources(text: str, asked: TrainingJob, more: int) -> None:
    """Nor do more cores feed fewer replicas."""
    small = compute_sizing(RESULTS[text], MACHINE, asked)
    large = compute_sizing(RESULTS[text], MACHINE, replace(asked, replicas=asked.replicas + more))
    assert large.job.hosts >= small.job.hosts
    for name in ("cores", "service_workers", "storage_bytes_per_second", "memory_bytes_rebatched"):
        before, after = (ends(getattr(one.best_requirements, name)) for one in (small, large))
        assert after[0] >= before[0] * (1 - 1e-9) and after[1] >= before[1] * (1 - 1e-9), name
    jobs = (replace(asked, host_cores=2.0 + asked.host_cores + cores) for cores in (0, more))
    few, many = (compute_sizing(RESULTS[text], MACHINE, one) for one in jobs)
    assert ends(many.best_requirements.replicas_fed)[0] >= ends(few.best_requirements.replicas_fed)[0] * (1 - 1e-9)


@settings(max_examples=30)
@given(st.sampled_from(sorted(RESULTS)), JOBS)
def test_ranges_are_ordered_and_delivered_rate_is_at_most_needed(text: str, asked: TrainingJob) -> None:
    found = compute_sizing(RESULTS[text], MACHINE, asked)
    for name in ("cpu_seconds", "cores", "host_rate", "replicas_fed", "service_workers", "memory_bytes"):
        low, high = ends(getattr(found.best_requirements, name))
        assert 0 < low <= high, name
    delivered = [rung.delivered or 0.0 for rung in found.rungs]
    assert all(0 < rate <= rung.needed * (1 + 1e-9) for rate, rung in zip(delivered, found.rungs, strict=True))
    held = [rung for rung in found.rungs if rung.held_by not in (None, ScalingLimit.DATA)]
    assert all((rung.delivered or 0.0) < rung.needed for rung in held)
    assert all(one <= other * (1 + 1e-9) for one, other in itertools.pairwise(delivered))
    assert asked.replicas in {rung.replicas for rung in found.rungs}


# Batches of 10 examples in 100 ms: training takes 100 examples/s. The input is measured at 1500/s.
STEP = ConsumerProfile("loop", real_seconds=0.1, bound_seconds=0.1)
FAST = ConsumerProfile("loop", real_seconds=0.01, bound_seconds=0.002)  # training takes 5000 examples/s


def need(
    text: str = TEXT, *, consumer: ConsumerProfile = FAST, packing: float | None = None, **more: object
) -> ServiceNeed:
    return service_need(result(text, consumer=consumer, **more), MACHINE, compression_ratio=packing)  # type: ignore[arg-type]


def said(one: ServiceNeed) -> str:
    return " ".join(recommendation(one))


def test_no_recommendation_without_measured_step_or_input_rate() -> None:
    one = need(consumer=ConsumerProfile("none"))
    assert one.recommended is None and one.workers is None
    assert said(one) == "It is unknown whether a tf.data service helps: the training step time was not measured."
    one = need(TEXT.replace("map AUTOTUNE", "map AUTOTUNE python"), rate=None)
    assert one.local_rate is None and one.recommended is None
    assert "It is unknown whether a tf.data service helps: map" in said(one) and "runs Python code" in said(one)
    assert "worker" not in said(one)


def test_service_is_not_recommended_if_input_keeps_up() -> None:
    one = need(consumer=STEP)
    assert one.recommended is False
    assert said(one) == (
        "A tf.data service is not recommended: training consumes at most 100 examples/s, and the input alone delivers "
        "1,500/s on 2 cores, the same cores that training uses. Sending batches would only cost more."
    )


@pytest.mark.parametrize(("rate", "recommended"), [(4751.0, False), (4749.0, True)])
def test_input_rate_within_five_percent_of_training_is_sufficient(rate: float, recommended: bool) -> None:
    assert need(rate=Rate(examples_per_second=rate)).recommended is recommended


def test_number_of_workers_follows_from_measured_rate() -> None:
    one = need(packing=2.0)
    assert one.recommended is True and one.step_rate == pytest.approx(5000)
    assert ends(one.workers) == (4, 4)  # 5000 / 1500, rounded up
    assert ends(one.bytes_per_second) == pytest.approx((250e6, 250e6))  # 500 batches of 500 kB
    assert ends(one.packed_bytes_per_second) == pytest.approx((125e6, 125e6))
    text = said(one)
    assert text.startswith("A tf.data service helps: training consumes at most 5,000 examples/s, and the input alone")
    assert "4 workers of 2 cores would deliver what training consumes, according to the measured rate of one" in text
    assert "The training process receives 250 MB/s, 125 MB/s compressed." in text


def test_rate_of_workers_is_predicted_with_empty_caches() -> None:
    cached = TEXT.replace("| batch 10", "| cache cpu=0us | batch 10")
    one = need(cached, rate=Rate(examples_per_second=4000.0))
    assert ends(one.local_rate) == (4000, 4000)
    assert one.workers is not None and one.workers.basis is Origin.PREDICTED
    assert ends(one.workers) == (3, 3)  # 2 cores at 1 ms each give 2000 examples/s
    assert need(cached, rate=Rate(examples_per_second=9000.0)).recommended is False


def test_given_step_time_is_that_of_another_machine() -> None:
    one = service_need(result(consumer=STEP), MACHINE, step_seconds=0.002)
    assert one.step_rate == pytest.approx(5000) and one.recommended is True
    assert "the same cores that training uses" not in said(one)


def test_undecided_if_range_includes_training_rate() -> None:
    one = ServiceNeed(100.0, QuantityRange(90, 110, Origin.PREDICTED), QuantityRange(1, 2, Origin.PREDICTED), 1.0)
    assert one.recommended is None and one.max_workers == 2
    undecided = "It is undecided whether a tf.data service helps: training consumes at most 100 examples/s"
    assert said(one).startswith(undecided)
    assert "1 to 2 workers of 1 core would deliver" in said(one)


def test_numbers_have_no_exponents() -> None:
    received = QuantityRange(999_800, 1_000_200, Origin.PREDICTED)
    text = said(ServiceNeed(999.7, QuantityRange(90, 110, Origin.PREDICTED), bytes_per_second=received))
    assert "consumes at most 1,000 examples/s" in text and "receives 1,000 kB/s to 1 MB/s." in text
