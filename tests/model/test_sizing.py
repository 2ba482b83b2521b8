"""What a larger job needs, against figures worked out by hand, and what must hold for any job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Insert, Plan
from pipetune.core.measurement import Rate
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import ConsumerProfile
from pipetune.core.session import DatasetResult
from pipetune.core.sizing import Basis, Job, Limit, Quantity, Sizing
from pipetune.core.storage import FileUse
from pipetune.model import scaling
from pipetune.model.sizing import size
from pipetune.testing.words import read
from tests.core.sessions import MACHINE

# A record of 100 kB, 1 ms of a map on any number of cores, batches of 10; 4000 records in 6 files.
SOURCE = "TFRecordDataset bytes=100k elements=4000 cpu=0us"
TEXT = f"{SOURCE} | map AUTOTUNE bytes=50k cpu=1ms | batch 10 bytes=500k cpu=0us | prefetch 2 bytes=500k cpu=0us"
SERIAL = f"{SOURCE} | map AUTOTUNE cpu=1ms | map random cpu=200us | batch 10 cpu=0us | prefetch 2 cpu=0us"
MEASURED = Rate(examples_per_second=1500.0, cpu_us_per_example=1100.0, peak_rss_mib=20.0)


def result(
    text: str = TEXT, *, rate: Rate | None = MEASURED, tuned: Pipeline | None = None, **more: Any
) -> DatasetResult:
    words = read(text)
    files = more.pop("files", FileUse(files=6, bytes_per_element=1e6))
    known: dict[str, Any] = {"examples_per_element": 10.0, "element_bytes": 500e3, "input_cpu_seconds": 10e-3}
    profile = replace(words.profile, files=files, **{**known, **more})
    return DatasetResult(
        words.pipeline,
        "training",
        profile=profile,
        rates={} if rate is None else {"defaults": rate},
        tuned=tuned,
        plan=None if tuned is None else Plan("tuned"),
    )


def job(replicas: int = 16, **more: Any) -> Job:
    """16 replicas on 4 hosts; a replica takes 10 examples in 0.1 s: 100 a second, 400 on a host, 1600 in all."""
    known: dict[str, Any] = {
        "per_host": 4,
        "step_seconds": 0.1,
        "batch_examples": 10.0,
        "host_cores": 2.0,
        "worker_cores": 2.0,
    }
    return Job(replicas, **{**known, **more})


def sized(text: str = TEXT, *, asked: Job | None = None, **more: Any) -> Sizing:
    return size(result(text, **more), MACHINE, asked or job())


def ends(quantity: Quantity | None) -> tuple[float, float]:
    assert quantity is not None
    return quantity.low, quantity.high


def limits(sizing: Sizing) -> dict[Limit, tuple[float, float]]:
    return {one.limit: ends(one.replicas) for one in sizing.ceilings}


# -- what is not known is left out and said


def test_what_was_not_measured_is_missing_and_nothing_else() -> None:
    found = sized(rate=None, files=None, element_bytes=None)
    assert found.feed.storage_bytes_per_second is None and found.service_bytes_per_second is None
    assert found.feed.memory_bytes is None and found.feed.memory_bytes_rebatched is None
    assert found.files.files is None
    assert {"storage", "network for tf.data service", "files", "memory"} <= {one.figure for one in found.missing}
    # the rest is there: predicted, as nothing was timed
    assert found.feed.host_rate == Quantity(pytest.approx(2000), pytest.approx(2000), Basis.PREDICTED)
    assert ends(found.feed.cpu_seconds) == pytest.approx((1e-3, 1e-3))


def test_no_bandwidth_is_made_up() -> None:
    found = sized()
    assert {Limit.STORAGE, Limit.NETWORK}.isdisjoint(limits(found))
    assert {"--storage-bandwidth", "--network", "--compression"} <= {one.ask for one in found.missing}
    assert found.service_bytes_compressed is None
    given_all = sized(asked=job(storage_bytes_per_second=1e9, network_bytes_per_second=1e9, compression=2.0))
    no_option_gives = {"cores for the training loop itself", "gradients on the network"}
    assert {one.figure for one in given_all.missing} == no_option_gives


def test_python_in_the_pipeline_leaves_what_was_measured() -> None:
    text = f"{SOURCE} | map python cpu=1ms | batch 10 cpu=0us"
    found = sized(text)
    assert "runs Python code" in found.feed.why
    assert found.feed.host_rate == Quantity(1500, 1500, Basis.MEASURED)
    assert found.feed.host_limit is Limit.INPUT and found.feed.most_rate is None
    assert limits(found)[Limit.INPUT] == (15, 15)
    elsewhere = sized(text, asked=job(host_cores=8.0))
    assert elsewhere.feed.host_rate is None and elsewhere.feed.feeds(4) is None
    assert elsewhere.feed.cores is not None  # the CPU time is known all the same
    assert all(rung.delivered is None for rung in elsewhere.rungs)
    assert any("measured on 2 cores" in one.why for one in elsewhere.missing)


def test_a_cache_file_is_not_taken_for_free() -> None:
    text = f"{SOURCE} | cache /tmp/x | map AUTOTUNE cpu=1ms | batch 10 cpu=0us"
    found = sized(text)
    assert found.feed.storage_bytes_per_second is None
    assert any("cache file" in one.why for one in found.missing)


# -- closed forms


def test_cores_and_rates_by_hand() -> None:
    feed = sized().feed
    assert ends(feed.cpu_seconds) == pytest.approx((1.0e-3, 1.1e-3))  # 10 ms per batch of 10, and 1100 us
    # 400/s times 1 ms at least; at the 750/s that each core here reached, 0.533
    assert ends(feed.cores) == pytest.approx((0.4, 400 / 750))
    assert feed.host_rate == Quantity(1500, 1500, Basis.MEASURED)
    assert ends(feed.replicas_fed) == pytest.approx((15, 15))
    assert feed.feeds(15) is True and feed.feeds(16) is False
    assert ends(feed.service_workers) == (2, 2)  # 1600 of 1500


def test_more_cores_are_predicted_and_held_by_what_the_prediction_was_off() -> None:
    feed = sized(asked=job(host_cores=8.0, worker_cores=4.0)).feed
    # predicted 8000/s; here 2000 were predicted and 1500 measured
    assert ends(feed.host_rate) == pytest.approx((6000, 8000))
    assert feed.host_rate is not None and feed.host_rate.basis is Basis.PREDICTED
    assert feed.feeds(60) is True and feed.feeds(61) is None and feed.feeds(81) is False
    assert feed.most_rate is None  # cores always help
    assert ends(feed.service_workers) == (1, 1)


def test_a_thread_holds_whatever_the_cores() -> None:
    found = sized(SERIAL, rate=None)
    assert ends(found.feed.most_rate) == pytest.approx((5000, 5000), rel=1e-2)  # 200 us each
    assert found.feed.most_node == "n2"
    assert found.feed.host_limit is Limit.CORES
    assert limits(found)[Limit.THREADS] == pytest.approx((50, 50), rel=1e-2)
    many = sized(SERIAL, rate=None, asked=job(host_cores=64.0))
    assert many.feed.host_limit is Limit.THREADS and many.feed.host_node == "n2"


def test_bytes_by_hand() -> None:
    found = sized(asked=job(compression=4.0))
    assert ends(found.feed.storage_bytes_per_second) == pytest.approx((160e6, 160e6))  # 100 kB, 1600 times
    assert ends(found.service_bytes_per_second) == pytest.approx((20e6, 20e6))  # 50 kB, 400 times
    assert ends(found.service_bytes_compressed) == pytest.approx((5e6, 5e6))


def test_a_cache_in_memory_ends_reading() -> None:
    cache = Insert("n0", "cache", "cache@n0", {"filename": ""})
    tuned = apply_edits(read(TEXT).pipeline, [cache])
    written, cached = sized(tuned=tuned).feeds
    assert cached.variant == "tuned" and ends(cached.storage_bytes_per_second) == (0, 0)
    assert written.storage_bytes_per_second is not None and written.storage_bytes_per_second.low > 0


def test_memory_by_hand() -> None:
    text = "range elements=4000 bytes=8 cpu=0us | shuffle 1000 bytes=8 cpu=0us | batch 10 bytes=80 cpu=0us"
    found = sized(f"{text} | prefetch 2 bytes=80 cpu=0us", rate=None, element_bytes=80.0)
    # 1000 numbers shuffled, one batch being made, 2 ahead, and 1 for each of 4 replicas
    assert ends(found.feed.memory_bytes) == (8000 + 80 + 160 + 4 * 80,) * 2
    # whole batches of 160 on every host; twice 4 elements ahead behind them
    assert ends(found.feed.memory_bytes_rebatched) == (8000 + 16 * (80 + 160) + 8 * 80,) * 2
    peak = sized(f"{text} | prefetch 2 bytes=80 cpu=0us", element_bytes=80.0, peak_rss_mib=1.0).feed
    low, high = ends(peak.memory_bytes)
    assert (low, high) == (8560, 8560 + 2**20 - 8240)  # what no buffer explains comes on top


def test_a_cache_is_a_share_of_the_files_or_everything() -> None:
    text = "TFRecordDataset elements=4000 bytes=100k cpu=0us | cache bytes=100k cpu=0us | batch 10 bytes=1M cpu=0us"
    low, high = ends(sized(text, rate=None, element_bytes=1e6).feed.memory_bytes)
    assert high - low == pytest.approx(400e6 * 3 / 4)  # 4 hosts


def test_files_by_hand() -> None:
    found = sized("from_tensor_slices cpu=0us | interleave cycle_length=3 cpu=0us | map cpu=1ms | batch 10")
    assert (found.files.files, found.files.at_least, found.files.to_overlap) == (6, 4, 12)
    assert found.files.used_share == pytest.approx(6 / 8)  # two hosts read 2 files, two read 1
    assert limits(found)[Limit.FILES] == (24, 24)


def test_the_loop_takes_cores_on_an_accelerator_only() -> None:
    assert sized().loop_cores is None
    consumer = ConsumerProfile("keras-fit", bound_seconds=0.05, bound_cpu_seconds=0.02)
    there = size(result(consumer=consumer), replace(MACHINE, device="gpu"), job())
    assert ends(there.loop_cores) == pytest.approx((0.8, 0.8))  # 4 replicas, 20 ms of each 100


# -- where it stops


def test_limits_by_hand_and_the_lowest_first() -> None:
    found = sized(asked=job(storage_bytes_per_second=100e6, network_bytes_per_second=500e6))
    assert limits(found) == {
        Limit.STORAGE: (10, 10),  # 10 MB/s for each replica
        Limit.FILES: (24, 24),
        Limit.DATA: (400, 400),  # 4000 examples
        Limit.CORES: (15, 15),
        Limit.NETWORK: (50, 50),
    }
    assert [one.limit for one in found.ceilings if one.reached] == [Limit.STORAGE]
    assert found.first_ceiling is not None and found.first_ceiling.limit is Limit.STORAGE
    table = {rung.replicas: (rung.delivered, rung.held_by) for rung in found.rungs}
    assert table == {1: (100, None), 2: (200, None), 4: (400, None), 8: (800, None)} | {
        16: (1000, Limit.STORAGE),
        32: (1000, Limit.STORAGE),
    }


def test_a_limit_of_a_host_that_is_not_reached_is_not_the_first() -> None:
    first = sized().first_ceiling
    assert first is not None and first.limit is Limit.FILES and not first.reached
    crowded = sized(asked=job(64, per_host=16))
    assert crowded.first_ceiling is not None and crowded.first_ceiling.limit is Limit.CORES
    assert {rung.replicas: rung.delivered for rung in crowded.rungs}[64] == pytest.approx(4 * 1500)


def test_less_than_a_step_of_data() -> None:
    found = sized(asked=job(512), files=FileUse(bytes_per_element=1e6))
    assert found.first_ceiling is not None and found.first_ceiling.limit is Limit.DATA
    last = found.rungs[-1]
    assert last.held_by is Limit.DATA and last.delivered == last.needed


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("range elements=95 | batch 10", 95),
        ("range elements=95 | batch 10 | repeat", 95),
        ("range elements=95 | batch 10 | repeat 3", 95),
        ("range elements=95 | shuffle 9 | repeat | batch 10 | prefetch 1", 95),
        ("range elements=95 | repeat | batch 10 | take 4", 40),
        ("range elements=95 | filter | batch 10", 95),
        ("from_tensor_slices elements=3 | interleave | batch 10", None),
        ("TFRecordDataset | batch 10", None),
    ],
)
def test_examples_in_an_epoch(text: str, wanted: int | None) -> None:
    words = read(text)
    profile = replace(words.profile, examples_per_element=10.0)
    found = scaling.epoch_examples(words.pipeline, profile)
    assert found == wanted or (wanted == 95 and found == 100)


def test_a_dataset_without_costs_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="without a profile"):
        size(replace(result(), profile=None), MACHINE, job())


# -- what holds for any job

COUNTS = st.integers(1, 4096)
JOBS = st.builds(
    lambda replicas, per_host, step, cores: job(replicas, per_host=per_host, step_seconds=step, host_cores=cores),
    COUNTS,
    st.integers(1, 16),
    st.floats(1e-4, 10),
    st.integers(1, 128).map(float),
)
RESULTS = {text: result(text) for text in (TEXT, SERIAL)}


@given(st.sampled_from(sorted(RESULTS)), JOBS, st.integers(1, 64))
def test_more_replicas_never_need_less(text: str, asked: Job, more: int) -> None:
    small = size(RESULTS[text], MACHINE, asked)
    large = size(RESULTS[text], MACHINE, replace(asked, replicas=asked.replicas + more))
    assert large.job.hosts >= small.job.hosts
    for name in ("cores", "service_workers", "storage_bytes_per_second", "memory_bytes_rebatched"):
        before, after = (ends(getattr(one.feed, name)) for one in (small, large))
        assert after[0] >= before[0] * (1 - 1e-9) and after[1] >= before[1] * (1 - 1e-9), name


@given(st.sampled_from(sorted(RESULTS)), JOBS)
def test_ranges_are_ranges_and_nothing_delivers_more_than_is_needed(text: str, asked: Job) -> None:
    found = size(RESULTS[text], MACHINE, asked)
    for name in ("cpu_seconds", "cores", "host_rate", "replicas_fed", "service_workers", "memory_bytes"):
        low, high = ends(getattr(found.feed, name))
        assert 0 < low <= high, name
    delivered = [rung.delivered or 0.0 for rung in found.rungs]
    assert all(0 < rate <= rung.needed * (1 + 1e-9) for rate, rung in zip(delivered, found.rungs, strict=True))
    held = [rung for rung in found.rungs if rung.held_by not in (None, Limit.DATA)]
    assert all((rung.delivered or 0.0) < rung.needed for rung in held)
    assert delivered == sorted(delivered)
    assert asked.replicas in {rung.replicas for rung in found.rungs}


@given(st.sampled_from(sorted(RESULTS)), JOBS, st.integers(1, 64))
def test_more_cores_never_feed_fewer(text: str, asked: Job, more: int) -> None:
    few = size(RESULTS[text], MACHINE, replace(asked, host_cores=2.0 + asked.host_cores))
    many = size(RESULTS[text], MACHINE, replace(asked, host_cores=2.0 + asked.host_cores + more))
    assert ends(many.feed.replicas_fed)[0] >= ends(few.feed.replicas_fed)[0] * (1 - 1e-9)
