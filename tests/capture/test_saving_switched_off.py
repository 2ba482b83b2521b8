"""Every function that saves is disabled and counted, whatever name the script uses for it; in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from pipetune.capture import protection
from pipetune.core import file_events
from tests.starting import search_path

pytestmark = pytest.mark.tensorflow

ROOT = Path(__file__).parents[2]

SCRIPT = """
import atexit, json, os, sys
import keras
import tensorflow as tf
from keras.models import save_model
from tensorflow.saved_model import save as save_signatures
from tensorflow.summary import scalar

from pipetune.capture import protection

class Overriding(keras.Model):
    def call(self, x):
        return x

    def save(self, *args, **named):
        return super().save(*args, **named)

model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
model.compile("sgd", "mse")
own = Overriding()
bound = model.save
checkpoint = tf.train.Checkpoint(model=model)
manager = tf.train.CheckpointManager(checkpoint, "managed", 2)
archive = keras.export.ExportArchive()
archive.track(model)
archive.add_endpoint("serve", model.call, [tf.TensorSpec([None, 2])])
writer = tf.summary.create_file_writer("events")
before = sorted(os.listdir("events"))
size = os.path.getsize(os.path.join("events", before[0]))

seen = []
enable = protection.disable_saving(seen.append)

def attempt(call, result, *noted):
    start = len(seen)
    assert (repr(call()), seen[start:]) == (result, [*noted]), seen[start:]

attempt(lambda: model.save("a.keras"), "None", "Model.save")
attempt(lambda: bound("b.keras", overwrite=True), "None", "Model.save")
attempt(lambda: own.save("c.keras"), "None", "Model.save")
attempt(lambda: model.save_weights("d.weights.h5"), "None", "Model.save_weights")
attempt(lambda: model.export("e"), "None", "Model.export")
attempt(lambda: archive.write_out("f"), "None", "SavedModelExportArchive.write_out")
attempt(lambda: save_model(model, "g.keras"), "None", "keras.save_model")
attempt(lambda: keras.saving.save_model(model, "h.keras"), "None", "keras.save_model")
attempt(lambda: keras.saving.save_weights(model, "i.weights.h5"), "None", "keras.save_weights")
attempt(lambda: checkpoint.save("j"), "''", "Checkpoint.save")
attempt(lambda: checkpoint.write("k"), "''", "Checkpoint.write")
attempt(lambda: manager.save(), "''", "CheckpointManager.save")
attempt(lambda: tf.saved_model.save(model, "l"), "None", "saved_model.save")
attempt(lambda: save_signatures(model, "m"), "None", "saved_model.save")
attempt(lambda: tf.data.Dataset.range(3).save("o"), "None", "Dataset.save")
with writer.as_default():
    for name in ("image", "histogram", "audio", "text", "write", "graph", "flush"):
        attempt(getattr(tf.summary, name), "False", "tf.summary." + name)
    attempt(lambda: scalar("loss", 1.0, step=0), "False", "tf.summary.scalar")
with tf.profiler.experimental.Profile("profile"):
    tf.zeros([1])
data = tf.data.Dataset.from_tensors((tf.zeros([4, 2]), tf.zeros([4, 1])))
callbacks = [keras.callbacks.ModelCheckpoint("p.keras"), keras.callbacks.BackupAndRestore("backup")]
attempt(lambda: model.fit(data, callbacks=callbacks, verbose=0) and None, "None",
        "ModelCheckpoint._save_model", "Model.save_weights")

import tf_keras  # the first time only now
late = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=[2])])
late.compile("sgd", "mse")
attempt(lambda: late.save("q"), "None", "Model.save")
attempt(lambda: tf_keras.models.save_model(late, "r"), "None", "keras.save_model")
keeper = tf_keras.callbacks.ModelCheckpoint("s")
attempt(lambda: late.fit(data, callbacks=[keeper], verbose=0) and None, "None", "ModelCheckpoint._save_model")

def at_exit():
    model.save("t.keras")
    files = sorted(os.listdir("."))
    if sorted(os.listdir("events")) != before:
        files.append("an event")
    last = seen[-1]
    enable()
    for save in (lambda: bound("v.keras"), lambda: save_model(model, "w.keras"), lambda: checkpoint.write("x"),
                 lambda: late.save("y.h5"), lambda: save_signatures(model, "z"),
                 lambda: tf.profiler.experimental.start("profile"), tf.profiler.experimental.stop):
        save()
    with writer.as_default():
        tf.summary.write("loss", 1.0, step=0)
    writer.flush()
    again = sorted(set(os.listdir(".")) - set(files))
    event = os.path.getsize(os.path.join("events", before[0])) > size
    found = {"files": files, "last": last, "again": again, "event": event}
    json.dump(found, open(sys.argv[1], "w"))
atexit.register(at_exit)
try:
    raise SystemExit
finally:
    model.save("u.keras")
"""


@pytest.mark.parametrize(
    ("name", "path", "made"),
    [
        ("Model.save", "model.keras", "file"),
        ("Model.save_weights", "model.weights.h5", "file"),
        ("keras.save_model", "export", "folder"),
        ("Model.export", "export", ""),
        ("Model.save", "missing/export", ""),
    ],
)
def test_what_is_not_saved_is_created_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, path: str, made: str
) -> None:
    monkeypatch.setattr(file_events, "current_journal", object)
    place = tmp_path / path
    protection.on_suppressed_call(name, (None, place), {})
    assert {"file": place.is_file(), "folder": place.is_dir()}.get(made, not place.exists())


def test_disabled_saving_writes_nothing_until_the_process_ends(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "result.json")],
        cwd=folder,
        env={
            "PYTHONPATH": search_path(ROOT),
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert (tmp_path / "result.json").exists(), ran.stderr[-3000:]
    told = json.loads((tmp_path / "result.json").read_text())
    assert told["last"] == "Model.save"
    assert told["files"] == ["events"], "what it had made"
    assert told["again"] == ["profile", "v.keras", "w.keras", "x.data-00000-of-00001", "x.index", "y.h5", "z"]
    assert told["event"]
