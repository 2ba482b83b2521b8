"""What a pipeline must not hold that runs in another process than the script's: facts, and reasons to refuse."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from pipetune.core.distribution import StandaloneParts
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import INFINITE, Node, Pipeline
from pipetune.core.storage import tfds_reads

_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://")
_SAME_END = frozenset({"map", "prefetch", "with_options", "cache", "filter", "shuffle", "batch", "padded_batch",
                       "ignore_errors", "unbatch", "interleave", "flat_map", "skip", "window"})  # fmt: skip


def place(node: Node, *, short: bool = False) -> str:
    """An operator and where it stands: "map at /home/me/train.py:12", or in short without the folder."""
    if node.location is None:
        return node.title
    where = f"{Path(node.location.file).name}:{node.location.line}" if short else str(node.location)
    return f"{node.location.method if not node.inputs else node.title} at {where}"


def clause(error: CannotExpress) -> str:
    """The message of an error in the form of a clause: lowercase, without a full stop."""
    return error.message[0].lower() + error.message[1:].rstrip(".")


def refuse_all(*looks: Callable[[], None]) -> None:
    """Looks at all of them, and refuses for every reason there is.

    Raises:
        CannotExpress: at least one was refused.
    """
    found: list[CannotExpress] = []
    for look in looks:
        try:
            look()
        except CannotExpress as error:
            found.append(error)
    if found:
        hints = dict.fromkeys(error.hint for error in found if error.hint)
        raise CannotExpress(" ".join(error.message for error in found), hint=" ".join(hints))


def refuse_python(pipeline: Pipeline, *, why: str) -> None:
    """Refuses functions that run in the script's own Python; `why` is the end of the sentence, after the operators.

    Raises:
        CannotExpress: there are such functions; the message names each and its line.
    """
    found = [place(node) for node in pipeline if node.runs_python]
    if found:
        raise CannotExpress(
            f"{' and '.join(found)} {'runs' if len(found) == 1 else 'run'} Python code, {why}.",
            hint="Say it in TensorFlow operations, or do it once and write the results to files.",
        )


def local_files(parts: StandaloneParts) -> tuple[str, ...]:
    """The sources that name files on a local disk, each with its line, for the notes of a module."""
    found = []
    for name, source in parts.sources.items():
        names = (source.pattern, *source.names[:1]) if source.yields_file_names else ()
        if any(one and not _REMOTE.match(one) for one in names):
            found.append(place(parts.pipeline[name.removesuffix(".files")], short=True))
    return tuple(dict.fromkeys(found))


def shared_storage(parts: StandaloneParts, who: str) -> Iterator[str]:
    """A note on local files, which `who` lists and the workers open."""
    files = local_files(parts)
    if files:
        yield (
            f"the {who} lists the files ({' and '.join(files)}), and the workers open them by the same names: "
            "they have to be on storage that all of them reach"
        )


def is_endless(pipeline: Pipeline) -> bool:
    """Whether the pipeline is known never to end."""
    node = pipeline.output
    while node.inputs:
        if node.op == "repeat" and node.argument("count") in (None, INFINITE):
            return True
        if node.op not in _SAME_END or node.cardinality == INFINITE:
            break
        node = pipeline[node.inputs[0]]
    return node.cardinality == INFINITE


_OWN_FILES = "it then reads files of its own."
_TFDS_HINT = f"Call it on each worker with read_config=tfds.ReadConfig(input_context=input_context): {_OWN_FILES}"
_TFDS_HINTS = {
    "horovod": (
        "Call it on each rank with read_config=tfds.ReadConfig(input_context=tf.distribute.InputContext(hvd.size(), "
        f"hvd.rank())): {_OWN_FILES}"
    ),
    "parameter-server": (
        "Call it in the function given to create_per_worker_dataset, with shuffle_files=True: every worker reads "
        "everything, in an order of its own."
    ),
    "service": (
        "Give the script's own dataset to the service: dataset.apply(tf.data.experimental.service.distribute(...))."
    ),
}


def refuse_tfds(pipeline: Pipeline, kind: str) -> None:
    """Refuses a pipeline whose data TensorFlow Datasets reads: its own call divides the files, no module of ours.

    Raises:
        CannotExpress: with how that is said in the script, for this kind of workers.
    """
    for reading in tfds_reads(pipeline):
        message = f"{reading.call} ({reading.location}) reads the data, which a module would have to read without it."
        if reading.shard is not None:
            message += " It is given an input_context already."
        raise CannotExpress(message, hint=_TFDS_HINTS.get(kind, _TFDS_HINT))
