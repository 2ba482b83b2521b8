"""What TensorFlow Datasets reads, for several workers: its own call divides the files, no module of ours."""

from __future__ import annotations

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.core.storage import tfds_reads

_OWN_FILES = "it then reads files of its own."
_HINT = f"Call it on each worker with read_config=tfds.ReadConfig(input_context=input_context): {_OWN_FILES}"
_HINTS = {
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


def refuse(pipeline: Pipeline, kind: str) -> None:
    """Refuses a pipeline whose data the library reads.

    Raises:
        CannotExpress: with how that is said in the script, for this kind of workers.
    """
    for reading in tfds_reads(pipeline):
        message = f"{reading.call} ({reading.location}) reads the data, which a module would have to read without it."
        if reading.shard is not None:
            message += " It is given an input_context already."
        raise CannotExpress(message, hint=_HINTS.get(kind, _HINT))
