"""Checks for data that is not divided properly over workers and replicas, and for what they cannot run or reach."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipetune.core.distribution import (
    COORDINATOR,
    FUNCTION,
    CapturedKind,
    Coverage,
    InputDistribution,
    OriginalSharding,
)
from pipetune.core.operators import reshuffles_each_epoch
from pipetune.core.pipeline import Node
from pipetune.core.profile import Finding, finding_at
from pipetune.core.storage import tfds_reads
from pipetune.lint.dataset_use import (
    DatasetUse,
    JobWorkers,
    batch_size,
    nodes_with_op,
    one_to_one,
)

_POLICY = "experimental_distribute.auto_shard_policy"
_READ_TOO_MUCH = 1.5  # elements read per element used; below it, sharding by file would gain little
_UNEVEN = 0.9  # minimum share of the steps of an epoch in which every worker has data
_WITHOUT_PYTHON = "Use TensorFlow ops instead, or write the results to files and read those."
_OWN_SHARD = "Shard by the worker's index: dataset.shard(workers, index), before the shuffle."


def find_division_problems(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on data that the workers of a job do not divide properly; with numbers, if it was counted."""
    workers, known = use.workers, use.worker_coverage
    if workers is None or workers.count < 2:
        return
    yield from _unsharded_input(use, workers)
    if known is not None:
        yield from _inconsistent_shuffles(use, known, workers.count)
        yield from _sharding_problems(use, known, workers.count)


def _unsharded_input(use: DatasetUse, workers: JobWorkers) -> Iterator[Finding]:
    """Reports input that is not sharded over the workers.

    Reports nothing if the script reads its worker index, because it may shard a list of files by hand. Without a
    strategy, reports nothing either if each worker shuffles without a seed, which also gives workers different data.
    """
    sharded = any(one.op == "shard" or any(kernel.startswith("Shard") for kernel in one.inner) for one in use.pipeline)
    if workers.reads_worker_index or sharded:
        return
    if workers.distributed:
        if use.pipeline.options.get(_POLICY) != "OFF":
            return
        why = "its auto_shard_policy is OFF and there is no shard()"
        hint = "Leave the policy at AUTO, or shard by the worker's index: dataset.shard(workers, index)."
    else:
        if any(reshuffles_each_epoch(node) and node.argument("seed") is None for node in use.pipeline):
            return
        why = "there is no shard()"
        hint = "Shard by the worker's index, before the shuffle: dataset.shard(workers, index)."
    if reading := next(tfds_reads(use.pipeline), None):
        given = "read_config=tfds.ReadConfig(input_context=context)"
        hint = f"Pass {given} to {reading.call}: each worker then reads its own files."
    found = use.worker_coverage.coverage if use.worker_coverage is not None else None
    examples = f"each of its {found.elements:,} examples" if found is not None else "each example"
    steps = f", in {found.first_out:,} steps" if found is not None and found.first_out is not None else ""
    yield finding_at(
        "unsharded-workers",
        use.pipeline.output,
        f"{workers.source} defines {workers.count} workers, and each reads all of this dataset: {why}, so "
        f"every epoch trains {workers.count} times on {examples}{steps}.",
        hint,
    )


def _sharding_problems(use: DatasetUse, known: OriginalSharding, workers: int) -> Iterator[Finding]:
    """Reports what counting shows: elements that never occur or occur again, idle workers, excessive reads."""
    if known.refused:
        yield finding_at(
            "too-few-files",
            use.pipeline.output,
            f"TensorFlow cannot shard this dataset over {workers} workers with the policy {known.policy}: {known.why}.",
            "Set options.experimental_distribute.auto_shard_policy to DATA, or write the data to at least that "
            "many files, preferably several times as many.",
        )
    found = known.coverage
    if found is None:
        if known.policy == "DATA" and known.file_bytes:  # each worker is known to read all of it
            times = f"{known.file_bytes * known.workers:,} bytes where {known.file_bytes:,} are used"
            yield from _reads_all(use, known, known.workers, known.files, f"in total {times}")
        return
    shard = next(nodes_with_op(use, "shard"), None)
    if _unseeded_shuffle(use, known) is None:  # else `_inconsistent_shuffles` reports the shuffle as the reason
        yield from _missing_data(use, known, found, shard)
    if found.repeated and not found.never and shard is not None:
        share = f"{found.repeated:,} of {found.elements:,} elements"
        message = f"{share} occur more than once in an epoch of {len(found.workers)} workers."
        yield finding_at("data-repeated", shard, message, _OWN_SHARD)
    yield from _uneven_workers(use, known, found)
    yield from _excessive_reads(use, known, found)


def _missing_data(use: DatasetUse, known: OriginalSharding, found: Coverage, shard: Node | None) -> Iterator[Finding]:
    if not found.never:
        return
    workers = len(found.workers)
    sentence = f"{found.never:,} of {found.elements:,} elements reach none of {workers} workers in an epoch"
    if shard is not None and known.policy in ("FILE", "DATA"):
        yield finding_at(
            "data-left-out",
            shard,
            "This shard() divides the data, and the strategy divides each part again, with the policy "
            f"{known.policy}: {sentence}.",
            "Set options.experimental_distribute.auto_shard_policy to OFF if the script shards the data "
            "itself, or remove the shard().",
        )
    else:
        yield finding_at("data-left-out", shard or use.pipeline.output, f"Data is lost: {sentence}.", _OWN_SHARD)


def _uneven_workers(use: DatasetUse, known: OriginalSharding, found: Coverage) -> Iterator[Finding]:
    """Reports workers that run out of data long before others."""
    batches = [worker.batches for worker in found.workers]
    first = found.first_out
    last = math.ceil(max((count or 0 for count in batches), default=0) / found.replicas_per_worker)
    if first is None or first >= _UNEVEN * last or last - first < 2:
        return
    idle = found.idle_workers
    who = f"workers {', '.join(map(str, idle))} get" if len(idle) > 1 else f"worker {idle[0]} gets" if idle else ""
    by_element = "set auto_shard_policy to DATA" if known.policy else "shard elements"
    hint = f"Write files of equal size, several for each worker, or {by_element}."
    if who:
        yield finding_at("idle-workers", use.pipeline.output, f"Of {len(batches)} workers, {who} no data at all.", hint)
    else:
        yield finding_at(
            "uneven-workers",
            use.pipeline.output,
            f"The workers receive {', '.join(f'{count:,}' for count in batches if count is not None)} "
            f"batches per epoch: after {first:,} of {last:,} steps, one of them has no data left.",
            hint,
        )


def _excessive_reads(use: DatasetUse, known: OriginalSharding, found: Coverage) -> Iterator[Finding]:
    """Reports that every worker reads what the others use, although there are enough files to shard by file."""
    times = found.read_over_used
    if known.policy != "DATA" or times is None or times < _READ_TOO_MUCH:
        return
    bytes_read = found.bytes_read_over_used
    and_bytes = f" and {bytes_read:.1f} bytes" if bytes_read is not None else ""
    times_each = f"{times:.1f} elements{and_bytes} for each one it uses"
    yield from _reads_all(use, known, len(found.workers), found.files, times_each)


def _reads_all(use: DatasetUse, known: OriginalSharding, workers: int, files: int, times: str) -> Iterator[Finding]:
    if files < workers:
        return
    if known.stopped_at:
        why, hint = (
            f"TensorFlow looks for files to shard and gives up at {use.pipeline[known.stopped_at].title}",
            "Shard the list of files by the worker's index, before they are read, and set the policy to OFF.",
        )
    else:
        why, hint = "its auto_shard_policy is DATA", "Set auto_shard_policy to FILE: there are enough files."
    message = f"Each of {workers} workers reads all of {files:,} files, {times}: {why}."
    yield finding_at("read-by-all-workers", use.pipeline.output, message, hint)


def find_uneven_replicas(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on full batches that cannot be divided evenly."""
    found, node = use.handover, _last_batch_operator(use)
    if found is None or node is None or found.batch is None or len(set(found.shares)) < 2:
        return
    *shares, last = map(str, found.shares)
    code, effect = (
        "uneven-replicas",
        "each step takes as long as the largest part, and averaging the means of the replicas gives more weight to "
        "the rows of a smaller part.",
    )
    if idle := found.shares.count(0):
        code, effect = "idle-replicas", f"{_format_replicas(idle, found)} nothing in any step."
    below = found.batch - found.batch % found.replicas
    sizes = " or ".join(str(size) for size in (below, below + found.replicas) if size)
    message = f"A global batch of {found.batch} is divided into {', '.join(shares)} and {last}: {effect}"
    hint = f"Make the global batch a multiple of {found.replicas}, the number of replicas: {sizes}."
    yield finding_at(code, node, message, hint)


def find_unused_remainder(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on epochs whose end does not reach every replica."""
    found = use.handover
    if found is None or found.workers > 1 or found.replicas < 2:
        return
    yield from _short_last_step(use, found) if found.how == FUNCTION else _short_last_batch(use, found)


def _short_last_batch(use: DatasetUse, found: InputDistribution) -> Iterator[Finding]:
    """Reports a last batch with too few rows for all replicas."""
    node = _last_batch_operator(use)
    if node is None or not found.shares or use.tolerates_empty_batches or node.argument("drop_remainder") is True:
        return
    if not one_to_one(use.pipeline.downstream(node.id)):
        return  # the next epoch fills the last batch, or a take or filter leaves it out
    rows, size = use.pipeline[node.inputs[0]].cardinality, batch_size(node)
    rest = rows % size if size and rows > 0 else 0
    if not rest or not size:
        return
    if found.by_own_size:
        idle = found.replicas - math.ceil(rest / math.ceil(rest / found.replicas))
    else:
        idle = sum(rest <= sum(found.shares[:replica]) for replica in range(len(found.shares)))
    if idle:
        yield finding_at(
            "empty-replica-batch",
            node,
            f"The last batch of an epoch has {rest} of {size} rows: then {_format_replicas(idle, found)} an "
            "empty batch, and a mean over no rows is NaN.",
            f"drop_remainder=True drops these {rest} of {rows:,} rows; repeat() before the batch fills it; a "
            "sum divided by the global batch size (tf.nn.compute_average_loss) tolerates it.",
        )


def _short_last_step(use: DatasetUse, found: InputDistribution) -> Iterator[Finding]:
    """Reports a last step with elements for some replicas only."""
    output = use.pipeline.output
    elements, each = output.cardinality, found.elements_per_step
    rest = elements % each if elements > 0 else 0
    if not rest:
        return
    node = _last_batch_operator(use) or output
    if output.element_spec.has_fixed_shapes:
        rows = f" ({rest * found.batch:,} rows)" if found.batch else ""
        yield finding_at(
            "replicas-run-out",
            node,
            f"An epoch has {elements:,} elements for {each} replicas, one per replica and step: the last {rest}"
            f"{rows} reach no replica, because with fixed shapes a step needs one element for every replica.",
            "Apply repeat() and set the number of steps per epoch, or make the number of elements a multiple "
            "of the replicas.",
        )
    elif not use.tolerates_empty_batches:
        yield finding_at(
            "empty-replica-batch",
            node,
            f"An epoch has {elements:,} elements for {each} replicas, one per replica and step: in the last "
            f"step, {_format_replicas(each - rest, found)} an empty batch, and a mean over no rows is NaN.",
            "Apply repeat() and set the number of steps per epoch; a sum divided by the global batch size "
            "(tf.nn.compute_average_loss) tolerates empty batches.",
        )


def _last_batch_operator(use: DatasetUse) -> Node | None:
    return next((node for node in reversed(use.pipeline.nodes) if batch_size(node)), None)


def _format_replicas(count: int, found: InputDistribution) -> str:
    return f"{count} of {found.replicas} replicas {'gets' if count == 1 else 'get'}"


def _unseeded_shuffle(use: DatasetUse, known: OriginalSharding) -> Node | None:
    """Returns the unseeded shuffle that makes each worker shard an order of its own; None if all have one order.

    With the policy DATA, each of N workers reads everything and keeps every Nth element, in its own reading order.
    """
    if known.policy != "DATA":
        return None
    shuffles = (node for node in use.pipeline if node.op == "shuffle" and node.argument("seed") is None)
    return next((node for node in shuffles if not _divided_above(use, node)), None)


def _divided_above(use: DatasetUse, node: Node) -> bool:
    """Whether the script divides the data upstream of `node`: the workers' orders are then of different elements."""
    return any(above.op == "shard" for above in use.pipeline.upstream(node.id))


def _inconsistent_shuffles(use: DatasetUse, known: OriginalSharding, workers: int) -> Iterator[Finding]:
    """Reports workers that each shard an order of their own: elements reach several of them, or none."""
    if known.policy != "DATA":
        return
    node, found = _unseeded_shuffle(use, known), known.coverage
    divided = f"and TensorFlow shards each of these orders (auto_shard_policy {known.policy})"
    lost = "some elements reach several workers, and others none"
    if node is not None and (found is None or not found.complete):
        if found is not None:
            lost = (
                f"in the counted epoch, {found.never:,} of {found.elements:,} elements reach no worker, and "
                f"{found.repeated:,} reach several"
            )
        yield finding_at(
            "shuffled-apart",
            node,
            f"Each of {workers} workers shuffles in its own order, because the shuffle has no seed, {divided}: {lost}.",
            "Set the same seed of the shuffle on every worker, or shard by the worker's index before the "
            "shuffle and set auto_shard_policy to OFF.",
        )
    loose = next((one for one in use.pipeline if one.argument("deterministic") is False), None)
    # A count in one process does not show what overtakes what in several.
    if loose is not None and node is None and not _divided_above(use, loose):
        yield finding_at(
            "shuffled-apart",
            loose,
            f"{loose.title} does not keep the order of elements (deterministic=False), so the order may differ "
            f"on each of {workers} workers, {divided}: where that happens, {lost}.",
            "Leave deterministic at True if a strategy shards with the policy DATA, or shard by the worker's "
            "index before this operator and set auto_shard_policy to OFF.",
        )


def find_unsharded_state(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on functions that draw the same numbers on every worker, or whose state is separate on each."""
    workers = use.workers
    if workers is None or workers.count < 2 or not workers.distributed or use.role != "training":
        return
    for node in use.pipeline:
        function = node.function
        if function is None:
            continue
        if function.random and function.seeded and not function.random_python:
            yield finding_at(
                "same-draws",
                node,
                f"{node.title} draws random numbers from a fixed seed, which sharding ignores: each of "
                f"{workers.count} workers draws the same numbers for its own elements.",
                "Derive the seed from the worker's index, or from the element (tf.random.stateless_* with the "
                "index of the element).",
            )
        elif function.writes_variables or function.mutable_tables:
            yield finding_at(
                "state-of-each-worker",
                node,
                f"{node.title} keeps state (a variable or a table that it changes), which sharding ignores: "
                f"each of {workers.count} workers has its own copy, which covers only its own elements.",
                "Compute it from the element, or before the data is sharded.",
            )


def find_python_on_tpu(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on Python code in the input of a strategy whose host cannot call it."""
    if use.handover is None or not use.handover.strategy.startswith("TPUStrategy"):
        return
    for node in (node for node in use.pipeline if node.runs_python):
        yield finding_at(
            "python-for-a-tpu",
            node,
            f"{node.title} runs Python, but under {use.handover.strategy} the TPU host runs the input "
            "pipeline: it cannot call Python code of the script.",
            _WITHOUT_PYTHON,
        )


def find_captured_objects(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on objects that the function that builds each worker's dataset uses but does not create."""
    for captured in use.captured:
        named = f"{captured.name}, " if captured.name else ""
        hint = (
            "Build the whole dataset inside the function, from file names, numbers or arrays: these are sent with the "
            "function."
        )
        match captured.kind:
            case CapturedKind.DATASET:
                what = (
                    f"{named}a dataset built outside of it: TensorFlow cannot send a dataset to another process, and "
                    "steps on such a worker fail."
                )
            case CapturedKind.ITERATOR:
                what = (
                    f"{named}an iterator created outside of it: it stays in the chief's process, the workers share its "
                    "elements, and a restarted worker does not receive them again."
                )
            case CapturedKind.STATE:
                what = (
                    f"{named or 'a variable, a table or an iterator, '}created outside of it: it exists only in the "
                    "chief's process, and a worker requests it from there over the network each time."
                )
                hint = (
                    "Create it inside strategy.scope(), where parameter servers hold variables and every worker holds "
                    "tables."
                )
        message = f"The function that builds the dataset on each worker uses {what}"
        yield Finding(f"captured-{captured.kind}", message, hint, captured.file or None, captured.line or None)


def find_python_on_chief(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on Python code that all workers wait for: TensorFlow runs it where the function was traced."""
    if use.handover is None or use.handover.how != COORDINATOR:
        return
    workers = use.handover.workers
    who = f"{workers} workers wait" if workers > 1 else "the worker waits"
    for node in (node for node in use.pipeline if node.runs_python):
        why = f"{node.title} runs Python in the chief's process: {who} for it, for every element and over the network."
        yield finding_at("python-on-the-chief", node, why, _WITHOUT_PYTHON)
