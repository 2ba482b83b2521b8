"""`python -m pipetune.bench.reading_process FOLDER`: reads the training input of an example whenever it is told to.

It says "ready" once, then answers each line "WARMUP SECONDS" on standard input with the elements it took in so many
seconds, as JSON. It ends with its input.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

from pipetune.bench.examples import training_dataset


def main() -> int:
    """Serves until nothing more is asked."""
    dataset = training_dataset(Path(sys.argv[1]))
    print("ready", flush=True)
    for line in sys.stdin:
        warmup, seconds = map(float, line.split())
        elements, taken = read(dataset, seconds=seconds, warmup_seconds=warmup)
        print(json.dumps({"elements": elements, "seconds": taken}), flush=True)
        gc.collect()  # no iterator goes on filling its buffers
    return 0


def read(dataset: Any, *, seconds: float, warmup_seconds: float) -> tuple[int, float]:
    """Elements taken after the warm-up, epoch after epoch, and the seconds that took, `seconds` or a little more.

    Raises:
        ValueError: an epoch has no element.
    """
    elements, epoch = 0, 0
    begin = time.perf_counter() + warmup_seconds
    counted_from = None
    while True:
        epoch += 1
        found = False
        for _ in dataset:
            found, now = True, time.perf_counter()
            if counted_from is None:
                counted_from = now if now >= begin else None
                continue
            elements += 1
            if now - counted_from >= seconds:
                return elements, now - counted_from
        if not found:
            raise ValueError(f"epoch {epoch} has no element")


if __name__ == "__main__":
    sys.exit(main())
