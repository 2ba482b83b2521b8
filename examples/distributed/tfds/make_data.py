"""Handwritten digits as a dataset of TensorFlow Datasets in 8 files: made by its own builder, without a download.

The 1,797 digits of `examples/digits` (8 x 8 pixels) scaled up, each four times, a little turned.

    pip install tensorflow-datasets
    python examples/distributed/tfds/make_data.py [--out DIRECTORY] [--small]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from making import command_line, digits

SIDE_PIXELS = 28
DEGREES = (-12, -4, 4, 12)
FILES = 8


class TurnedDigits(tfds.core.GeneratorBasedBuilder):
    """Digits, and which they are."""

    VERSION = tfds.core.Version("1.0.0")
    small = False

    def _info(self):
        image = tfds.features.Image(shape=(SIDE_PIXELS, SIDE_PIXELS, 1))
        features = tfds.features.FeaturesDict({"image": image, "label": tfds.features.ClassLabel(num_classes=10)})
        return tfds.core.DatasetInfo(builder=self, features=features, supervised_keys=("image", "label"))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for degrees in DEGREES[:1] if self.small else DEGREES:
            for number, (digit, label) in enumerate(zip(*digits(), strict=True)):
                image = Image.fromarray((digit * 15.9).astype(np.uint8)).resize((SIDE_PIXELS, SIDE_PIXELS))
                pixels = np.asarray(image.rotate(degrees))[..., np.newaxis]
                yield f"{number} {degrees}", {"image": pixels, "label": int(label)}


def make(folder: Path, small: bool) -> None:
    builder = TurnedDigits(data_dir=folder)
    builder.small = small
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=FILES))


if __name__ == "__main__":
    command_line(__file__, __doc__, make)
