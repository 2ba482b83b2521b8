"""`python -m benchmarks.accuracy.reading_process FOLDER`: reads the training dataset of an example on request.

The process prints "ready" after building the dataset. Each line "WARMUP SECONDS" on standard input then requests a
measurement, whose result it prints as JSON: how many elements it read, and in how many seconds. It exits at the end of
its input.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.examples import training_dataset


def main() -> int:
    """Answers requests until the end of standard input."""
    dataset = training_dataset(Path(sys.argv[1]))
    print("ready", flush=True)
    for line in sys.stdin:
        warmup, seconds = map(float, line.split())
        elements, elapsed = read(dataset, seconds=seconds, warmup_seconds=warmup)
        print(json.dumps({"elements": elements, "seconds": elapsed}), flush=True)
        gc.collect()  # deletes the iterators, which would keep filling their buffers
    return 0


def read(dataset: Any, *, seconds: float, warmup_seconds: float) -> tuple[int, float]:
    """Reads epoch after epoch for a given time.

    Args:
        dataset: what is read.
        seconds: how long to count elements.
        warmup_seconds: how long to read before that.

    Returns:
        The number of elements after the warm-up, and the time they took, which is at least `seconds`.

    Raises:
        ValueError: an epoch has no element.
    """
    elements, epoch = 0, 0
    begin = time.perf_counter() + warmup_seconds
    counted_from = None
    while True:
        epoch += 1
        empty = True
        for _ in dataset:
            empty, now = False, time.perf_counter()
            if counted_from is None:
                counted_from = now if now >= begin else None
                continue
            elements += 1
            if now - counted_from >= seconds:
                return elements, now - counted_from
        if empty:
            raise ValueError(f"epoch {epoch} has no element")


if __name__ == "__main__":
    sys.exit(main())
