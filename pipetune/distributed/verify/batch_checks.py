"""Checks whole batches of a module: their number per epoch, their bytes, static shapes, and the `element_spec`."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.core.distribution import ElementBytes, ModuleCheck
from pipetune.core.errors import CannotExpress, CannotReplay
from pipetune.core.measurement import joined
from pipetune.core.pipeline import Pipeline
from pipetune.distributed.emit.sharding import BATCHES, below_batch, place
from pipetune.distributed.verify import numbering
from pipetune.distributed.verify.counting import running
from pipetune.distributed.verify.emitted import fitting_batch_size
from pipetune.model import coverage
from pipetune.pipelines import live
from pipetune.pipelines.replay import OUTPUT, replay, replay_nodes

_MOST_PACKED = 16 * 2**20  # bytes compressed to estimate the ratio, chosen by judgement: more takes longer


def weigh(source: live.LivePipeline, tuned: Pipeline) -> ElementBytes | None:
    """Returns the bytes of the first element of `tuned`, an edited form of `source`; None if they cannot be determined.

    The compressed size is that of zlib at its fastest level; the service uses snappy, which compresses slightly less.

    Raises:
        CannotExpress: the pipeline does not run.
    """
    try:
        dataset = replay(source, numbering.of_batches(tuned))
    except CannotReplay:
        return None
    with running():
        for element in dataset.take(1):
            parts = tf.nest.flatten(element, expand_composites=True)
            if not all(isinstance(part, tf.Tensor) and part.dtype != tf.variant for part in parts):
                return None
            texts = [tf.io.serialize_tensor(part).numpy() for part in parts]
            raw = sum(map(len, texts))
            looked_at = b"".join(texts)[:_MOST_PACKED]
            share = len(zlib.compress(looked_at, level=1)) / max(1, len(looked_at))
            return ElementBytes(raw, round(raw * share))
    return None


def of_replicas(
    check: ModuleCheck,
    made: list[live.LivePipeline],
    counts: list[int] | None,
    tuned: Pipeline,
    global_batch_size: int | None,
    *,
    one_process: bool = False,
) -> ModuleCheck:
    """Like `of_own_size` with batches of a replica, and returns `check` also with the cost of a last batch.

    Args:
        made: the pipelines of the workers with one replica each, then that of one worker which feeds all replicas.
        global_batch_size: the module's, in rows; None if it does not batch.
        one_process: report that cost for the one worker that feeds all replicas.
    """
    workers = len(made) - 1
    size = None
    if global_batch_size is not None:
        fitting = fitting_batch_size(global_batch_size, workers)
        check = replace(check, per_replica_batch=(size := fitting // workers))
        if fitting != global_batch_size:
            why = f"{workers} replicas do not divide {global_batch_size} rows: run with batches of {fitting}"
            check = replace(check, why=why)
    check = of_own_size(check, made, counts, tuned, size)
    if counts is not None and size is not None and _ends_with_a_batch(tuned):
        layout = ([sum(counts)], workers) if one_process else (counts, 1)
        dropped, filled = coverage.epoch_remainder(layout[0], size, replicas_per_worker=layout[1])
        return replace(check, dropped=dropped, filled=filled)
    return check


def _ends_with_a_batch(tuned: Pipeline) -> bool:
    """Whether each epoch ends with a batch of its own: no batch contains rows of two epochs."""
    batches = [node for node in tuned if node.op in BATCHES]
    blended = any(above.op == "repeat" for node in batches for above in tuned.upstream(node.id))
    return bool(batches) and not blended and not uncounted(tuned)


def of_own_size(
    check: ModuleCheck, made: list[live.LivePipeline], counts: list[int] | None, tuned: Pipeline, batch_size: int | None
) -> ModuleCheck:
    """Runs every complete pipeline for one batch, and returns `check` with the number of batches per epoch.

    Args:
        made: the pipelines to run.
        counts: elements of each worker in an epoch, from which the batches are computed; None if not counted.
        tuned: the pipeline that the module implements.
        batch_size: rows of a full batch; None without batches.

    Raises:
        CannotExpress: a pipeline does not run, or a batch is too large.
    """
    batches = [node for node in tuned if node.op in BATCHES]
    reshaped = any(below.op == "map" for node in batches for below in tuned.downstream(node.id))
    for whole in made:
        _one_batch(whole, None if reshaped else batch_size)
    if counts is not None and not uncounted(tuned):
        drop, size = any(node.argument("drop_remainder") for node in batches), batch_size or 1
        made_of = [coverage.count_batches(count, size, drop_remainder=drop) for count in counts]
        epoch, short = tuple(whole for whole, _ in made_of), tuple(partial for _, partial in made_of)
        equal = len(set(epoch)) == 1 and not any(short)
        return replace(check, batches_per_worker=epoch, short_batches_per_worker=short, equal_batches=equal)
    return check


def _one_batch(made: live.LivePipeline, per_replica: int | None) -> None:
    try:
        dataset = replay(made, numbering.of_batches(made.pipeline))
    except CannotReplay:
        dataset = made.dataset
    with running():
        elements = list(dataset.take(1))
    for element in elements:
        rows = {part.shape[0] for part in tf.nest.flatten(element) if isinstance(part, tf.Tensor) and part.shape.rank}
        if per_replica is not None and any(count > per_replica for count in rows):
            raise CannotExpress(f"A replica gets a batch of {max(rows)} rows instead of {per_replica}.")


def uncounted(tuned: Pipeline) -> tuple[str, ...]:
    """Returns the operators that choose elements, but do not run where elements are counted: a `take` of batches."""
    kept = {node.id for node in numbering.of_elements(tuned)}
    unseen = (node for node in tuned if node.op not in numbering.KEEPING | BATCHES and node.id not in kept)
    return tuple(dict.fromkeys(node.title for node in unseen))


def check_shapes(whole: Any, part: Any) -> None:
    """Checks that batches for one replica have the `element_spec` of those for all (`whole`), but for the rows.

    Raises:
        CannotExpress: they have not, because a function behind the batch relies on its number of rows.
    """
    for one, other in zip(tf.nest.flatten(whole), tf.nest.flatten(part), strict=True):
        if isinstance(one, tf.TensorSpec) and one.shape[1:] != other.shape[1:]:
            raise CannotExpress(
                f"A map behind the batch relies on the number of its rows: {_short(one)} becomes {_short(other)}."
            )


def mixing_maps(source: live.LivePipeline, tuned: Pipeline) -> Iterator[str]:
    """Yields notes on maps that compute the rows of a batch with one another, as its first batch shows.

    The second half of its rows is replaced by the first, which may not change what becomes of the first.

    Raises:
        CannotExpress: the pipeline does not run.
    """
    reduced = numbering.of_batches(tuned)
    below, batches = below_batch(reduced)
    nodes = [reduced[name] for name in reversed(below)] if batches else []
    maps = [node for node in nodes if node.op == "map" and node.function is not None and node.function.stateless]
    try:
        built = replay_nodes(source, reduced) if maps else {}
    except CannotReplay:
        return
    for node in maps:
        with running(), tf.device("CPU"):
            for element in built[node.inputs[0]].take(1):
                if _mixes_rows(built[node.id]._map_func, element):
                    yield f"{place(node, short=True)} computes with all rows of a batch, here with those of a replica's"


def _mixes_rows(function: Any, element: Any) -> bool:
    """Whether the first rows of what a traced function makes of a batch depend on the last rows of the batch."""
    parts = tf.nest.flatten(element, expand_composites=True)
    if not all(isinstance(part, tf.Tensor) and part.shape.rank for part in parts):
        return False
    rows = len(parts[0])
    if rows < 2 or any(len(part) != rows for part in parts):
        return False
    first = (rows + 1) // 2
    repeated = tf.nest.map_structure(lambda part: tf.concat([part[:first], part[: rows - first]], 0), element)
    made, other = (tf.nest.flatten(tensorflow_private.call_traced(function, one)) for one in (element, repeated))
    return any(
        tf.io.serialize_tensor(one[:first]) != tf.io.serialize_tensor(two[:first])
        for one, two in zip(made, other, strict=True)
        if isinstance(one, tf.Tensor) and one.shape == two.shape and one.shape.rank and len(one) == rows
    )


def check_static(source: live.LivePipeline, tuned: Pipeline) -> None:
    """Checks that all elements of `tuned`, an edited form of `source`, have the same known shape.

    Raises:
        CannotExpress: they have not; the message names the most upstream operator for which this holds, and its line.
    """
    built = replay_nodes(source, tuned)
    wrong = _wrong(built[OUTPUT].element_spec)
    if not wrong:
        return
    culprit = tuned.output
    # Go upstream from the output, to the operator that the user can change.
    while len(culprit.inputs) == 1 and culprit.function is None and culprit.op != "padded_batch":
        above = tuned[culprit.inputs[0]]
        if not _wrong(built[above.id].element_spec):
            break
        culprit = above
    raise CannotExpress(
        f"{place(culprit)} gives {wrong}, and a TPU needs one shape, known before it runs.",
        hint="Set it: tf.ensure_shape, padded_shapes in padded_batch, a size for each image, numbers for texts.",
    )


def _wrong(spec: Any) -> str:
    """Returns a description of the components that the device cannot receive; '' if there are none."""
    return joined(list(dict.fromkeys(filter(None, map(_wrong_part, tf.nest.flatten(spec))))))


def _wrong_part(part: Any) -> str:
    if not isinstance(part, tf.TensorSpec):
        return f"a {type(part).__name__.removesuffix('Spec')}"
    if part.dtype == tf.string:
        return "texts"
    sizes = part.shape.as_list() if part.shape.rank is not None else None
    return f"the shape {part.shape}" if sizes is None or None in sizes else ""


def changes(script: Any, emitted: Any, part: str = "") -> Iterator[tuple[str, bool]]:
    """Yields what changes from the `element_spec` of the script's pipeline to that of a module's, by component.

    Beside it whether a function with the script's spec in its `input_signature` accepts the module's elements.

    Args:
        part: the component that both are the specs of: "['image']", "[0]".
    """
    if isinstance(script, dict) and isinstance(emitted, dict) and script.keys() == emitted.keys():
        for key in script:
            yield from changes(script[key], emitted[key], f"{part}[{key!r}]")
    elif isinstance(script, tuple) and isinstance(emitted, tuple) and len(script) == len(emitted):
        for number, (one, other) in enumerate(zip(script, emitted, strict=True)):
            yield from changes(one, other, f"{part}[{number}]")
    elif script != emitted:
        typed = isinstance(script, tf.TypeSpec) and isinstance(emitted, tf.TypeSpec)
        text = f"{part} {_short(script)} becomes {_short(emitted)}".strip()
        yield text, typed and bool(emitted.is_subtype_of(script))


def sentences(found: Iterable[tuple[str, bool]]) -> Iterator[str]:
    """Yields sentences on whether an `input_signature` with the script's spec has to be changed."""
    found = list(found)
    refused = ", ".join(text for text, accepted in found if not accepted)
    narrower = ", ".join(text for text, accepted in found if accepted)
    if refused:
        yield (
            f"element_spec changes: {refused}. A tf.function whose input_signature names the script's spec "
            "refuses such elements: make it from the element_spec of what dataset_fn gives."
        )
    if narrower:
        yield (
            f"element_spec says more than the script's: {narrower}. An input_signature with the script's spec takes "
            "such elements."
        )


def _short(spec: Any) -> str:
    return f"{spec.shape} {spec.dtype.name}" if isinstance(spec, tf.TensorSpec) else str(spec)
