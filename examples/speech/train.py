"""Train a small network to write down speech: spectrograms made and augmented with tf.signal, a CTC loss.

What it shows: half of the chain is the same in every epoch (decode, spectrogram, pad), half is drawn anew (masks,
speed, pitch, echo). A spectrogram is many times its WAV file.

    python examples/speech/make_data.py
    pipetune analyze examples/speech/train.py
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import keras
import tensorflow as tf

DATA = Path(__file__).resolve().parent / "data"
LETTERS = " abcdefghijklmnopqrstuvwxyz"
MAX_LETTERS = 200
FRAME_LENGTH, FRAME_STEP, FFT_LENGTH = 512, 220, 512
MAX_FRAMES = 1000
BINS = FFT_LENGTH // 2 + 1
BATCH_SIZE = 16


def decode(path, text):
    audio, _ = tf.audio.decode_wav(tf.io.read_file(path), desired_channels=1)
    return audio[:, 0], text


def vectorise(audio, text):
    """The letters as numbers from 1 on, zeros behind them."""
    letters = tf.strings.unicode_decode(text, "UTF-8")
    numbers = tf.where(letters == ord(" "), 1, letters - ord("a") + 2)[:MAX_LETTERS]
    numbers = tf.pad(numbers, [[0, MAX_LETTERS - tf.size(numbers)]])
    return audio, tf.ensure_shape(numbers, [MAX_LETTERS])


def spectrogram(audio, text):
    """Its square root, each bin with mean 0 and deviation 1 over the clip; shape [frames, bins]."""
    parts = tf.signal.stft(audio, FRAME_LENGTH, FRAME_STEP, FFT_LENGTH)
    values = tf.sqrt(tf.abs(parts))
    mean, variance = tf.nn.moments(values, [0], keepdims=True)
    return (values - mean) / (tf.sqrt(variance) + 1e-6), text


def pad(values, text):
    values = values[:MAX_FRAMES]
    values = tf.pad(values, [[0, MAX_FRAMES - tf.shape(values)[0]], [0, 0]])
    return tf.ensure_shape(values, [MAX_FRAMES, BINS]), text


def mask(values, text):
    """SpecAugment: a random stretch of time and a random band of bins are set to zero."""

    def outside(length, longest):
        width = tf.random.uniform([], 0, longest, tf.int32)
        start = tf.random.uniform([], 0, length - width, tf.int32)
        place = tf.range(length)
        return tf.cast((place < start) | (place >= start + width), tf.float32)

    return values * outside(MAX_FRAMES, 70)[:, None] * outside(BINS, 27)[None, :], text


def change_speed(values, text):
    """Up to a tenth faster or slower; what is then too long is cut, what is too short is padded."""
    frames = tf.cast(MAX_FRAMES * tf.random.uniform([], 0.9, 1.1), tf.int32)
    stretched = tf.image.resize(values[..., None], [frames, BINS])[..., 0]
    return pad(stretched, text)


def change_pitch(values, text):
    return tf.roll(values, tf.random.uniform([], -4, 5, tf.int32), axis=1), text


def add_echo(values, text):
    """Each frame rings on in the fifteen behind it, less and less, by a random amount."""
    decay = tf.random.uniform([], 0.0, 0.5) ** tf.range(16, dtype=tf.float32)
    kernel = tf.reverse(decay, [0])[:, None, None, None]
    padded = tf.pad(values, [[15, 0], [0, 0]])[None, :, :, None]
    return tf.nn.conv2d(padded, kernel, 1, "VALID")[0, :, :, 0], text


def training_dataset(data=DATA):
    lines = [line.split("|") for line in (data / "metadata.csv").read_text().splitlines()]
    paths = [str(data / f"{name}.wav") for name, _ in lines]
    dataset = tf.data.Dataset.from_tensor_slices((paths, [text for _, text in lines]))
    dataset = dataset.shuffle(len(paths))
    dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(vectorise, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(spectrogram, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(pad, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(mask, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(change_speed, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(change_pitch, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(add_echo, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(BATCH_SIZE)
    return dataset.prefetch(tf.data.AUTOTUNE)


def ctc(numbers, scores):
    """How unlikely the text is, summed over all ways to stretch it over the frames; the last score is the blank's."""
    letters = tf.sparse.from_dense(tf.cast(numbers, tf.int32))
    lengths = tf.fill(tf.shape(scores)[:1], tf.shape(scores)[1])
    return tf.nn.ctc_loss(letters, scores, None, lengths, logits_time_major=False, blank_index=-1)


def make_model():
    layers = [
        keras.Input([MAX_FRAMES, BINS]),
        keras.layers.Conv1D(16, 5, strides=4, padding="same", activation="relu"),
        keras.layers.Conv1D(16, 5, padding="same", activation="relu"),
        keras.layers.Dense(len(LETTERS) + 2),
    ]
    model = keras.Sequential(layers)
    model.compile("adam", ctc, jit_compile=False)  # XLA, which Keras uses on a GPU, cannot compile tf.nn.ctc_loss
    return model


def pretend_to_train(dataset, arguments):
    """Stands for an accelerator that works on each batch for `--step-time` milliseconds."""
    for epoch in range(arguments.epochs):
        started, steps = time.perf_counter(), 0
        for _ in dataset:
            time.sleep(arguments.step_time / 1000)
            steps += 1
            if steps == arguments.steps:
                break
        print(f"epoch {epoch + 1}: {1000 * (time.perf_counter() - started) / steps:.1f} ms per step")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=DATA, help="folder written by make_data.py")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, help="steps per epoch (default: all of them)")
    parser.add_argument("--step-time", type=float, metavar="MS", help="no model: so long per batch, as an accelerator")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        raise SystemExit(f"no data in {arguments.data}: run examples/speech/make_data.py first")

    dataset = training_dataset(arguments.data)
    if arguments.step_time is not None:
        pretend_to_train(dataset, arguments)
    else:
        make_model().fit(dataset, epochs=arguments.epochs, steps_per_epoch=arguments.steps, verbose=2)


if __name__ == "__main__":
    main()
