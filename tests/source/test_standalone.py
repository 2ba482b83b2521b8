"""The standalone module as text: where the data is sharded, and what else the module contains."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

import pytest

from pipetune.core.distribution import Definition, FunctionSource, SourceText, StandaloneParts
from pipetune.core.errors import CannotExpress
from pipetune.core.functions import FunctionFacts, FunctionVariant
from pipetune.core.pipeline import Node, Pipeline, Value
from pipetune.distributed.emit import kinds
from pipetune.distributed.emit.kind import Known, Standalone
from pipetune.distributed.emit.module import division_notes
from pipetune.distributed.emit.sharding import sharding
from tests.words import value

PARSE = FunctionFacts(name="parse", digest="a")
FACTS = {
    "parse": PARSE,
    "augment": FunctionFacts(name="augment", digest="b", random=True),
    "read": FunctionFacts(name="TFRecordDataset", digest="c"),
    "keep": FunctionFacts(name="keep", digest="d", random=True),
    "python": replace(PARSE, python=True),
    "prints": replace(PARSE, side_effects=("PrintV2",)),
}
"""Functions, by the words that stand for them in `parts`."""
FUNCTIONS = {
    "parse": FunctionSource("parse", (Definition("parse", "from helpers import parse"),)),
    "augment": FunctionSource("augment", (Definition("augment", "from helpers import augment"),)),
    "TFRecordDataset": FunctionSource("tf.data.TFRecordDataset"),
    "keep": FunctionSource("lambda x: x > 0"),
}

MAIN_ARGUMENTS = {
    **dict.fromkeys(("batch", "padded_batch"), "batch_size"),
    **dict.fromkeys(("shuffle", "prefetch"), "buffer_size"),
    **dict.fromkeys(("take", "skip", "repeat"), "count"),
    **{"cache": "filename", "interleave": "cycle_length", "window": "size"},
}


ROWS = SourceText(1_000, expression="tf.data.Dataset.range(1000)")


def files(count: int) -> SourceText:
    return SourceText(count, pattern="/data/train-*.tfrecord")


def parts(
    source: SourceText,
    steps: str = "",
    *,
    options: Mapping[str, Value] | None = None,
    functions: Mapping[str, FunctionFacts] = FACTS,
) -> StandaloneParts:
    """A chain of operators after one source, as in `map parse deterministic=True | shuffle 9 | batch 4`."""
    nodes = [Node(id="n0", op="from_tensor_slices", cardinality=source.count)]
    for index, step in enumerate(filter(None, steps.split(" | ")), 1):
        op, *words = step.split()
        found = next((functions[word] for word in words if word in functions), None)
        given = (word.rpartition("=") for word in words if word not in functions)
        arguments = {name or MAIN_ARGUMENTS[op]: value(text) for name, _, text in given}
        nodes.append(Node(f"n{index}", op, (f"n{index - 1}",), arguments, function=found))
    sources = {node.id: FUNCTIONS[node.function.name] for node in nodes if node.function}
    return StandaloneParts(Pipeline(tuple(nodes), options=options or {}), {"n0": source}, sources, processors=2)


def emit(made: StandaloneParts, kind: str = "multiworker") -> Standalone:
    return kinds.find(kind).emit(made, Known("train.py"))


def statements(text: str) -> list[str]:
    """The statements of dataset_fn that build datasets."""
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    function = next((node for node in functions if node.name == "dataset_fn"), functions[0])
    return [
        ast.unparse(node.value).removeprefix("dataset").removeprefix("tf.data.Dataset")
        for node in function.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id.startswith("dataset")
    ]


def photos(count: int) -> StandaloneParts:
    return parts(
        files(count),
        f"shuffle {count} seed=None | interleave read -1 block_length=1 num_parallel_calls=-1 deterministic=False"
        " | map parse num_parallel_calls=2 deterministic=None | map augment | shuffle 256 seed=None"
        " | batch 32 drop_remainder=True | repeat -1 | prefetch 2",
    )


PHOTOS_READ = (
    ".interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)"
    ".map(parse, num_parallel_calls=2).map(augment).shuffle(256)"
)


@pytest.mark.mission("B3.right", "B4.function")
def test_shards_files_before_they_are_shuffled_and_read() -> None:
    made = emit(photos(14))
    assert made.shard_by == "file"
    assert "".join(statements(made.text)) == (
        f".from_tensor_slices(files).shard(workers, worker).shuffle(14){PHOTOS_READ}"
        ".batch(batch_size, drop_remainder=not fill).repeat().prefetch(2 * replicas)"
    )
    assert "GLOBAL_BATCH_SIZE = 32" in made.text
    assert "get_per_replica_batch_size(GLOBAL_BATCH_SIZE)" in made.text
    assert "files = sorted(tf.io.gfile.glob(FILES))" in made.text
    assert made.global_batch_size == 32


@pytest.mark.parametrize(("count", "reads"), [(3, "2"), (9, "tf.data.AUTOTUNE")])
def test_reader_above_the_division_reads_as_many_files_everywhere(count: int, reads: str) -> None:
    nodes = (Node("n0", "TFRecordDataset"), Node("n1", "batch", ("n0",), {"batch_size": 4}))
    extra = {"n0": {"num_parallel_reads": "tf.data.AUTOTUNE"}}
    text = emit(StandaloneParts(Pipeline(nodes), {"n0": files(count)}, {}, extra, processors=2)).text
    assert f"tf.data.TFRecordDataset(dataset, num_parallel_reads={reads})" in text
    assert ("num_parallel_reads=2 is written out" in text) is (count == 3)
    assert f"num_parallel_calls={reads})" in text.partition("def indexed_dataset_fn")[2]


def test_files_of_every_source_are_counted() -> None:
    nodes = (*(Node(name, "from_tensor_slices") for name in ("n0", "n1")), Node("n2", "concatenate", ("n0", "n1")))
    made = StandaloneParts(Pipeline(nodes), {"n0": files(24), "n1": files(12)})
    first, *others = division_notes(made, sharding(made.pipeline, made.sources))
    assert first.startswith("each worker reads files of its own (12 and 24 files in all), divided")
    assert not any("a file more than others" in note for note in others)


@pytest.mark.mission("B3.right")
def test_shards_records_where_files_are_too_few() -> None:
    made = emit(photos(3))
    assert made.shard_by == "element"
    assert "".join(statements(made.text)[:5]) == (
        ".from_tensor_slices(files).shuffle(3, seed=SHARED_SEED)"
        ".interleave(tf.data.TFRecordDataset, cycle_length=2, num_parallel_calls=tf.data.AUTOTUNE)"
        ".shard(workers, worker).map(parse, num_parallel_calls=2)"
    )
    assert "SHARED_SEED = 1" in made.text
    notes = " ".join(made.notes)
    for words in ("SHARED_SEED", "cycle_length=2", "deterministic=False is left out", "reads all of the data"):
        assert words in notes


def test_seeds_are_kept() -> None:
    made = emit(parts(files(2), "shuffle 2 seed=87654321,7 | interleave 2 read"))
    assert ".shuffle(2, seed=7)" in statements(made.text)
    assert not any("set_seed" in note for note in made.notes)
    made = emit(parts(files(2), "shuffle 2 seed=5,7"))
    assert any("tf.random.set_seed(5)" in note for note in made.notes)


@pytest.mark.parametrize(
    ("steps", "shard_behind"),
    [
        ("map parse | shuffle 9 | batch 4", "slices"),
        ("filter parse | cache filename= | batch 4", "slices"),
        ("map parse | take 100 | batch 4", "take"),
        ("shuffle 9 | skip 5 | map augment", "skip"),
        ("filter parse | take 5 | map parse", "take"),
        ("batch 4 | take 5", "slices"),
        ("shuffle 9 | batch 4 | take 5", "shuffle"),
        ("batch 4 | repeat -1 | take 5", "slices"),
        ("window 3 shift=1 stride=1 | flat_map parse | batch 4", "flat_map"),
        ("batch 8 drop_remainder=True | unbatch | batch 4", "batch"),
    ],
)
@pytest.mark.mission("E1.sharded")
def test_shards_as_early_as_correct(steps: str, shard_behind: str) -> None:
    source = SourceText(1_000, expression="tf.data.Dataset.from_tensor_slices(source)", takes_source=True)
    made = emit(parts(source, steps))
    written = statements(made.text)
    position = written.index(".shard(workers, worker)")
    assert shard_behind in written[position - 1]
    assert made.shard_by == "element"
    assert "def dataset_fn(input_context, *, source" in made.text
    assert "functools.partial(dataset_fn, source=...)" in made.text


@pytest.mark.mission("B4.function")
def test_counts_of_batches_scale_with_replicas_per_pipeline() -> None:
    made = emit(parts(ROWS, "skip 3 | batch 4 | take 5"))
    assert ".skip(3)" in statements(made.text)
    assert ".take(5 * replicas)" in statements(made.text)
    assert "replicas = input_context.num_replicas_in_sync // workers" in made.text


def zipped(second: Node) -> str:
    """The text of `dataset_fn` for the batches of two inputs, one of which is a range."""
    batch = Node("n3", "batch", ("n2",), {"batch_size": 4})
    nodes = Node("n0", "range", cardinality=10), second, Node("n2", "zip", ("n0", "n1")), batch
    sources = {node.id: SourceText(10, expression="tf.data.Dataset.range(10)") for node in nodes if not node.inputs}
    made = StandaloneParts(Pipeline(nodes), sources, extra_arguments={"n2": {"datasets": "({}, {})"}})
    return emit(made).text.partition("def indexed_dataset_fn")[0]


@pytest.mark.parametrize(
    ("second", "shards", "written"),
    [
        (Node("n1", "range", cardinality=10), 2, "Dataset.zip((dataset, dataset_2))"),
        (Node("n1", "skip", ("n0",), {"count": 1}), 1, "dataset_2 = dataset.skip(1)"),
    ],
    ids=["independent", "dependent"],
)
def test_zip_is_sharded_upstream_if_its_inputs_are_independent(second: Node, shards: int, written: str) -> None:
    text = zipped(second)
    assert text.count(".shard(workers, worker)") == shards and written in text
    assert (text.index(".shard(workers, worker)") < text.index("Dataset.zip(")) is (shards == 2)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ("snapshot", "snapshot has no known distributed form"),
        ("batch 4 | unique", "unique behind batch"),
        ("batch 4 | filter parse | prefetch 1", "filter behind batch"),
        ("map augment | map parse | filter parse | take 2", "filter stands behind a map that draws"),
        ("map augment | filter parse | batch 4 | take 2", "filter stands behind a map that draws"),
        ("batch 4 | shuffle 9 | take 2", "shuffle of whole batches"),
        ("filter keep | take 2", "draws random numbers or keeps state"),
        ("filter python | take 2", "keeps state"),
        ("filter keep | flat_map keep | interleave 2 keep | take 2", "function of filter draws"),  # the first of them
    ],
)
def test_pipeline_that_cannot_be_sharded_correctly_is_refused(steps: str, reason: str) -> None:
    with pytest.raises(CannotExpress, match=reason):
        emit(parts(ROWS, steps))


@pytest.mark.parametrize(
    ("name", "form", "written"),
    [
        ("parse", FunctionVariant.ON_BATCHES, ".map(parse)"),
        ("parse", FunctionVariant.VECTORIZED, ".map(lambda batch: tf.vectorized_map(parse, batch))"),
    ],
)
def test_functions_called_on_batches(name: str, form: FunctionVariant, written: str) -> None:
    function = FunctionFacts(name=name, digest="d", form=form)
    made = emit(parts(files(8), "batch 4 | map it", functions={"it": function}))
    assert written in statements(made.text)


def test_rows_gathered_by_their_indices() -> None:
    function = FunctionFacts("gather", "d", form=FunctionVariant.GATHERING)
    gather = Node("gather@n0", "map", inputs=("n2",), function=function)
    source = SourceText(100, expression="tf.data.Dataset.from_tensors(source)", takes_source=True, gathers_rows=True)
    made = parts(source, "shuffle 9 seed=None | batch 4")
    with_gather = replace(made, pipeline=Pipeline((*made.pipeline.nodes, gather)))
    text = emit(with_gather).text
    assert "    source_rows = tf.data.Dataset.from_tensors(source).get_single_element()\n" in text
    written = statements(text)
    assert written[:2] == [".range(len(tf.nest.flatten(source_rows)[0]))", ".shard(workers, worker)"]
    assert ".map(lambda index: tf.nest.map_structure(lambda array: tf.gather(array, index), source_rows))" in written


def test_cropped_decoding_is_left_out_with_a_note() -> None:
    function = {"crop": replace(PARSE, form=FunctionVariant.DECODE_AND_CROP)}
    made = emit(parts(files(8), "map crop | batch 4", functions=function))
    assert ".map(parse)" in statements(made.text)
    assert any("decodes whole images here" in note for note in made.notes)


def test_parsing_function_used_on_batches_is_refused() -> None:
    function = {"all": replace(PARSE, form=FunctionVariant.PARSING)}
    with pytest.raises(CannotExpress, match="wherever it is used"):
        emit(parts(files(8), "batch 4 | map all", functions=function))


def test_file_cache_of_each_worker_has_its_own_name() -> None:
    made = emit(parts(files(8), "cache /tmp/c'{x}"))
    function = {"workers": 4, "worker": 2}
    (call,) = (line for line in statements(made.text) if line.startswith(".cache"))
    assert eval(call.removeprefix(".cache"), function) == "/tmp/c'{x}-2-of-4"


@pytest.mark.mission("B3.right")
def test_options_are_kept_and_automatic_sharding_is_off() -> None:
    options = {
        "experimental_distribute.auto_shard_policy": "DATA",
        "autotune.autotune_algorithm": "STAGE_BASED",
        "threading.private_threadpool_size": 3,
        "deterministic": False,
    }
    text = emit(parts(files(8), "map parse", options=options)).text
    assert "options.autotune.autotune_algorithm = tf.data.experimental.AutotuneAlgorithm.STAGE_BASED" in text
    assert "options.threading.private_threadpool_size = 3" in text
    assert "options.deterministic = False" in text
    assert "AutoShardPolicy.DATA" not in text
    few = emit(parts(files(2), "interleave 2 read", options=options))
    assert "    options.deterministic" not in few.text
    assert any("options.deterministic = False is left out" in note for note in few.notes)


def test_reader_with_file_names_is_sharded_by_file() -> None:
    nodes = Node("n0", "TFRecordDataset"), Node("n1", "batch", ("n0",), {"batch_size": 4})
    source, gzip = SourceText(4, names=("b", 'a"')), {"n0": {"compression_type": "'GZIP'"}}
    made = emit(StandaloneParts(Pipeline(nodes), {"n0": source}, extra_arguments=gzip))
    reader = "tf.data.TFRecordDataset(dataset, compression_type='GZIP')"
    assert statements(made.text)[:3] == [".from_tensor_slices(files)", ".shard(workers, worker)", reader]
    assert 'FILES = [\n    "b",\n    \'a"\',\n]' in made.text


def test_user_definitions_are_merged_once_in_order() -> None:
    K = Definition("K", "K = 3")
    scale = Definition("scale", "def scale(x):\n    return x * K")
    one = FunctionSource("scale", (Definition("np", "import numpy as np"), K, scale))
    two = FunctionSource("lambda x: x + K", (K,))
    made = parts(ROWS, "map parse | map parse")
    text = emit(replace(made, functions={"n1": one, "n2": two})).text
    assert text.count("K = 3") == 1
    assert text.index("import numpy") < text.index("SHARD_BY") < text.index("K = 3") < text.index("def scale")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (FunctionSource("lambda x: x + K", (Definition("K", "K = 4"),)), "called K"),
        (FunctionSource("f", (Definition("SHARD_BY", "SHARD_BY = 4"),)), "called SHARD_BY"),
        (FunctionSource("lambda x: x + batch_size"), "name batch_size"),
    ],
)
def test_conflicting_names_are_refused(function: FunctionSource, reason: str) -> None:
    first = FunctionSource("lambda x: x * K", (Definition("K", "K = 3"),))
    made = parts(ROWS, "map parse | map parse")
    with pytest.raises(CannotExpress, match=reason):
        emit(replace(made, functions={"n1": first, "n2": function}))


def test_header_is_valid_for_any_script_name_and_shows_the_kind() -> None:
    made = kinds.find("mirrored").emit(photos(14), Known('a"""\\N.py', 'It ran as "2".'))
    docstring = ast.get_docstring(ast.parse(made.text)) or ""
    assert "tf.distribute.MirroredStrategy()" in docstring
    assert 'It ran as "2".' in docstring
    assert all(len(line) <= 110 for line in docstring.splitlines())
    with pytest.raises(CannotExpress, match="'ray'"):
        emit(photos(14), "ray")
