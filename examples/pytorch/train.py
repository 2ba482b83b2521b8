"""Train a small network on a table in text files with PyTorch: NumPy batches from tf.data become its tensors.

What it shows: the input of a program in PyTorch is tuned like any other. Every line goes through the decoder alone,
though it takes a batch of lines as well.

    pip install torch
    python examples/csv/make_data.py
    pipetune analyze examples/pytorch/train.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import tensorflow as tf
import torch

DATA = Path(__file__).resolve().parents[1] / "csv" / "data"
FEATURES = 28
BATCH_SIZE = 512


def parse(line):
    label, *features = tf.io.decode_csv(line, [0.0] * (1 + FEATURES))
    return tf.stack(features), label


def training_dataset(data=DATA):
    files = tf.data.Dataset.list_files(str(data / "train-*.csv"))
    dataset = files.interleave(tf.data.TextLineDataset)
    dataset = dataset.shuffle(10_000)
    dataset = dataset.map(parse)
    return dataset.batch(BATCH_SIZE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA, help="folder written by examples/csv/make_data.py")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="steps per epoch (default: all rows once)")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/csv/make_data.py first")

    dataset = training_dataset(arguments.data)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters())
    loss_function = torch.nn.BCEWithLogitsLoss()
    for epoch in range(arguments.epochs):
        total, steps = 0.0, 0
        for features, labels in dataset.as_numpy_iterator():
            # Copies, for what TensorFlow hands out may only be read.
            features, labels = torch.from_numpy(features.copy()), torch.from_numpy(labels.copy())
            loss = loss_function(model(features).squeeze(1), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            steps += 1
            if steps == arguments.steps:
                break
        print(f"epoch {epoch + 1}: {steps} steps, mean loss {total / steps:.4f}")


if __name__ == "__main__":
    main()
