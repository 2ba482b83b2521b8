"""Proves that a rewritten pipeline yields what the original yields: values, randomness, epochs.

Both pipelines get the same recorded source, the same seeds and empty caches (see `recorded`, `pinning`), so any
difference that remains comes from the rewrite. They read copies of variables; the user's are not touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipetune.core import scratch
from pipetune.core.comparison import Check, Comparison
from pipetune.core.edits import Safety
from pipetune.core.pipeline import Pipeline, Value
from pipetune.tf.equality import declared, sharing
from pipetune.tf.equality.elements import Unreadable
from pipetune.tf.equality.paired_runs import CannotCompare, Limits, PairedRuns
from pipetune.tf.equality.pinning import CannotPin
from pipetune.tf.equality.proof import Proof
from pipetune.tf.equality.reproduction import digests, reproducible
from pipetune.tf.equality.sharing import Side
from pipetune.tf.error_text import first_line
from pipetune.tf.pipelines import live
from pipetune.tf.pipelines.replay import replay

__all__ = ["compare", "compare_datasets", "digests", "reproducible"]

REPLAYS = True  # datasets built in calls from this module are pipetune's own, not the user's


def compare(
    source: live.LivePipeline,
    edited: Pipeline,
    safety: Safety,
    *,
    elements: int = 256,
    time_limit_seconds: float = 20.0,
    seed: int = 0,
) -> Comparison:
    """Checks whether `edited` yields what the original pipeline yields, as strictly as `safety` requires.

    Args:
        source: the live pipeline that the edits were applied to.
        edited: the pipeline after the edits.
        safety: the safety class of the edits.
        elements: number of source elements to compare with; more are used where batches and skips need them.
        time_limit_seconds: approximate limit for drawing elements; what was compared by then counts.
        seed: seed of the pinned random draws.

    Returns:
        The checks done. `Comparison.equal` says that none failed, `Comparison.proven` that values and whole epochs
        were compared too. A check that could not be done has `equal` None, and its `detail` says why.

    Raises:
        CannotReplay: the edited pipeline cannot be built.
    """
    options = {
        name: value for name, value in edited.options.items() if source.pipeline.options.get(name) != value
    }
    return _prove(
        (Side(source, source.pipeline), Side(source, edited)),
        (source.dataset, replay(source, edited)),
        safety,
        options=options,
        limits=Limits(elements, time_limit_seconds, seed),
    )


def compare_datasets(
    original: Any,
    candidate: Any,
    safety: Safety,
    *,
    elements: int = 256,
    time_limit_seconds: float = 20.0,
    seed: int = 0,
) -> Comparison:
    """Like `compare`, for two live datasets. Operators count as shared if both hold the same dataset object."""
    return _prove(
        sharing.sides_of(live.read(original), candidate),
        (original, candidate),
        safety,
        options={},
        limits=Limits(elements, time_limit_seconds, seed),
    )


def _prove(
    sides: tuple[Side, Side],
    datasets: tuple[Any, Any],
    safety: Safety,
    *,
    options: Mapping[str, Value],
    limits: Limits,
) -> Comparison:
    told = any(one is not None for one in sharing.numbered(*sides).values())
    checks = declared.declared_checks(
        *datasets,
        safety,
        edited_options=options,
        cardinality_told=told,
    )
    if safety >= Safety.REORDERS:
        checks.append(declared.batches_check(sides[0].pipeline, sides[1].pipeline))
    with scratch.folder("compare") as folder:
        runs = PairedRuns(sharing.with_common_assertions(*sides), datasets, safety, limits, folder)
        proof = Proof(runs, limits.seed)
        try:
            checks += proof.checks()
        except (CannotCompare, CannotPin, Unreadable) as error:
            checks.append(Check("values", None, f"not compared: {error}"))
        except Exception as error:  # user functions may return anything; what was not compared is not proven
            checks.append(Check("values", None, f"not compared: {type(error).__name__}: {first_line(error)}"))
    notes = tuple(dict.fromkeys(runs.notes))
    return Comparison(safety, tuple(checks), proof.elements, proof.epochs, notes)
