"""Proves that a rewritten pipeline yields what the original yields: values, randomness, epochs, declarations."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture.distributed_input import DistributedInput
from pipetune.core import files
from pipetune.core.edits import Safety, SetArgument, apply_edits
from pipetune.core.errors import CannotReplay
from pipetune.core.pipeline import UNKNOWN, Pipeline, Value
from pipetune.core.results import Comparison, EqualityCheck
from pipetune.equality import elements, sample, sharing
from pipetune.equality.elements import IncomparableElement
from pipetune.equality.paired_runs import CannotCompare, ComparisonLimits, PairedRuns
from pipetune.equality.pinning import CannotPin, PinningOptions, pin_dataset
from pipetune.equality.proof import EqualityProof
from pipetune.equality.sharing import ComparedPipeline
from pipetune.pipelines import gathering, live
from pipetune.pipelines.errors import first_line
from pipetune.pipelines.replay import replay, replay_nodes


def _cardinality(original: Any, candidate: Any, safety: Safety, *, revealed: bool) -> EqualityCheck:
    """Returns the check of the cardinality; `revealed`: the rewrite may make one known that TensorFlow did not know."""
    one, other = int(original.cardinality()), int(candidate.cardinality())
    detail = "" if one == other else f"{_cardinality_text(one)} became {_cardinality_text(other)}"
    if revealed and one == UNKNOWN and other >= 0:  # the number itself is verified by the epochs check
        return EqualityCheck("cardinality", True, f"{detail}: TensorFlow can now determine it")
    if one != other and safety >= Safety.REORDERS and (one < 0) == (other < 0):
        return EqualityCheck("cardinality", None, f"{detail}: the epoch boundaries moved")
    return EqualityCheck("cardinality", one == other, detail)


def _options(original: Any, candidate: Any, safety: Safety, edited: Mapping[str, Value]) -> EqualityCheck:
    """Returns the check of the options, of which those that the edits set may differ."""
    before, after = live.explicit_options(original), live.explicit_options(candidate)
    changed = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    if safety < Safety.REORDERS and after.get("deterministic") is False is not before.get("deterministic"):
        return EqualityCheck("options", False, "the order is no longer kept (deterministic: False)")
    differences = (f"{name}: {before.get(name)} became {after.get(name)}" for name in changed)
    return EqualityCheck("options", all(name in edited for name in changed), "; ".join(differences))


def _batches(original: Pipeline, candidate: Pipeline) -> EqualityCheck:
    """Returns the check of batch sizes and `drop_remainder`, for pipelines whose order may differ."""
    one, other = (
        ", ".join(
            f"{node.op}({node.argument('batch_size')}, drop_remainder={bool(node.argument('drop_remainder'))})"
            for node in pipeline.nodes
            if node.op in sample.BATCHING
        )
        for pipeline in (original, candidate)
    )
    detail = "" if one == other else f"{one or 'no batches'} became {other or 'no batches'}"
    return EqualityCheck("batches", one == other, detail)


def _cardinality_text(cardinality: int) -> str:
    return {-1: "infinite", -2: "unknown"}.get(cardinality, str(cardinality))


_NAME = "replicas"
_BATCHING = frozenset({"batch", "padded_batch", "ragged_batch"})


def replica_check(distributed_input: DistributedInput, tuned: Any) -> Iterator[EqualityCheck]:
    """Yields the check that every replica receives the same rows as before; nothing if batches are not divided.

    A strategy infers the batch size: it walks upstream from the end of the pipeline to the operator that batches, and
    gives up at a map on the way. If it knows the size, and shards by file or not at all, it distributes rows to the
    replicas by that size; otherwise it divides every batch by its own size. A smaller last batch then goes to other
    replicas (TensorFlow 2.21, `input_lib._make_rebatch_fn` and `_AutoShardDataset`).

    Args:
        distributed_input: the script's dataset and the strategy call that distributes it.
        tuned: the dataset of the plan.
    """
    before = distributed_input.handover
    if not before.shares:
        return
    after = replace(distributed_input, dataset=tuned, distributed=distributed_input.distribute(tuned)).handover
    size, count = before.batch or after.batch, len(before.shares)
    if before.by_own_size and after.by_own_size:
        yield EqualityCheck(_NAME, True, f"every batch is divided over {count} replicas by its own size, as before")
    elif before.by_own_size == after.by_own_size:
        now, sizes = _sizes(after.shares), f"{_sizes(before.shares)} rows of a batch"
        equal = before.shares == after.shares
        detail = f"{sizes} as before" if equal else f"{now} rows instead of {sizes}"
        yield EqualityCheck(_NAME, equal, f"the replicas get {detail}")
    elif size and size % count == 0 and not _may_be_partial(distributed_input.dataset):
        yield EqualityCheck(_NAME, True, f"each of {count} replicas gets {size // count} rows of every batch as before")
    else:
        yield EqualityCheck(
            _NAME,
            False,
            "the strategy would divide partial or uneven batches over its replicas differently; "
            "drop_remainder=True in the script's batch would prevent that",
        )


def _may_be_partial(dataset: Any) -> bool:
    """Whether some batch may be smaller than the others: not with `drop_remainder` or an infinite batched dataset."""
    while live.kind_of(dataset).op not in _BATCHING:
        above = tensorflow_private.inputs(dataset)
        if len(above) != 1:
            return True
        (dataset,) = above
    (source,) = tensorflow_private.inputs(dataset)
    drops = live.read_arguments(dataset, live.kind_of(dataset)).get("drop_remainder")
    return not drops and int(source.cardinality()) != tf.data.INFINITE_CARDINALITY


def _sizes(shares: tuple[int, ...]) -> str:
    return ", ".join(map(str, shares))


def compare(
    source: live.LivePipeline,
    edited: Pipeline,
    safety: Safety,
    *,
    elements: int = 256,
    time_limit_seconds: float = 20.0,
    seed: int = 0,
    filtered: Mapping[str, float] | None = None,
) -> Comparison:
    """Checks whether `edited` yields what the original pipeline yields, as strictly as `safety` requires.

    Args:
        source: the live pipeline that the edits were applied to.
        edited: the pipeline after the edits.
        safety: the safety class of the edits.
        elements: number of source elements to compare with; more are used if batches and skips need them.
        time_limit_seconds: approximate limit for drawing elements; the elements compared by then count.
        seed: seed of the pinned random draws.
        filtered: id of a filter -> elements it takes per element it passes on, as far as that was measured.

    Returns:
        The completed checks. `Comparison.equal` says that none failed, `Comparison.proven` that values and whole epochs
        were also compared. A check that could not be done has `equal` None, and its `detail` says why.

    Raises:
        CannotReplay: the edited pipeline cannot be built.
    """
    options = {name: value for name, value in edited.options.items() if source.pipeline.options.get(name) != value}
    try:
        datasets = source.dataset, replay(source, edited)
    except (tf.errors.OpError, ValueError, TypeError) as error:
        raise CannotReplay(f"The plan cannot be built: {first_line(error)}") from error
    source, edited, notes = _with_short_skips(source, edited, most=elements // 8)
    found = _prove(
        (ComparedPipeline(source, source.pipeline), ComparedPipeline(source, edited)),
        datasets,
        safety,
        options=options,
        limits=ComparisonLimits(elements, time_limit_seconds, seed, filtered or {}),
    )
    return replace(found, notes=(*notes, *found.notes))


def _with_short_skips(
    source: live.LivePipeline, edited: Pipeline, *, most: int
) -> tuple[live.LivePipeline, Pipeline, tuple[str, ...]]:
    """Returns both pipelines with each `skip` that they share limited to `most` elements, and a note for each.

    What `skip` drops is computed in every epoch: the sample of a split that skips most of the data would take longer
    than there is time for. Both are as they are if the original cannot be rebuilt.
    """
    original = source.pipeline
    shortened = [
        SetArgument(node.id, "count", most)
        for node in original
        if node.op == "skip" and sample.positive_argument(node, "count") > most
        if node.id in edited and edited[node.id].argument("count") == node.argument("count")
    ]
    if not shortened:
        return source, edited, ()
    pipeline = apply_edits(original, shortened)
    try:
        datasets = replay_nodes(source, pipeline)
    except (CannotReplay, tf.errors.OpError, ValueError, TypeError):
        return source, edited, ()
    notes = tuple(
        f"Compared with skip({most}) in place of skip({original[one.node].argument('count')}), in both."
        for one in shortened
    )
    return live.LivePipeline.of(pipeline, datasets), apply_edits(edited, shortened), notes


def compare_datasets(
    original: Any, candidate: Any, safety: Safety, *, elements: int = 256, time_limit_seconds: float = 20.0
) -> Comparison:
    """Like `compare`, for two live datasets. Operators count as shared if both contain the same dataset object."""
    return _prove(
        sharing.compared_pipelines(live.read(original), candidate),
        (original, candidate),
        safety,
        options={},
        limits=ComparisonLimits(elements, time_limit_seconds),
    )


def _prove(
    sides: tuple[ComparedPipeline, ComparedPipeline],
    datasets: tuple[Any, Any],
    safety: Safety,
    *,
    options: Mapping[str, Value],
    limits: ComparisonLimits,
) -> Comparison:
    gathers_windows = any(one is not None for one in sharing.gathered_arrays(*sides).values())
    before, after = (dataset.element_spec for dataset in datasets)
    checks = [
        EqualityCheck("spec", before == after, "" if before == after else f"{before} became {after}"),
        _cardinality(*datasets, safety, revealed=gathers_windows),
        _options(*datasets, safety, options),
    ]
    if safety >= Safety.REORDERS:
        checks.append(_batches(sides[0].pipeline, sides[1].pipeline))
    with files.temporary_folder("compare") as folder:
        runs = PairedRuns(sides, datasets, safety, limits, folder)
        proof = EqualityProof(runs)
        try:
            checks += proof.checks()
        except (CannotCompare, CannotPin, IncomparableElement) as error:
            checks.append(EqualityCheck("values", None, f"not compared: {error}"))
        except Exception as error:  # user functions may return anything; what was not compared is not proven
            checks.append(EqualityCheck("values", None, f"not compared: {type(error).__name__}: {first_line(error)}"))
    notes = tuple(dict.fromkeys(runs.notes))
    return Comparison(safety, tuple(checks), proof.elements, proof.epochs, notes)


PINNING_ERRORS = (CannotPin, IncomparableElement, tf.errors.OpError, ValueError, TypeError, NotImplementedError)
"""Exceptions that `digests` raises if a pipeline cannot be made reproducible."""


def digests(
    dataset: Any, *, count: int, seed: int = 0, python_seed: int | None = None, time_limit_seconds: float = 20.0
) -> list[str]:
    """Returns one hash per element, for the first `count` elements, with all randomness pinned.

    The hashes are the same in every process that builds the pipeline from the same functions, regardless of
    parallelism, prefetches and caches.

    Args:
        count: number of elements, at most.
        seed: seed of the pinned random draws.
        python_seed: that of what Python draws by `random` and `np.random`; None: the same.
        time_limit_seconds: approximate limit for drawing elements; at least one is drawn.

    Raises:
        CannotPin: something random cannot be fixed.
        tensorflow.errors.OpError: the dataset cannot be serialized.
    """
    with files.temporary_folder("digests") as folder:
        dataset = _on_few_rows(dataset, count=count)
        graph = tensorflow_private.serialized_graph(dataset)
        fixed = pin_dataset(graph, dataset.element_spec, PinningOptions(seed), folder=f"{folder}/cache")
        with elements.seeded_python(seed if python_seed is None else python_seed):
            deadline = time.monotonic() + time_limit_seconds
            return elements.draw_elements(fixed.dataset, count=count, deadline=deadline).digests


_WHOLE_BYTES = 16 << 20
"""Arrays up to this size stay whole where elements are compared. To pin a pipeline, its graph is copied with its arrays
some eight times (measured: 600 MB take 6.6 GB and, beside other work, 15 s)."""

_KEEPS_ROWS = frozenset(
    {"batch", "cache", "from_tensor_slices", "map", "prefetch", "repeat", "shuffle", "with_options"}
)
"""Operators behind which the first rows are enough for the first elements, whatever their positions."""


def _on_few_rows(dataset: Any, *, count: int) -> Any:
    """Returns the dataset on the first rows of its arrays where these are large: as many as `count` elements need."""
    source = live.read(dataset)
    pipeline, given = source.pipeline, dict[str, Any]()
    if not _KEEPS_ROWS.issuperset(node.op for node in pipeline):
        return dataset
    batch = math.prod(sample.batch_sizes(pipeline))
    for node in (one for one in pipeline if one.op == "from_tensor_slices"):
        arrays = source.datasets[node.id]
        size, specs = gathering.array_bytes(arrays), tf.nest.flatten(arrays.element_spec)
        if size <= _WHOLE_BYTES or not all(isinstance(one, tf.TensorSpec) for one in specs):
            continue
        rows = max(2 * batch, min(count * batch, node.cardinality * _WHOLE_BYTES // size))
        given[node.id] = gathering.rows_at(arrays, range(min(rows, node.cardinality)))
    try:
        return replay(source, pipeline, replacements=given) if given else dataset
    except CannotReplay:
        return dataset


_ELEMENTS_READ_AGAIN = 16  # by judgement: of so many, one differs where files are shuffled or images are cropped


def differs_when_read_again(dataset: Any, *, seconds: float) -> bool:
    """Whether the first elements are others in a second pass, with everything that TensorFlow draws pinned.

    They then depend on what Python draws, or on what it keeps from one pass to the next. False if they cannot be
    compared.

    Args:
        dataset: what runs Python last.
        seconds: for both passes; at least one element is drawn in each.
    """
    try:
        first, second = (
            digests(dataset, count=_ELEMENTS_READ_AGAIN, python_seed=number, time_limit_seconds=seconds / 2)
            for number in range(2)
        )
    except PINNING_ERRORS:
        return False
    return any(one != other for one, other in zip(first, second, strict=False)) or bool(first) != bool(second)
