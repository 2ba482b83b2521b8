"""Whether a tf.data service helps, compared with results by hand; cases without a recommendation first."""

from __future__ import annotations

import pytest

from pipetune.core.profile import ConsumerProfile
from pipetune.core.results import Rate, ServiceNeed
from pipetune.core.sizing import Origin, QuantityRange
from pipetune.model.service import recommendation, service_need
from tests.core.sessions import MACHINE
from tests.model.test_sizing import TEXT, ends, result

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
