"""Whether a tf.data service pays: held against figures worked out by hand, the silent cases first."""

from __future__ import annotations

import pytest

from pipetune.core.measurement import Rate
from pipetune.core.profile import ConsumerProfile
from pipetune.core.service import ServiceNeed
from pipetune.core.sizing import Basis, Quantity
from pipetune.model.service import recommendation, service_need
from tests.core.sessions import MACHINE
from tests.model.test_sizing import TEXT, ends, result

# Batches of 10 examples in 100 ms: training takes 100 examples/s. The input is measured at 1500/s.
STEP = ConsumerProfile("loop", real_seconds=0.1, bound_seconds=0.1)
FAST = ConsumerProfile("loop", real_seconds=0.01, bound_seconds=0.002)  # training takes 5000 examples/s


def need(
    text: str = TEXT, *, consumer: ConsumerProfile = FAST, packing: float | None = None, **more: object
) -> ServiceNeed:
    return service_need(result(text, consumer=consumer, **more), MACHINE, packing=packing)  # type: ignore[arg-type]


def said(one: ServiceNeed) -> str:
    return " ".join(recommendation(one))


def test_nothing_is_said_of_a_step_that_was_not_measured() -> None:
    one = need(consumer=ConsumerProfile("none"))
    assert one.recommended is None and one.workers is None
    assert said(one) == (
        "Whether a tf.data service helps is not known: how long training takes for a step was not measured."
    )


def test_nothing_is_said_where_the_rate_of_the_input_is_not_known() -> None:
    one = need(TEXT.replace("map AUTOTUNE", "map AUTOTUNE python"), rate=None)
    assert one.local_rate is None and one.recommended is None
    assert "is not known: map" in said(one) and "runs Python code" in said(one)
    assert "worker" not in said(one)


def test_an_input_that_keeps_up_alone_gets_no_service() -> None:
    one = need(consumer=STEP)
    assert one.recommended is False
    assert said(one) == (
        "A tf.data service is not recommended: training takes 100 examples/s at most, and the input alone delivers "
        "1,500/s on 2 cores, the same that train. Sending batches would only cost more."
    )


@pytest.mark.parametrize(("rate", "recommended"), [(4751.0, False), (4749.0, True)])
def test_within_a_twentieth_of_what_training_takes_counts_as_enough(rate: float, recommended: bool) -> None:
    assert need(rate=Rate(examples_per_second=rate)).recommended is recommended


def test_workers_follow_from_the_measured_rate_and_bytes() -> None:
    one = need(packing=2.0)
    assert one.recommended is True and one.step_rate == pytest.approx(5000)
    assert ends(one.workers) == (4, 4)  # 5000 / 1500, whole
    assert ends(one.bytes_per_second) == pytest.approx((250e6, 250e6))  # 500 batches of 500 kB
    assert ends(one.packed_bytes_per_second) == pytest.approx((125e6, 125e6))
    text = said(one)
    assert text.startswith("A tf.data service helps: training takes 5,000 examples/s at most, and the input alone")
    assert "4 workers of 2 cores would deliver what training takes, by the measured rate of one" in text
    assert "Into the training process come 250 MB/s, 125 MB/s packed." in text


def test_workers_start_caches_empty_so_their_rate_is_that_without() -> None:
    cached = TEXT.replace("| batch 10", "| cache cpu=0us | batch 10")
    one = need(cached, rate=Rate(examples_per_second=4000.0))
    assert ends(one.local_rate) == (4000, 4000)
    assert one.workers is not None and one.workers.basis is Basis.PREDICTED
    assert ends(one.workers) == (3, 3)  # 2 cores at 1 ms each give 2000 examples/s
    fed = need(cached, rate=Rate(examples_per_second=9000.0))
    assert fed.recommended is False


def test_a_pretended_step_is_that_of_another_machine() -> None:
    one = service_need(result(consumer=STEP), MACHINE, step_seconds=0.002)
    assert one.step_rate == pytest.approx(5000) and one.recommended is True
    assert "the same that train" not in said(one)


def test_a_range_that_leaves_it_open_is_left_open() -> None:
    one = ServiceNeed(100.0, Quantity(90, 110, Basis.PREDICTED), Quantity(1, 2, Basis.PREDICTED), 1.0)
    assert one.recommended is None and one.most_workers == 2
    assert said(one).startswith("Whether a tf.data service helps is open: training takes 100 examples/s")
    assert "1 to 2 workers of 1 core would deliver" in said(one)
