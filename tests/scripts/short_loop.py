"""Writes argv[1] in a loop of five elements, and ends: nothing trains, and what it did is its own."""

import sys
from pathlib import Path

import tensorflow as tf

for number in tf.data.Dataset.range(5).map(lambda x: x + 1):
    Path(sys.argv[1]).write_text(f"prepared {number}")
print("prepared")
