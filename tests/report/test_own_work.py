"""TensorFlow's own work: shown in every format, under its own name, with the reasons."""

from __future__ import annotations

from dataclasses import replace

from pipetune.core.codec import decode, encode
from pipetune.core.results import (
    BUFFER_SIZE,
    PARALLELISM,
    AutotuneValues,
    OptimizationPasses,
    PassReason,
    PassResult,
    PassState,
    TunedValue,
)
from pipetune.core.session import Session
from pipetune.report.html import html
from pipetune.report.markdown import markdown
from pipetune.report.view import make_view
from tests.report import sessions as samples

READING = AutotuneValues(
    (
        TunedValue("", "Prefetch", BUFFER_SIZE, 8.0, 0.0, 512.0, True, 1.0, 0.6),
        TunedValue("n3", "ParallelMapV2", PARALLELISM, 3.0, 1.0, 16.0, True, 16.0, 1.2),
        TunedValue("n2", "ParallelMapV2", PARALLELISM, 4.0, 4.0, 4.0, False, 4.0),
    ),
    3.0,
    True,
)
PASSES = OptimizationPasses(
    (
        PassResult(
            "map_parallelization",
            True,
            PassState.FIRED,
            ("Map becomes ParallelMap",),
            (PassReason("n3", "stateful function: it draws random numbers (RandomUniform)"),),
        ),
        PassResult("noop_elimination", True, PassState.IDLE, (), (PassReason("", "<b>nothing</b>"),)),
    )
)


def session() -> Session:
    one = samples.photos()
    main = replace(
        one.datasets[0],
        autotuned={"defaults": READING, "autotune": AutotuneValues(note="The runtime shows no model.")},
        optimisations=PASSES,
    )
    return replace(one, datasets=(main, *one.datasets[1:]))


def test_numbers_and_when_they_moved() -> None:
    main = make_view(session()).main
    assert main is not None
    added, tuned, fixed = main.own_work.chosen
    assert (added.operator, added.parameter, added.value, added.span) == (
        "added by TensorFlow", "elements ahead", "8", "0 to 512"
    )  # fmt: skip
    assert added.moved == "after 600 ms"
    assert (tuned.operator, tuned.variant, tuned.value, tuned.moved) == ("map", "as written", "3", "after 1.20 s")
    assert tuned.where.endswith("photo_input.py:24")
    assert (fixed.span, fixed.tuned, fixed.moved) == ("fixed", False, "")
    assert main.own_work.settled == (
        "As written: the parallel calls stood still at the end of 3.00 s of watching.",
        "AUTOTUNE everywhere: The runtime shows no model.",
    )


def test_passes_with_reasons() -> None:
    main = make_view(session()).main
    assert main is not None
    fired, idle = main.own_work.passes
    assert fired.state == "fired"
    assert fired.reasons[0][0].startswith("map (") and "draws random numbers" in fired.reasons[0][1]
    assert idle.state == "found nothing"
    assert main.own_work.sentence == "TensorFlow changed this pipeline by itself: map_parallelization."


def test_it_is_in_the_page_and_escaped() -> None:
    page = html(session())
    for text in ("What TensorFlow did by itself", "What AUTOTUNE chose", "map_parallelization", 'href="#tensorflow"'):
        assert text in page
    assert "<b>nothing</b>" not in page
    text = markdown(session())
    assert "### What TensorFlow did by itself" in text and "#### What AUTOTUNE chose" in text
    assert "<b>nothing" not in text


def test_an_old_session_has_no_such_section() -> None:
    page, text = html(samples.photos()), markdown(samples.photos())
    assert "What TensorFlow did by itself" not in page + text
    main = make_view(samples.photos()).main
    assert main is not None and not main.own_work.shown


def test_a_session_carries_it() -> None:
    one = session()
    assert decode(Session, encode(one)) == one
