"""Generators that go through lists: as a map over the entries they give the same, from the answer to the patch."""

from __future__ import annotations

import linecache
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Plan, Rewrite, Safety
from pipetune.core.errors import CannotExpress, CannotReplay
from pipetune.rules import from_generator
from pipetune.rules.base import RuleContext
from pipetune.source.emit import emit
from pipetune.tf.equality.compare import compare
from pipetune.tf.equality.paired_runs import Limits, PairedRuns
from pipetune.tf.equality.sharing import Side
from pipetune.tf.pipelines import generators, live
from pipetune.tf.pipelines.replay import replay
from pipetune.tf.standalone import standalone_parts
from tests.tf.jpegs import jpeg
from tests.tf.patching import check_patch
from tests.tf.test_capture import Sample

FILES = 21

BEFORE = """
import glob
import os
import random
import numpy as np
import tensorflow as tf

PATHS = sorted(glob.glob(os.path.join(os.path.dirname(__file__), "*.jpg")))
LABELS = [number % 3 for number in range(len(PATHS))]
IMAGE = tf.TensorSpec([8, 8, 3], tf.float32)

def load(path, size=8):
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(image, [size, size]) / 255.0
"""

CASES: dict[str, tuple[str, str]] = {
    "one list, one function": (
        """
        def images():
            for path in PATHS:
                yield load(path)

        ds = tf.data.Dataset.from_generator(images, output_signature=IMAGE).batch(4)
        """,
        """
def images(path):
    return load(path)

ds = tf.data.Dataset.from_tensor_slices(PATHS).map(images, num_parallel_calls=tf.data.AUTOTUNE).batch(4)
""",
    ),
    "two lists, worked on in the loop": (
        """
        def examples():
            \"\"\"Images and what is in them.\"\"\"
            for path, label in zip(PATHS, LABELS):
                # Read it,
                image = load(path)  # as it is
                image, flipped = tf.abs(image), image[::-1]
                yield {"image": image, "flipped": flipped}, tf.one_hot(label, 3)

        ds = tf.data.Dataset.from_generator(
            examples,
            output_signature=({"image": IMAGE, "flipped": IMAGE}, tf.TensorSpec([3], tf.float32)),
        )
        ds = ds.shuffle(7).batch(4, drop_remainder=True).prefetch(1)
        """,
        """
def examples(path, label):
    \"\"\"Images and what is in them.\"\"\"
    # Read it,
    image = load(path)  # as it is
    image, flipped = tf.abs(image), image[::-1]
    return {"image": image, "flipped": flipped}, tf.one_hot(label, 3)

ds = tf.data.Dataset.from_tensor_slices((PATHS, LABELS)).map(examples, num_parallel_calls=tf.data.AUTOTUNE)
ds = ds.shuffle(7).batch(4, drop_remainder=True).prefetch(1)
""",
    ),
    "within a function, numbers as they are declared": (
        """
        random.shuffle(PATHS)

        def make(files, labels, scale):
            def examples():
                for file, label in zip(files, labels): yield load(file, size=8) * scale, label
            made = tf.data.Dataset.from_generator(examples, (tf.float32, tf.int64), ([8, 8, 3], []))
            return made.batch(4)

        ds = make(PATHS, LABELS, 2.0)
        """,
        """
def make(files, labels, scale):
    def examples(file, label):
        return load(file, size=8) * scale, label
    made = tf.data.Dataset.from_tensor_slices((files, tf.constant(labels, tf.int64))).map(examples, """,
    ),
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(FILES):
        (folder / f"{number:03}.jpg").write_bytes(jpeg("4:2:0", 30 + number, 40, seed=number))
    return folder


def _sample(photos: Path, text: str) -> Sample:
    sample = Sample(photos, text)
    sample.file.write_text(BEFORE + sample.file.read_text())
    linecache.clearcache()
    return sample


def _told(photos: Path, text: str) -> tuple[Sample, live.LivePipeline, RuleContext]:
    sample = _sample(photos, text)
    source = live.read(sample.run().ds)
    return sample, source, RuleContext(generators.with_answers(source, source.pipeline))


def _why_not(photos: Path, text: str) -> str:
    context = _told(photos, text)[2]
    (node,) = (one for one in context.pipeline if one.op == "from_generator")
    assert node.function is not None and node.function.entries is not None
    return node.function.entries.why_not


@pytest.mark.parametrize("name", CASES)
def test_from_the_rule_to_the_patched_source(name: str, photos: Path) -> None:
    text, expected = CASES[name]
    sample, source, context = _told(photos, text)
    rewrites = [found for found in from_generator.propose(context) if isinstance(found, Rewrite)]
    assert rewrites and {rewrite.safety for rewrite in rewrites} == {Safety.EXACT}
    edited = apply_edits(source.pipeline, rewrites[0].edits)
    assert [node.op for node in edited][:2] == ["from_tensor_slices", "map"]
    made = replay(source, edited)
    assert made.element_spec == source.dataset.element_spec and made.cardinality() >= 0
    check_patch(sample, source, rewrites[0], expected=expected, elements=FILES)



NOT_LISTED: dict[str, tuple[str, str]] = {
    "an image library": ("yield np.asarray([1.0]) * load(path)", "uses np.asarray"),
    "Python opens the file": ("yield tf.io.decode_jpeg(open(path).read())", "uses open"),
    "a draw of Python's": ("yield load(path) * random.random()", "uses random.random"),
    "a draw of NumPy's": ("yield load(path) * np.random.rand()", "uses np.random"),
    "a draw of TensorFlow's": ("yield load(path) * tf.random.uniform([])", "draws random numbers"),
    "a function that draws": ("yield drawn(path)", "uses random.random"),
    "a counter": ("yield counted(path)", "a change of something outside"),
    "a list that grows": ("yield load(path), NAMES.append(path)", "uses NAMES.append"),
    "a variable": ("yield load(path) * SCALE", "keeps something"),
    "an object of the script": ("yield LOADER(path)", "uses LOADER"),
    "text of a name": ("yield load(f'{path}')", "makes text"),
    "the name taken apart": ("yield load(path.replace('a', 'b'))", "does not run on tensors (AttributeError)"),
    "a condition on the name": ("yield load(path) if path in NAMES else load(path)", "a look for something in"),
    "a list that fills": ("yield load(path) * len(SEEN)", "uses SEEN"),
    "another shape": ("yield load(path, size=9)", "would be declared"),
    "two for one": ("yield load(path); yield load(path)", "more than assignments and a yield"),
    "some left out": ("if path:\n            yield load(path)", "does not end by yielding"),
    "a total": ("total = total + load(path)\n        yield total", "keeps total"),
    "the time": ("yield load(path) * tf.cast(tf.timestamp(), tf.float32)", "draws random numbers, runs Python or"),
    "another loop": ("for _ in range(2):\n            yield load(path)", "does not end by yielding"),
    "a table filled": ("TABLE[path] = 1\n        yield load(path)", "writes into something that stays"),
    "nothing": ("yield", "does not end by yielding"),
}

AROUND = """
SEEN = []
NAMES = ["a.jpg"]
TABLE = {{}}
SCALE = tf.Variable(2.0)
calls = 0

class Loader:
    def __call__(self, path):
        return load(path)

LOADER = Loader()

def drawn(path):
    return load(path) * random.random()

def counted(path):
    global calls
    calls = calls + 1
    return load(path)

def images():
    for path in {lists}:
        {body}

ds = tf.data.Dataset.from_generator(images, output_signature=IMAGE).batch(4)
{after}
"""


@pytest.mark.parametrize("name", NOT_LISTED)
def test_what_is_done_with_an_entry_that_a_map_would_not_do(name: str, photos: Path) -> None:
    body, why = NOT_LISTED[name]
    assert why in _why_not(photos, AROUND.format(lists="PATHS", body=body, after=""))


OTHER_LISTS: dict[str, tuple[str, str, str]] = {
    "a call": ("sorted(PATHS)", "", "other than lists that have names"),
    "numbers": ("enumerate(PATHS)", "", "other than lists that have names"),
    "paths of pathlib": ("[*map(str, PATHS)]", "", "other than lists that have names"),
    "shuffled each epoch": ("PATHS", "def on_epoch_end():\n    random.shuffle(PATHS)", "PATHS may be changed"),
    "made longer later": ("PATHS", "PATHS.append('x.jpg')", "PATHS may be changed"),
    "another list later": ("PATHS", "PATHS = PATHS[:3]", "PATHS may be changed"),
    "kept by another": ("PATHS", "MINE = PATHS", "PATHS may be changed"),
    "handed to who knows": ("PATHS", "LOADER.files(PATHS) if calls else None", "PATHS may be changed"),
    "a set": ("TABLE", "", "is no list of texts or numbers"),
}


@pytest.mark.parametrize("name", OTHER_LISTS)
def test_lists_that_a_source_would_not_follow(name: str, photos: Path) -> None:
    lists, after, why = OTHER_LISTS[name]
    assert why in _why_not(photos, AROUND.format(lists=lists, body="yield load(path)", after=after))


HARMLESS = "print(len(PATHS), PATHS[0])\nfor path in PATHS:\n    pass\nsteps = np.asarray(PATHS)"


def test_lists_that_are_only_read_later(photos: Path) -> None:
    assert _why_not(photos, AROUND.format(lists="PATHS", body="yield load(path)", after=HARMLESS)) == ""


def test_another_generator_than_that_of_the_plan_is_refused(photos: Path) -> None:
    """The graph of a generator does not show what it does: two look alike."""
    text = AROUND.format(lists="PATHS", body="yield load(path)", after="")
    _, source, context = _told(photos, text)
    rewrite = next(found for found in from_generator.propose(context) if isinstance(found, Rewrite))
    _, other, _ = _told(photos, text.replace("yield load(path)", "yield -load(path)"))
    assert other.pipeline.fingerprint == source.pipeline.fingerprint
    with pytest.raises(CannotReplay):
        replay(other, apply_edits(other.pipeline, rewrite.edits))


def test_wrong_variants_are_rejected(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, source, context = _told(photos, CASES["two lists, worked on in the loop"][0])
    rewrite = next(found for found in from_generator.propose(context) if isinstance(found, Rewrite))
    edited = apply_edits(source.pipeline, rewrite.edits)
    found = generators.over_entries(next(one for one in source.datasets.values() if live.is_generator(one)))
    for wrong in (
        (found.lists[0], found.lists[1][::-1]),  # other labels
        (found.lists[0][:-1], found.lists[1][:-1]),  # one left out
        (found.lists[0][1:] + found.lists[0][:1], found.lists[1]),
    ):
        changed = replace(found, lists=wrong)
        monkeypatch.setattr(generators, "replace_generator", lambda dataset, digest, changed=changed: changed)
        assert not compare(source, edited, Safety.EXACT, elements=FILES).equal


def test_a_slow_generator_is_compared_on_fewer_elements(photos: Path) -> None:
    """Both sides draw from their own start in each pass: as many as there is time for, three whole epochs of them."""
    _, source, context = _told(photos, CASES["two lists, worked on in the loop"][0])
    rewrite = next(found for found in from_generator.propose(context) if isinstance(found, Rewrite))
    sides = Side(source, source.pipeline), Side(source, apply_edits(source.pipeline, rewrite.edits))
    runs = PairedRuns(sides, (source.dataset, source.dataset), Safety.EXACT, Limits(4000, 20.0, 0), str(photos))
    assert runs.count > 3900
    runs._take_what_fits(_Slow(), until=0.005)
    assert 2 <= runs.count < 1000


class _Slow:
    """Elements that take 10 ms each."""

    def take(self, count: int) -> Iterator[int]:
        for number in range(count):
            time.sleep(0.01)
            yield number


def test_there_is_no_distributed_form_of_it(photos: Path) -> None:
    """The lists stand in the script; the patched script can be given one."""
    _, source, context = _told(photos, CASES["one list, one function"][0])
    rewrite = next(found for found in from_generator.propose(context) if isinstance(found, Rewrite))
    with pytest.raises(CannotExpress, match="makes a map of a generator"):
        standalone_parts.collect(source, apply_edits(source.pipeline, rewrite.edits))


def test_a_function_used_elsewhere_is_left_alone(photos: Path) -> None:
    text = AROUND.format(lists="PATHS", body="yield load(path)", after="first = next(images())")
    _, source, context = _told(photos, text)
    rewrite = next(found for found in from_generator.propose(context) if isinstance(found, Rewrite))
    (rejection,) = emit(source.pipeline, Plan("tuned", (rewrite,))).not_covered
    assert "images is used elsewhere too" in rejection.why
