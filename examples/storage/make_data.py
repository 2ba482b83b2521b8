"""TFRecord files of random bytes, 114,660 a sample, as the ResNet-50 workload of the storage benchmark has them.

python examples/storage/make_data.py [--out DIRECTORY] [--small]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from making import command_line, serialised, write_shards

SAMPLE_BYTES = 114_660
FILES = 8
SEED = 20


def make(folder: Path, small: bool) -> None:
    draw = random.Random(SEED)
    samples = [draw.randbytes(SAMPLE_BYTES) for _ in range(96 if small else 512)]
    write_shards(folder, [serialised({"image": [sample], "size": [SAMPLE_BYTES]}) for sample in samples], FILES)


if __name__ == "__main__":
    command_line(__file__, __doc__, make)
