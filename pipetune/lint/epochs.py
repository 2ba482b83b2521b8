"""Checks of epoch boundaries and subsets: data that runs out, epochs that mix, examples that count twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipetune.core.operators import operator_facts, reshuffles_each_epoch
from pipetune.core.pipeline import INFINITE, Node
from pipetune.core.profile import Finding, finding_at
from pipetune.core.storage import TfdsRead, tfds_reads
from pipetune.lint.dataset_use import (
    DatasetUse,
    batch_size,
    is_repeat,
    nodes_with_op,
    one_to_one,
)

_MIN_MIXED_SHARE = 0.01  # minimum share of an epoch in the shuffle buffer: less is negligible


def find_exhausted_data(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on requests for more steps than the data has, and on endless validation without a step count.

    Keras 3 ends the epoch early when the data is exhausted and restarts the data in the next; tf_keras stops training.
    """
    steps, has = use.steps, use.pipeline.output.cardinality
    if use.role == "validation" and steps is None and has == INFINITE:
        message = "The validation data repeats endlessly and fit has no validation_steps: validation never ends."
        hint = "Remove repeat() for validation, or set validation_steps."
        yield finding_at("endless-validation", use.pipeline.output, message, hint)
    if not steps or has < 0:
        return
    if use.is_evaluation:
        if steps > has:
            message = f"The {use.role} requests {steps:,} batches; the dataset has {has:,}."
            yield finding_at("runs-out-of-data", use.pipeline.output, message, "Do not set the number of steps.")
        return
    epochs = use.epochs or 1
    if steps * epochs <= has or steps == has or (use.restarts_data and has % steps == 0):
        return
    if not use.restarts_data:
        then = "training stops there" if has >= steps else "training stops in its first epoch"
    elif steps > has:
        then = f"every epoch ends after {has:,} steps"
    else:
        then = f"epoch {has // steps + 1:,} ends after {has % steps:,} steps, and the data then starts over"
    yield finding_at(
        "runs-out-of-data",
        use.pipeline.output,
        f"Training requests {steps:,} steps x {epochs:,} epochs = {steps * epochs:,} batches; the dataset has "
        f"{has:,}: {then}.",
        "Add .repeat(), or remove steps_per_epoch.",
    )


def find_mixed_epochs(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on `repeat().shuffle()` in training: the buffer holds elements of two epochs."""
    for shuffle in nodes_with_op(use, "shuffle"):
        repeat = next((node for node in reversed(use.pipeline.upstream(shuffle.id)) if is_repeat(node)), None)
        buffer = shuffle.argument("buffer_size")
        if repeat is None or use.is_evaluation or not isinstance(buffer, int) or buffer < 2:
            continue
        between, epoch = use.nodes_between(repeat.id, shuffle.id), use.pipeline[repeat.inputs[0]].cardinality
        # What is joined to other data may have to be repeated: backgrounds for all images, examples of a rare class.
        apart = any(node.op == "cache" or len(node.inputs) > 1 for node in between)
        if apart or not _is_finite(use, repeat):
            continue
        numbers = ""
        if epoch > 0 and one_to_one(between):
            if buffer < _MIN_MIXED_SHARE * epoch:
                continue
            outstanding = f"{min(buffer, epoch):,} of {epoch:,} elements"
            numbers = f" Up to {outstanding} are still outstanding when the next epoch begins."
        yield finding_at(
            "epochs-blend",
            shuffle,
            f"shuffle({buffer}) follows repeat(): epochs mix, and an element can occur a second time before "
            f"another has occurred once.{numbers}",
            "Put repeat() after shuffle(), unless waiting for a full buffer in each epoch is worse.",
        )


def _is_finite(use: DatasetUse, repeat: Node) -> bool:
    """Whether the repeated data is finite and has more than one element: an endless generator is never repeated."""
    has = use.pipeline[repeat.inputs[0]].cardinality
    if has < 0:
        above = use.pipeline.upstream(repeat.id)
        return has != INFINITE and not any(node.op in ("from_generator", "opaque") for node in above)
    return has > 1


_SEEDED_DRAWS = "StatelessRandom", "StatelessTruncatedNormal", "StatelessMultinomial", "StatelessParameterized"
"""How the names of ops begin that draw from a seed that they are given."""


def find_repeated_draws(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on maps of training data whose seeds follow from the element: `zip` with a counter, for example.

    The counter starts over in each epoch. Where an order upstream of the `zip` differs from epoch to epoch, or the data
    is repeated there, an element gets other seeds each time.
    """
    if use.is_evaluation or use.epochs == 1 or use.pipeline.options.get("deterministic") is False:
        return
    for node in nodes_with_op(use, "map"):
        function, above = node.function, use.pipeline.upstream(node.id)
        draws = function is not None and any(one.startswith(_SEEDED_DRAWS) for one in function.operations)
        if draws and not any(map(_differs, (*above, node))) and not any(_renumbered(use, one) for one in above):
            yield finding_at(
                "augmentation-repeats",
                node,
                "The random numbers follow from seeds that are the same in every epoch: each element is changed in "
                "the same way each time.",
                "Take the seeds from a tf.random.Generator: generator.make_seeds(1)[:, 0] in the function.",
            )


def _differs(node: Node) -> bool:
    """Whether the elements of an operator, not only their order, may differ from epoch to epoch."""
    facts, function = operator_facts(node.op), node.function
    if facts.python or (facts.random and node.op != "shuffle") or node.argument("deterministic") is False:
        return True
    if function is None:
        return facts.takes_function
    return function.random or function.random_python or function.python or bool(function.reads_variables)


def _renumbered(use: DatasetUse, joined: Node) -> bool:
    """Whether an operator joins elements by their position, and another one meets an element in another epoch."""
    above = use.pipeline.upstream(joined.id) if joined.op == "zip" else ()
    counts = [use.pipeline[one.inputs[0]].op == "from_tensors" for one in above if is_repeat(one)]
    return not all(counts) or any(map(reshuffles_each_epoch, above))


def find_uneven_steps(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on steps over repeated data that do not end where the data ends."""
    for repeat in filter(is_repeat, use.pipeline):
        has = use.pipeline[repeat.inputs[0]].cardinality
        if use.steps is None or has < 1:
            continue
        below = next((node for node in use.pipeline.downstream(repeat.id) if batch_size(node) is not None), None)
        if below is None:
            others, size, what = use.pipeline.downstream(repeat.id), 1, "batches"
        else:
            others = (*use.nodes_between(repeat.id, below.id), *use.pipeline.downstream(below.id))
            size, what = batch_size(below) or 1, "examples"
        if not one_to_one(others):
            continue
        count, read = repeat.argument("count"), use.steps * size
        there = read if count in (None, INFINITE) or not isinstance(count, int) else min(read, count * has)
        if use.is_evaluation and there > has:
            again = f"{there - has:,} of them count twice" if there <= 2 * has else "they count more than once"
            message = f"The {use.role} reads {there:,} {what} of data that has {has:,}: {again}."
            hint = "Remove repeat() and the number of steps: each example then counts once."
            yield finding_at("uneven-evaluation", repeat, message, hint)
        # That the remainder would be dropped is a reason to repeat before the batch.
        drops = below is None or below.argument("drop_remainder") is True
        if use.role == "training" and not drops and has % size and read % has:
            yield finding_at(
                "repeat-before-batch",
                repeat,
                f"repeat() precedes batch({size}): {has:,} elements are not a whole number of batches, so a "
                f"batch mixes the end of one epoch with the start of the next, and {use.steps:,} steps do not "
                "end where the data ends.",
                "Put repeat() after batch().",
            )


_CUTS = ("take", "skip")


def _without_reshuffling(shuffle: Node) -> str:
    """The end of a hint; a function that shuffles what it reads, such as `make_csv_dataset`, has its own argument."""
    if shuffle.location is None or shuffle.location.method == "shuffle":
        return ", or shuffle with reshuffle_each_iteration=False."
    return f": turn off the one of {shuffle.location.method}, and shuffle behind it."


def find_validation_leaks(training: DatasetUse, others: Sequence[DatasetUse]) -> Iterator[Finding]:
    """Yields a finding if training and validation data are split by take and skip after a shuffle that reshuffles.

    Of several such shuffles it names the last. The complement is what the script validates on, or what it has built
    with the same count from the same dataset: it may be read only after the first epoch, which pipetune does not
    observe.
    """
    for shuffle in reversed([*filter(reshuffles_each_epoch, training.pipeline)]):
        below = training.pipeline.downstream(shuffle.id)
        cuts = [cut for cut in below if cut.op in _CUTS and _order_reaches(training, shuffle, cut)]
        if not cuts:
            continue
        halves = any(cut.id in training.complemented_nodes for cut in cuts)
        if halves or any(_takes_subset_of(other, training, shuffle) for other in others if other.is_evaluation):
            yield finding_at(
                "validation-leak",
                shuffle,
                "The data is reshuffled each epoch and then split by take/skip: the model is trained on "
                "validation examples.",
                f"Split before the shuffle{_without_reshuffling(shuffle)}",
            )
            return


def _order_reaches(use: DatasetUse, shuffle: Node, cut: Node) -> bool:
    """Whether the order of each epoch reaches the cut: no cache in between freezes the first one."""
    return not any(node.op == "cache" for node in use.nodes_between(shuffle.id, cut.id))


def _takes_subset_of(other: DatasetUse, training: DatasetUse, shuffle: Node) -> bool:
    """Whether the other pipeline takes its subset after the same shuffle."""
    same = next((node for node, one in other.dataset_ids.items() if one == training.dataset_ids.get(shuffle.id)), None)
    if same is None or shuffle.id not in training.dataset_ids or same not in other.pipeline:
        return False
    below = other.pipeline.downstream(same)
    return any(cut.op in _CUTS and _order_reaches(other, other.pipeline[same], cut) for cut in below)


def find_changing_subsets(training: DatasetUse) -> Iterator[Finding]:
    """Yields findings on `shuffle(10_000).take(1_000)` without its complement: the subset changes in each epoch."""
    if training.is_evaluation or (training.epochs == 1 and training.epochs_certain):
        return
    pipeline = training.pipeline
    for take in nodes_with_op(training, "take"):
        shuffle = next(filter(reshuffles_each_epoch, reversed(pipeline.upstream(take.id))), None)
        has = pipeline[take.inputs[0]].cardinality
        if shuffle is None or take.id in training.complemented_nodes or not 0 < take.cardinality < has:
            continue
        between = training.nodes_between(shuffle.id, take.id)
        kept = any(node.op == "cache" for node in (*between, *pipeline.downstream(take.id)))
        if kept or any(map(is_repeat, between)) or not one_to_one(between):
            continue
        yield finding_at(
            "subset-changes",
            take,
            f"take({take.cardinality}) follows a shuffle that reshuffles each epoch: every epoch trains on a "
            f"different {take.cardinality:,} of {has:,} elements.",
            f"For the same elements in every epoch, take before the shuffle{_without_reshuffling(shuffle)}",
        )


def find_wrong_subsets(use: DatasetUse) -> Iterator[Finding]:
    """Yields findings on a `take` after the reader that does not give the first examples of the split.

    Yields nothing if the files are read one after the other in their order, if there is a shuffle in between (which
    other checks cover), and for `skip`, by which a job resumes.
    """
    for reading in tfds_reads(use.pipeline):
        for take in use.pipeline.downstream(reading.interleave.id):
            if take.op != "take" or take.location == reading.location or not _takes_other_examples(use, reading, take):
                continue
            if reading.shuffle is not None and reshuffles_each_epoch(reading.shuffle):
                which = f"examples of whichever files {reading.call} reads first: it shuffles the files in every epoch."
            else:
                which = (
                    f"{reading.block_length} examples of each of {reading.cycle_length(use.pipeline)} files in turn, "
                    "not the first examples of the split; which ones depends on interleave_cycle_length and "
                    "interleave_block_length."
                )
            count = take.argument("count")
            yield finding_at(
                "tfds-subset",
                take,
                f"take({count:,}) returns {which}",
                f"Select them in the split, split='train[:{count}]': only these are read, and they are the same in "
                "every run.",
            )


def _takes_other_examples(use: DatasetUse, reading: TfdsRead, take: Node) -> bool:
    count, has = take.argument("count"), use.pipeline[take.inputs[0]].cardinality
    if not isinstance(count, int) or count <= 0 or 0 <= has <= count:
        return False
    between = use.nodes_between(reading.interleave.id, take.id)
    if any(is_repeat(node) or reshuffles_each_epoch(node) for node in between) or not one_to_one(between):
        return False
    return reading.shuffle is not None or (reading.cycle_length(use.pipeline) > 1 and count > reading.block_length)
