"""The stand-alone module, run as every worker: the elements it delivers, and the errors that are detected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipetune.core.distribution import Coverage, ElementIdentity, ModuleCheck
from pipetune.core.edits import Insert, Rewrite, SetArgument, apply_edits
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.core.session import DistributedResult
from pipetune.distributed.emit import kinds
from pipetune.distributed.emit.kind import Known, Standalone
from pipetune.distributed.writing import distribute
from pipetune.rewrites import gather, numpy_function, pad_batches
from pipetune.rewrites.rule import RuleContext

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("counted_alone"), pytest.mark.slow]

from pipetune.distributed.collect import parts
from pipetune.distributed.verify import counting, coverage
from pipetune.pipelines import live
from pipetune.probes import annotate_graph_edits, function_splitting
from pipetune.probes.pad_batches import annotate_padding
from tests.distributed.numbered_files import helper_module, lines, records, run_script
from tests.distributed.written_modules import load, run

HELPERS = """
import enum
import tensorflow as tf

SIZE = 3
UNUSED = 1
LIMIT = 0
from sys import maxsize as LIMIT

class Split(enum.IntEnum):
    TRAIN = 0

class Options:
    side = 3

chosen = Options()

def same(number):
    return number

def parse(record):
    return tf.strings.to_number(record, tf.int64)

def augment(number):
    return tf.fill([SIZE], number), tf.random.uniform([SIZE])

def build(pattern, batch_size=4):
    dataset = tf.data.Dataset.list_files(pattern)
    dataset = dataset.interleave(tf.data.TFRecordDataset, cycle_length=2, num_parallel_calls=2, deterministic=False)
    dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.map(augment)
    dataset = dataset.shuffle(8).batch(batch_size)
    return dataset.repeat()
"""


@pytest.fixture
def helpers(tmp_path: Path) -> Iterator[Any]:
    """A helper module of the user's script."""
    with helper_module("coverage_helpers", HELPERS, tmp_path) as module:
        yield module


def emit(dataset: Any) -> tuple[live.LivePipeline, Standalone, Any]:
    source = live.read(dataset)
    collected, parameter = parts.collect(source, source.pipeline)
    return source, kinds.find("multiworker").emit(collected, Known("train.py")), parameter


def count(
    source: live.LivePipeline,
    text: str,
    made: Standalone,
    *,
    kind: str = "multiworker",
    parameter: Any = None,
    workers: tuple[int, ...] = (2,),
    most_bytes: int = counting.MOST_BYTES,
) -> counting.Counted:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coverage, "WORKER_COUNTS", workers)
        patch.setattr(counting, "MOST_BYTES", most_bytes)
        module = replace(made, text=text)
        return coverage.count(kinds.find(kind), module, source, source.pipeline, parameter=parameter)


def check(source: live.LivePipeline, text: str, made: Standalone, **options: Any) -> tuple[ModuleCheck, ...]:
    return count(source, text, made, **options).checks


def counted(source: live.LivePipeline, text: str, made: Standalone) -> Coverage:
    (found,) = count(source, text, made).coverage
    return found


def with_rules(source: live.LivePipeline, told: Pipeline, *rules: Any) -> Pipeline:
    """The pipeline with what the rules propose, one rewrite each."""
    edits: list[Any] = []
    for rule in rules:
        (rewrite,) = (one for one in rule.propose(RuleContext(told)) if isinstance(one, Rewrite))
        edits += rewrite.edits
    return apply_edits(source.pipeline, edits)


def written(
    source: live.LivePipeline, folder: Path, *, tuned: Pipeline | None = None, kind: str = "multiworker"
) -> Any:
    return distribute(source, tuned or source.pipeline, kind=kind, out_file=folder / "out.py")


def proven(dataset: Any, *, workers: tuple[int, ...] = (2,)) -> tuple[str, tuple[ModuleCheck, ...]]:
    source, made, parameter = emit(dataset)
    rows = check(source, made.text, made, parameter=parameter, workers=workers)
    assert [(row.workers, row.missing, row.duplicated) for row in rows] == [(n, 0, 0) for n in workers], made.text
    return made.text, rows


@pytest.mark.one_core
@pytest.mark.mission("B4.trains")
def test_files_are_sharded_before_reading(tmp_path: Path, helpers: Any) -> None:
    text, rows = proven(helpers.build(records(tmp_path, files=6, each=5, uneven=True)), workers=(2, 3, 4))
    assert "from coverage_helpers import augment" in text and 'SHARD_BY = "file"' in text
    assert [row.elements for row in rows] == [33] * 3
    assert (rows[0].per_worker, rows[0].batches_per_worker) == ((15, 18), (8, 9))
    assert (rows[0].per_replica_batch, rows[0].equal_batches) == (2, False)
    assert "3 replicas do not divide 4 rows" in rows[1].why


def test_equal_rows_are_counted_separately(tmp_path: Path) -> None:
    """Two workers that read the same half of equal rows cannot be detected by the values."""
    source, made, _ = emit(tf.data.Dataset.from_tensor_slices([7, 7, 7, 7]).batch(2))
    found = counted(source, made.text, made)
    assert found.complete and found.told_by is ElementIdentity.INDEX and (found.elements, found.once) == (4, 4)
    assert [(one.elements, one.batches, one.short_batches, one.read) for one in found.workers] == [(2, 2, 0, 2)] * 2
    assert [one.cells for one in found.workers] == [(1, 0, 1, 0), (0, 1, 0, 1)]
    wrong = made.text.replace("(workers, worker)", "(workers, 0)")
    (row,) = check(source, wrong, made)
    assert (row.missing, row.duplicated) == (2, 2)
    found = counted(source, wrong, made)
    assert (found.never, found.once, found.twice) == (2, 0, 2)


def test_equal_rows_without_numbers_are_counted_together() -> None:
    both = tf.data.Dataset.from_tensor_slices([7, 7, 8]).concatenate(tf.data.Dataset.from_tensor_slices([7, 9]))
    source, made, _ = emit(both.batch(2))
    found = counted(source, made.text, made)
    assert found.told_by is ElementIdentity.DIGEST and found.complete and found.elements == 5


def test_shard_after_a_shuffle_without_shared_seed_is_detected(tmp_path: Path) -> None:
    text, _ = proven(tf.data.Dataset.range(200).shuffle(200).take(200).batch(4))
    assert "seed=SHARED_SEED" in text
    source, made, _ = emit(tf.data.Dataset.range(200).shuffle(200).take(200).batch(4))
    (row,) = check(source, made.text.replace(", seed=SHARED_SEED", ""), made)
    assert row.missing and row.duplicated


@pytest.mark.parametrize(
    ("make", "built"),
    [
        (lambda numbers: numbers.map(lambda x: x * 2).shard(2, 1), 1),
        # read a second time, these would continue their draws and give other elements
        (lambda numbers: numbers.shuffle(40, seed=3).take(9), 2),
        (lambda numbers: numbers.flat_map(lambda x: tf.data.Dataset.range(x).shuffle(9, seed=3).take(2)), 2),
        (lambda numbers: numbers.filter(lambda x: tf.random.uniform([], seed=3) < 2), 2),
        (lambda numbers: numbers.filter(lambda x: tf.numpy_function(lambda y: y > 2, [x], tf.bool)), 2),
    ],
)
def test_dataset_is_rebuilt_per_epoch_where_draws_continue(
    monkeypatch: pytest.MonkeyPatch, make: Any, built: int
) -> None:
    source = live.read(make(tf.data.Dataset.range(40)))
    numbered_groups = Mock(wraps=counting.numbering.numbered_groups)
    monkeypatch.setattr(counting.numbering, "numbered_groups", numbered_groups)
    first, second = counting.read_epochs(source, source.pipeline, 2)
    assert numbered_groups.call_count == built
    assert first.counts(ElementIdentity.DIGEST) == second.counts(ElementIdentity.DIGEST) and len(first.digests) > 0


def test_shuffle_then_take_is_compared_with_one_worker(tmp_path: Path) -> None:
    _, (row,) = proven(tf.data.Dataset.range(100).shuffle(100).take(30).batch(4))
    assert row.elements == 30


def test_header_says_what_is_not_counted(tmp_path: Path) -> None:
    result = written(live.read(tf.data.Dataset.range(100).batch(4).take(5)), tmp_path)
    assert "each once per epoch. What take leaves out was not counted." in " ".join(result.module.split())


def test_functions_of_the_main_script_are_copied_with_their_dependencies(tmp_path: Path) -> None:
    script = run_script(
        tmp_path / "train.py",
        '''
        import math as mathematics
        import functools
        import numpy as np
        import tensorflow as tf
        from tensorflow import image as pictures

        SCALE = 2 * 3
        TABLE = np.array([1, 2, 3], dtype=np.int64)
        FEATURES = {"id": tf.io.FixedLenFeature([2], tf.int64, default_value=[0, 1])}
        model = object()
        doubled = lambda x: x * 2
        print("the script runs")

        def helper(x, factor=SCALE):
            """Text with an 'apostrophe'."""
            return x * factor + int(mathematics.sqrt(16))

        @tf.function
        def scale(x):
            return helper(doubled(x)) + TABLE[1] + len(FEATURES)

        def build(offset, *, keep):
            def shift(x):
                if keep:
                    x = x + offset
                return x, tf.constant("""a
        b""")
            dataset = tf.data.Dataset.range(40).map(scale).map(shift)
            dataset = dataset.map(lambda x, text: (x + offset, text)).map(lambda x, text: x)
            dataset = dataset.map(functools.partial(helper, factor=5))
            return dataset.filter(lambda x: x % 2 == 0 and x > keep).batch(6)

        dataset = build(3, keep=True)
        ''',
    )
    text, rows = proven(script["dataset"])
    assert "print(" not in text and "model" not in text
    assert "import math as mathematics" in text
    assert "TABLE = np.array([1, 2, 3], dtype=np.int64)" in text
    assert "make_shift(" in text and "keep=True" in text
    assert rows[0].elements == sum(1 for _ in script["dataset"].unbatch())


def test_lambda_of_a_helper_module_is_copied_and_its_names_are_imported(tmp_path: Path, helpers: Any) -> None:
    (tmp_path / "coverage_lambdas.py").write_text(
        "import tensorflow as tf\nfrom coverage_helpers import augment\n\nSIDE = 4\n\n\n"
        "def grow(x):\n    return x + SIDE\n\n\ndef build():\n"
        "    return (tf.data.Dataset.range(9).map(lambda x: grow(x)).map(lambda x: augment(x)))\n"
    )
    import coverage_lambdas  # type: ignore[import-not-found]

    text, _ = proven(coverage_lambdas.build().batch(3))
    assert "from coverage_lambdas import grow" in text
    assert "from coverage_helpers import augment" in text
    assert "lambda x: grow(x)" in text


def test_dataset_class_of_the_main_script_is_copied(tmp_path: Path) -> None:
    script = run_script(
        tmp_path / "train.py",
        """
        import tensorflow as tf

        SAMPLES = 3

        class Artificial(tf.data.Dataset):
            def _generator(number):
                for sample in range(SAMPLES):
                    yield (number * SAMPLES + sample,)

            def __new__(cls, number):
                return tf.data.Dataset.from_generator(
                    cls._generator, output_signature=tf.TensorSpec((1,), tf.int64), args=(number,)
                )

        dataset = tf.data.Dataset.range(8).interleave(Artificial).batch(2)
        """,
    )
    text, rows = proven(script["dataset"])
    assert "class Artificial(tf.data.Dataset):" in text and "SAMPLES = 3" in text
    assert rows[0].elements == 24


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("class Loader:\n    def parse(self, x):\n        return x\n"
         "dataset = tf.data.Dataset.range(9).map(Loader().parse)", "method parse of a Loader"),
        ("class Layer:\n    def __call__(self, x):\n        return x\nlayer = Layer()\n"
         "dataset = tf.data.Dataset.range(9).map(layer)", "Layer object of the script"),
        ("counter = tf.Variable(1, dtype=tf.int64)\n"
         "dataset = tf.data.Dataset.range(9).map(lambda x: x + counter)", "lives in the training process"),
        ("big = list(range(9999))\n"
         "dataset = tf.data.Dataset.range(9).map(lambda x: x + len(big))", "uses big"),
        ("k = 2\ndataset = tf.data.Dataset.range(9).map(lambda x: x * k)\nk = 3", "has changed since"),
        ("k = tf.constant(2, tf.int64)\ndataset = tf.data.Dataset.range(9).map(lambda x: x * k)\n"
         "k = tf.constant(3, tf.int64)", "has changed since"),
        ("dataset = tf.data.Dataset.from_generator(lambda: iter([1, 2]), "
         "output_signature=tf.TensorSpec([], tf.int32))", "Python generator"),
        ("dataset = tf.data.Dataset.random(seed=1).take(4)", "random has no known"),
        ("def build():\n    count = 0\n    def load(x):\n        nonlocal count\n        count += 1\n        return x\n"
         "    return load\nload = build()\ndataset = tf.data.Dataset.range(9).map(lambda x: "
         "tf.numpy_function(load, [x], tf.int64))", "cannot stand outside"),
    ],
)  # fmt: skip
@pytest.mark.mission("C3.captured")
def test_pipeline_that_cannot_be_standalone_is_refused_with_the_reason(tmp_path: Path, body: str, reason: str) -> None:
    script = run_script(tmp_path / "train.py", f"import tensorflow as tf\n{body}\n")
    result = written(live.read(script["dataset"]), tmp_path)
    assert reason in result.notes[0]
    assert result.module == "" and not (tmp_path / "out.py").exists()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("helpers.SIZE = 4\nload = helpers.augment", "uses SIZE of coverage_helpers"),
        ("helpers.SIZE = tf.constant(4)\nload = helpers.augment", "uses SIZE of coverage_helpers"),
        ("def own(x):\n    return x\nhelpers.same = own\nload = lambda x: helpers.same(x)", "uses own"),
        ("helpers.SIZE = 4\ndef load(x):\n    return augment(x)", "uses SIZE of coverage_helpers"),
        ("helpers.SIZE = 4\nload = lambda x: tf.fill([helpers.SIZE], x)", "uses SIZE of coverage_helpers"),
        ("Options.side = 4\nload = lambda x: tf.fill([Options.side], x)", "uses side of Options"),
        ("chosen.side = 4\nload = lambda x: tf.fill([chosen.side], x)", "uses chosen"),
        ("helpers.SIZE = 4\nfrom coverage_helpers import SIZE\nload = lambda x: tf.fill([SIZE], x)", "\nSIZE = 4\n"),
        ("helpers.UNUSED = 4\nload = lambda x: augment(x)", "from coverage_helpers import augment\n"),
        ("chosen.other = 4\nload = lambda x: tf.fill([chosen.side], x)", "from coverage_helpers import chosen\n"),
        ("from coverage_helpers import *\ndef load(x):\n    return same(x)", "from coverage_helpers import same\n"),
        ("load = lambda files: augment(files)", ".map(lambda files: augment(files))"),
        ("load = lambda x: x + helpers.LIMIT + helpers.Split.TRAIN", "import coverage_helpers as helpers\n"),
    ],
)
def test_what_is_imported_has_to_be_as_it_was_imported(tmp_path: Path, helpers: Any, body: str, said: str) -> None:
    """Another process imports the module as it is written."""
    imports = "import tensorflow as tf\nimport coverage_helpers as helpers\n"
    imports += "from coverage_helpers import Options, augment, chosen\n"
    dataset = "dataset = tf.data.Dataset.range(9).map(load)\n"
    script = run_script(tmp_path / "train.py", f"{imports}{body}\n{dataset}")
    result = written(live.read(script["dataset"]), tmp_path)
    assert said in (result.module or result.notes[0]), (result.module, result.notes)
    assert bool(result.module) is not said.startswith("uses ")


def test_map_that_mixes_the_rows_of_a_batch_is_noted(tmp_path: Path) -> None:
    """A replica has fewer of them."""
    batches = tf.data.Dataset.range(40).shuffle(40).map(lambda x: (tf.cast(x, tf.float32), "text")).batch(8)
    for function, mixes in (
        (lambda x, text: (x - tf.reduce_mean(x), text), True),
        (lambda x, text: (x * 2, tf.strings.join([text, text])), False),
        (lambda x, text: tf.reduce_sum(x), False),
    ):
        result = written(live.read(batches.map(function)), tmp_path, kind="mirrored")
        assert any("computes with all rows of a batch" in note for note in result.notes) is mixes, result.notes
        assert ("computes with all rows of a batch" in " ".join(result.module.split())) is mixes


def test_random_functions_that_follow_the_global_seed_are_noted(tmp_path: Path) -> None:
    tf.random.set_seed(5)
    drawn = tf.data.Dataset.range(8).map(lambda x: x + tf.random.uniform([], maxval=9, dtype=tf.int64)).batch(2)
    for kind in ("mirrored", "horovod"):
        notes = " ".join(written(live.read(drawn), tmp_path, kind=kind).notes)
        assert "seeds are kept" in notes and "call tf.random.set_seed(5) first" in notes


def test_large_arrays_become_a_parameter(tmp_path: Path) -> None:
    numbers = tf.range(1_000)
    dataset = tf.data.Dataset.from_tensor_slices({"x": numbers, "y": (numbers * 2, numbers)})
    text, rows = proven(dataset.shuffle(1_000).batch(10, drop_remainder=True))
    assert "def dataset_fn(input_context, *, source" in text
    assert rows[0].batches_per_worker == (100, 100)
    assert rows[0].equal_batches is True and "what the script gave to from_tensor_slices," in text
    text, _ = proven(tf.data.Dataset.from_tensors(numbers).unbatch().batch(10))
    assert "what the script gave to from_tensors," in text


@pytest.mark.parametrize(("rows", "kind"), [(20, "multiworker"), (300, "tpu")])
def test_rows_gathered_by_index_are_delivered_once(tmp_path: Path, rows: int, kind: str) -> None:
    """On a TPU from batches of one size: the gathering function is traced differently than in the plan."""
    dataset = tf.data.Dataset.from_tensor_slices((tf.range(rows), tf.range(rows) * 2)).shuffle(rows).batch(4)
    source = live.read(dataset)
    told = function_splitting.annotate_gathers(source, source.pipeline)
    tuned = with_rules(source, told, gather.GATHER_BATCHES_RULE)
    result = written(source, tmp_path, tuned=tuned, kind=kind)
    assert "tf.gather(array, index), source_rows" in result.module, result.notes
    assert [(check.missing, check.duplicated) for check in result.checks] == [(0, 0)] * 3


def test_batch_that_pads_and_python_code_with_arrays(tmp_path: Path) -> None:
    """The module has the padded batch of the plan; only the patch calls `tf.numpy_function`."""
    namespace = run_script(
        tmp_path / "train.py",
        """
        import tensorflow as tf

        def python(x):
            return x.numpy() + 1

        def numbers(x):
            return {"row": tf.range(tf.ensure_shape(tf.py_function(python, [x], tf.int64), []) % 5), "number": x}

        def pad(x):
            return {**x, "row": tf.ensure_shape(tf.pad(x["row"], [[0, 6 - tf.size(x["row"])]]), [6])}

        rows = tf.data.Dataset.range(30).map(numbers)
        ds = rows.map(pad).batch(4)
        """,
    )
    source = live.read(namespace["ds"])
    told = annotate_graph_edits(source, annotate_padding(source, source.pipeline))
    result = written(source, tmp_path, tuned=with_rules(source, told, numpy_function.RULE, pad_batches.RULE))
    assert 'padded_shapes={"number": [], "row": [6]}' in result.module, result.notes
    assert "pad)" not in result.module and any("tf.py_function here" in note for note in result.notes)
    assert result.checks and all((row.missing, row.duplicated) == (0, 0) for row in result.checks)


@pytest.mark.parametrize("text", [b"\xff\xd8.%d", b"http://example.com/page%d.html"])
def test_texts_that_are_no_names_of_files_are_data(text: bytes) -> None:
    texts = tf.data.Dataset.from_tensor_slices([text % number for number in range(70)])
    proven(texts.map(tf.strings.length).batch(4))


def test_batches_of_inner_datasets_are_not_divided(tmp_path: Path) -> None:
    names = tf.data.Dataset.list_files(records(tmp_path, files=4, each=4))
    inner = names.interleave(lambda name: tf.data.TFRecordDataset(name).batch(2))
    for kind, said in (("mirrored", "interleave makes the batches, which are not divided"), ("horovod", "every rank")):
        notes = " ".join(written(live.read(inner), tmp_path, kind=kind).notes)
        assert said in notes and "does not batch" not in notes


def test_zip_of_a_dictionary_in_another_order_is_written() -> None:
    proven(tf.data.Dataset.zip({"b": tf.data.Dataset.range(9), "a": tf.data.Dataset.range(100, 109)}).batch(2))


def test_file_names_read_by_a_function_are_sharded_as_files(tmp_path: Path) -> None:
    for index in range(5):
        (tmp_path / f"image{index}.bin").write_bytes(bytes([index]))
    names = sorted(str(path) for path in tmp_path.glob("image*.bin"))
    text, rows = proven(tf.data.Dataset.from_tensor_slices(names).map(tf.io.read_file).batch(2))
    assert "tf.io.read_file" in text and "image*.bin" in text
    assert rows[0].per_worker == (3, 2)
    (tmp_path / "image9.bin").write_bytes(b"not in the pipeline")
    text, _ = proven(tf.data.Dataset.from_tensor_slices(names).map(tf.io.read_file).batch(2))
    assert "image*.bin" not in text and "image4.bin" in text


def test_files_zipped_with_labels_are_as_many_as_the_labels(tmp_path: Path) -> None:
    names = lines(tmp_path, *[1] * 5)
    files, labels = (tf.data.Dataset.from_tensor_slices(values) for values in (names, list(range(5))))
    result = written(live.read(tf.data.Dataset.zip((files.map(tf.io.read_file), labels)).batch(2)), tmp_path)
    assert "part*" in result.module, result.notes
    module = load(result)
    context = tf.distribute.InputContext(1, 0, 1)
    for contents, numbers in module.dataset_fn(context):
        assert list(map(int, contents.numpy())) == numbers.numpy().tolist()
    (tmp_path / "part").touch()  # the first by name
    with pytest.raises(ValueError, match="6 files match"):
        module.dataset_fn(context)


def test_files_too_large_to_read_are_counted_by_name(tmp_path: Path, helpers: Any) -> None:
    source, made, _ = emit(helpers.build(records(tmp_path, files=5, each=4, uneven=True)))
    (row,) = check(source, made.text, made, most_bytes=10)
    assert (row.counted, row.elements, row.missing) == ("files", 5, 0)
    wrong = made.text.replace(".shard(workers, worker)", ".shard(workers, 0)")
    assert all(row.missing for row in check(source, wrong, made, most_bytes=10))


def test_endless_data_is_counted_by_first_elements_or_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MOST_ELEMENTS", 9)
    _, rows = proven(tf.data.Dataset.range(10).enumerate().map(lambda i, x: i).batch(2))
    assert rows[0].counted == "elements"
    endless = tf.data.Dataset.range(0, 10**12)
    _, rows = proven(endless.batch(2))
    assert (rows[0].counted, rows[0].per_worker) == ("first elements", (5, 4))
    names = tf.data.Dataset.list_files(records(tmp_path, files=4, each=2, uneven=True))
    _, rows = proven(names.interleave(lambda name: tf.data.TFRecordDataset(name).repeat(), cycle_length=4))
    assert [(row.counted, row.elements) for row in rows] == [("files", 4)]


def test_pipeline_that_raises_is_refused_with_its_error(tmp_path: Path, helpers: Any) -> None:
    pattern = records(tmp_path, files=6, each=3, uneven=True)
    source = live.read(helpers.build(pattern))
    (tmp_path / "part-5.tfrecord").write_bytes(b"no record at all, but long enough to be read")
    result = written(source, tmp_path)
    assert result.notes[0].startswith("The pipeline does not run to its end: DataLossError")
    assert not (tmp_path / "out.py").exists()


def test_tuned_pipeline_is_written(tmp_path: Path, helpers: Any) -> None:
    source = live.read(helpers.build(records(tmp_path, files=6, each=5, uneven=True)))
    first = next(node.id for node in source.pipeline if node.op == "map")
    edits = (
        SetArgument(first, "num_parallel_calls", 2),
        Insert(after=first, op="cache", id=f"cache@{first}", arguments={"filename": ""}),
        Insert(after=source.pipeline.output.id, op="prefetch", id="prefetch@end", arguments={"buffer_size": 3}),
    )
    out, tuned = tmp_path / "reports" / "train_distributed.py", apply_edits(source.pipeline, edits)
    result = distribute(source, tuned, kind="mirrored", out_file=out, script="/home/a/train.py")
    assert out.read_text() == result.module
    assert result.module.startswith('"""The tuned input pipeline of train.py, for')
    assert ".cache()" in result.module and "prefetch(3 * replicas)" in result.module
    assert "map(parse, num_parallel_calls=2)" in result.module
    assert "all 33 elements were delivered, each once per epoch" in result.module.replace("\n", " ")
    assert any("differ in number or size" in note for note in result.notes)
    told = DistributedResult("mirrored", result.module, str(out), result.notes, result.checks, coverage=result.coverage)
    assert result == told and [len(one.workers) for one in result.coverage] == [2, 3, 4]


def test_module_with_missing_elements_is_not_written(
    tmp_path: Path, helpers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipetune.distributed import writing

    kind = kinds.find("multiworker")

    def wrong(*arguments: Any) -> Standalone:
        made = kind.emit(*arguments)
        return replace(made, text=made.text.replace(".shard(workers, worker)", ".shard(workers, 0)"))

    monkeypatch.setattr(writing.kinds, "find", lambda _name: replace(kind, emit=wrong))
    monkeypatch.setattr(coverage, "WORKER_COUNTS", (2,))
    source = live.read(helpers.build(records(tmp_path, files=6, each=5, uneven=True)))
    result = written(source, tmp_path)
    assert result.notes[0].startswith("With 2 workers, 18 elements were missing")
    assert not (tmp_path / "out.py").exists() and result.module == ""
    assert (result.checks[0].missing, result.checks[0].duplicated) == (18, 15)


@pytest.mark.mission("C4.pure")
def test_dataset_function_that_is_not_pure_is_refused(tmp_path: Path) -> None:
    source = live.read(tf.data.Dataset.range(12).batch(2))
    collected, _ = parts.collect(source, source.pipeline)
    made = kinds.find("parameter-server").emit(collected, Known("train.py"))
    (row,) = check(source, made.text, made, kind="parameter-server")
    assert (row.missing, row.duplicated) == (0, 0)
    impure = made.text.replace(".batch(batch_size)", ".shuffle(next(SIZES)).batch(batch_size)")
    assert impure.count("next(SIZES)")
    with pytest.raises(CannotExpress, match="Called again"):
        check(source, f"{impure}SIZES = iter(range(2, 99))\n", made, kind="parameter-server")


def test_module_that_does_not_run_is_refused(tmp_path: Path, helpers: Any) -> None:
    source, made, _ = emit(helpers.build(records(tmp_path, files=6, each=5, uneven=True)))
    with pytest.raises(CannotExpress, match="does not run: NameError"):
        check(source, made.text.replace(".map(parse", ".map(unknown"), made)
    with pytest.raises(CannotExpress, match=r"other operators|not the one"):
        check(source, made.text.replace("dataset = dataset.map(augment)\n", "pass\n"), made)


TRAINING = """
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
import train_distributed

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
steps = iter(strategy.distribute_datasets_from_function(train_distributed.dataset_fn))
for _ in range(7):
    batches = strategy.run(lambda batch: batch[0][:, 0], args=(next(steps),))
    print([batch.numpy().tolist() for batch in strategy.experimental_local_results(batches)])
"""


@pytest.mark.exhaustive
@pytest.mark.mission("B4.trains")
def test_mirrored_strategy_trains_on_the_module(tmp_path: Path, helpers: Any) -> None:
    dataset = helpers.build(records(tmp_path, files=8, each=3, uneven=True))  # 28 records
    source = live.read(dataset)
    result = distribute(source, source.pipeline, kind="mirrored", out_file=tmp_path / "train_distributed.py")
    assert result.module
    said = [json.loads(line) for line in run(TRAINING, tmp_path).splitlines()]
    # The first epoch is 7 global batches of 4 rows: all numbers once, in any order.
    assert all(len(batch) == 2 for step in said for batch in step) and {len(step) for step in said} == {2}
    assert sorted(number for step in said for batch in step for number in batch) == list(range(28))
