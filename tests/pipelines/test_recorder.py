"""Where a dataset was created: the end of the recorded span compared with the source text, for every form of call.

In a sample, every call to be found is followed directly by a marker `<<name>>`, which is removed before the sample
runs; the span has to end at its position.
"""

from __future__ import annotations

import gc
import importlib.util
import re
import sys
import textwrap
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core import files
from pipetune.core.pipeline import SourceLocation
from pipetune.pipelines import call_sites, live

MARK = re.compile(r"<<(\w+)>>")


class Sample:
    """A module written to a file and run while recording."""

    def __init__(self, folder: Path, text: str, *, name: str = "sample") -> None:
        text = textwrap.dedent(text)
        self.ends: dict[str, tuple[int, int]] = {}
        while mark := MARK.search(text):
            line = text.count("\n", 0, mark.start()) + 1
            column = len(text[text.rfind("\n", 0, mark.start()) + 1 : mark.start()].encode())
            self.ends[mark[1]] = line, column
            text = text[: mark.start()] + text[mark.end() :]
        self.file = folder / f"{name}.py"
        self.file.write_text(text)
        self._folder, self._name = folder, name

    def run(self) -> Any:
        call_sites.clear()
        spec = importlib.util.spec_from_file_location(self._name, self.file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(self._folder))
        try:
            with call_sites.Recorder():
                spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(self._folder))
        return module

    def end(self, name: str) -> tuple[str, int, int]:
        return (str(self.file), *self.ends[name])


Writer = Callable[..., Sample]


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    """Writes samples, which import TensorFlow first."""
    return lambda text, **how: Sample(tmp_path, "import tensorflow as tf\n" + textwrap.dedent(text), **how)


def place(location: SourceLocation | None) -> tuple[str, int, int]:
    assert location is not None and location.exact
    return location.file, location.end_line, location.end_column


def chain(dataset: Any) -> list[Any]:
    """The datasets from the source to `dataset`, along first inputs."""
    found = [dataset]
    while above := live.upstream_datasets(found[0]):
        found.insert(0, above[0])
    return found


def check(sample: Sample, dataset: Any, expected: list[tuple[str, str]]) -> None:
    """Each of the chain's datasets: (marker where its call ends, method)."""
    found = [call_sites.location(one) for one in chain(dataset)]
    assert [place(location) for location in found] == [sample.end(name) for name, _ in expected]
    assert [location.method for location in found if location] == [method for _, method in expected]


ONE_CHAIN = {
    "one line": """
        ds = tf.data.Dataset.range(9)<<a>>.map(lambda x: x + 1)<<b>>.batch(2)<<c>>.prefetch(1)<<d>>
        """,
    "several lines with comments": """
        ds = (
            tf.data.Dataset.range(9)<<a>>  # numbers
            # one more each
            .map(
                lambda x: x + 1,  # here
            )<<b>>

            .batch(
                2
            )<<c>>
            .prefetch(1)<<d>>
        )
        """,
    "letters beyond ASCII before the call": """
        words = "größer ✓"; ds = tf.data.Dataset.range(len("äöü") * 3)<<a>>
        "€"; ds = ds.map(lambda x: x + 1)<<b>>
        ds = ds.batch(2, name="β")<<c>>.prefetch(1)<<d>>
        """,
    "methods of a class": """
        class Input:
            def __init__(self):
                self.source = tf.data.Dataset.range(9)<<a>>
            @property
            def mapped(self):
                return self.source.map(self.add)<<b>>
            def add(self, x):
                return x + 1
            @classmethod
            def batched(cls):
                return cls().mapped.batch(2)<<c>>
            @staticmethod
            def build():
                return Input.batched().prefetch(1)<<d>>
        ds = Input.build()
        """,
    "comprehension, generator and getattr": """
        ds = [tf.data.Dataset.range(9)<<a>> for _ in range(1)][0]
        ds = next(one.map(lambda x: x + 1)<<b>> for one in [ds])
        ds = getattr(ds, "batch")(2)<<c>>
        step = ds.prefetch
        ds = step(1)<<d>>
        """,
}

METHODS = ["range", "map", "batch", "prefetch"]
NAMES = {"comprehension, generator and getattr": ["range", "map", "batch", "step"]}


@pytest.mark.parametrize("name", ONE_CHAIN)
def test_span_ends_where_the_call_ends(write: Writer, name: str) -> None:
    sample = write(ONE_CHAIN[name])
    check(sample, sample.run().ds, list(zip("abcd", NAMES.get(name, METHODS), strict=True)))


def test_scope_is_the_enclosing_function(write: Writer) -> None:
    sample = write(ONE_CHAIN["methods of a class"])
    scopes = [call_sites.location(one).scope for one in chain(sample.run().ds)]  # type: ignore[union-attr]
    assert scopes == ["Input.__init__", "Input.mapped", "Input.batched", "Input.build"]
    sample = write(ONE_CHAIN["one line"], name="flat")
    assert {call_sites.location(one).scope for one in chain(sample.run().ds)} == {"<module>"}  # type: ignore[union-attr]


def test_equal_functions_on_one_line_are_two_call_sites(write: Writer) -> None:
    sample = write("""
        ds = tf.data.Dataset.range(9)<<a>>.apply(lambda d: d.map(abs)<<b>>).apply(lambda d: d.map(abs)<<c>>)
        """)
    dataset = sample.run().ds
    check(sample, dataset, [("a", "range"), ("b", "map"), ("c", "map")])
    assert [call_sites.datasets_at_call(one) for one in chain(dataset)] == [1, 1, 1]


def test_loop_is_one_call_site_with_several_datasets(write: Writer) -> None:
    sample = write("""
        ds = tf.data.Dataset.range(9)<<a>>
        for step in range(3):
            ds = ds.map(lambda x: x + step)<<b>>
        """)
    found = chain(sample.run().ds)
    assert [place(call_sites.location(one)) for one in found] == [sample.end(mark) for mark in "abbb"]
    assert [call_sites.datasets_at_call(one) for one in found] == [1, 3, 3, 3]
    pipeline = live.read(found[-1]).pipeline
    assert [node.shared for node in pipeline] == [1, 3, 3, 3]
    assert [node.location for node in pipeline] == [call_sites.location(one) for one in found]


def test_several_inputs_and_constructors(write: Writer) -> None:
    sample = write("""
        from tensorflow.data import Dataset
        from tensorflow.data import TFRecordDataset as Records
        files = Dataset.list_files([__file__], shuffle=False)<<files>>
        records = Records(files)<<records>>
        slices = Dataset.from_tensor_slices([1, 2])<<slices>>
        made = Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec([], tf.int32))<<made>>
        both = Dataset.zip((slices, made))<<both>>
        mixed = Dataset.sample_from_datasets(
            [slices, slices.repeat()<<repeat>>],
            weights=[0.5, 0.5])<<mixed>>
        chosen = Dataset.choose_from_datasets([slices, slices], Dataset.range(2))<<chosen>>
        numbered = slices.enumerate()<<numbered>>
        lines = tf.data.TextLineDataset([__file__])<<lines>>
        """)
    module = sample.run()
    names = {
        "files": "list_files", "records": "Records", "slices": "from_tensor_slices", "made": "from_generator",
        "both": "zip", "mixed": "sample_from_datasets", "chosen": "choose_from_datasets", "numbered": "enumerate",
        "lines": "TextLineDataset",
    }  # fmt: skip
    for name, method in names.items():
        location = call_sites.location(getattr(module, name))
        assert place(location) == sample.end(name), name
        assert location is not None and location.method == method
    assert place(call_sites.location(live.upstream_datasets(module.mixed)[2])) == sample.end("repeat")


def test_inner_function_is_found_through_autograph(write: Writer) -> None:
    sample = write("""
        made = []

        def read(x):
            inner = tf.data.Dataset.range(x)
            if x > 2:
                made.append(inner.map(lambda y: y + 1))
            made.append(tf.data.TextLineDataset(["a"]))
            return inner.batch(2)

        ds = tf.data.Dataset.range(9)<<a>>.interleave(read, cycle_length=2)<<b>>
        """)
    module = sample.run()
    check(sample, module.ds, [("a", "range"), ("b", "interleave")])
    location = call_sites.location(module.made[0])
    assert location is not None and (location.file, location.line, location.method) == (str(sample.file), 8, "map")
    assert not location.exact
    lines = call_sites.location(module.made[1])
    assert lines is not None and (lines.line, lines.method) == (9, "TextLineDataset")


def test_inner_function_without_autograph_has_an_exact_location(write: Writer) -> None:
    sample = write("""
        made = []

        @tf.autograph.experimental.do_not_convert
        def read(x):
            made.append(tf.data.Dataset.range(x)<<inner>>)
            return made[0].batch(2)

        ds = tf.data.Dataset.range(9).flat_map(read)<<outer>>
        """)
    module = sample.run()
    assert place(call_sites.location(module.made[0])) == sample.end("inner")
    assert place(call_sites.location(module.ds)) == sample.end("outer")


def test_datasets_created_by_a_library_are_read_and_located_at_the_users_call(tmp_path: Path, write: Writer) -> None:
    folder = tmp_path / "images" / "cat"
    folder.mkdir(parents=True)
    (folder / "1.png").write_bytes(tf.io.encode_png(tf.zeros([4, 4, 3], tf.uint8)).numpy())
    (tmp_path / "texts" / "cat").mkdir(parents=True)
    (tmp_path / "texts" / "cat" / "1.txt").write_text("a cat")
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    sample = write(f"""
        import keras
        images = keras.utils.image_dataset_from_directory(
            {str(tmp_path / "images")!r},
            image_size=(4, 4), batch_size=1, verbose=False,
        )<<images>>
        texts = keras.utils.text_dataset_from_directory({str(tmp_path / "texts")!r}, verbose=False)<<texts>>
        series = keras.utils.timeseries_dataset_from_array([1., 2., 3., 4.], None, 2)<<series>>
        table = tf.data.experimental.make_csv_dataset({str(tmp_path / "table.csv")!r}, 1)<<table>>
        """)
    module = sample.run()
    for name, method, operators in (
        ("images", "image_dataset_from_directory", {"zip", "map", "batch"}),
        ("texts", "text_dataset_from_directory", {"zip", "map", "batch"}),
        ("series", "timeseries_dataset_from_array", {"map"}),
        ("table", "make_csv_dataset", {"shuffle", "batch", "prefetch"}),
    ):
        pipeline = live.read(getattr(module, name)).pipeline
        assert {place(node.location) for node in pipeline} == {sample.end(name)}, name
        assert {node.location.method for node in pipeline if node.location} == {method}
        found = {node.op for node in pipeline}
        assert operators <= found and "opaque" not in found, name
        reads_files = any(node.function and node.function.reads_files for node in pipeline)
        assert reads_files is (name in ("images", "texts"))


def test_nothing_is_recorded_or_patched_outside_the_recorder() -> None:
    original = tf.data.Dataset.__init__
    with pytest.raises(ValueError, match="theirs"), call_sites.Recorder():
        assert tf.data.Dataset.__init__ is not original
        inside = tf.data.Dataset.range(3)
        raise ValueError("theirs")
    assert tf.data.Dataset.__init__ is original
    outside = inside.map(lambda x: x)
    assert call_sites.location(inside) is not None and call_sites.location(outside) is None
    assert call_sites.datasets_at_call(outside) == 1


def test_nested_recorders_count_once() -> None:
    call_sites.clear()
    with call_sites.Recorder():
        with call_sites.Recorder():
            inside = tf.data.Dataset.range(3)
        after = tf.data.Dataset.range(3)
    assert call_sites.datasets_at_call(inside) == 1
    assert call_sites.location(inside) is not None and call_sites.location(after) is not None


def test_seeds_that_calls_draw_are_counted() -> None:
    with call_sites.Recorder():
        tf.random.set_seed(3)
        made = [tf.data.Dataset.range(9)]
        made.append(made[-1].shuffle(9))
        made.append(made[-1].map(lambda x: x + tf.random.uniform((), maxval=3, dtype=tf.int64)))
        tf.random.uniform(())
        made.append(made[-1].batch(2))
        tf.random.set_seed(3)
        made.append(made[-1].prefetch(2))
    first, *counts = [call_sites.seeds_drawn(one) for one in made]
    assert [count - first for count in counts] == [1, 1, 2, 4]


def test_file_that_runs_again_is_recorded_afresh() -> None:
    """A cell of a notebook that is run twice: the datasets of its first run do not share its calls any more."""
    call_sites.clear()
    source = "import tensorflow as tf\nmade = tf.data.Dataset.range(3).map(lambda x: x)\n"
    names: list[dict[str, Any]] = [{}, {}, {}]
    first, second, elsewhere = names
    with call_sites.Recorder():
        exec(compile(source, "cell.py", "exec"), first)
        exec(compile(source, "other.py", "exec"), elsewhere)
        call_sites.forget("cell.py")
        exec(compile(source, "cell.py", "exec"), second)
    assert call_sites.datasets_at_call(second["made"]) == 1
    assert second["made"] in call_sites.live_datasets() and elsewhere["made"] in call_sites.live_datasets()
    assert first["made"] not in call_sites.live_datasets()


@pytest.mark.parametrize("loop", [
    "for x in batches(2)<<inner>>:\n    break",
    "found = next(batches(2))<<inner>>",
    "def more():\n    for x in batches(2)<<inner>>:\n        yield x\nfor x in more()<<outer>>:\n    break",
])  # fmt: skip
def test_a_generator_that_builds_is_called_in_the_header_of_the_loop_that_runs_it(write: Writer, loop: str) -> None:
    sample = write(f"made = []\ndef batches(n):\n    made.append(tf.data.Dataset.range(n))\n    yield n\n{loop}\n")
    (dataset,) = sample.run().made
    found = [place(one) for one in call_sites.enclosing_calls(dataset) if one.file == str(sample.file)]
    assert found == [sample.end(name) for name in ("inner", "outer") if name in sample.ends]


def test_cell_of_a_terminal_keeps_its_name() -> None:
    found: dict[str, Any] = {}
    source = "import tensorflow as tf\ndef make():\n    return tf.data.Dataset.range(3)\nmade = make()"
    with call_sites.Recorder():
        exec(compile(source, "<ipython-input-2-abc>", "exec"), found)
    place = call_sites.location(found["made"])
    assert place is not None and str(place) == "<ipython-input-2-abc>:3"
    assert call_sites.enclosing_calls(found["made"])[0].file == "<ipython-input-2-abc>"


def test_recorded_datasets_can_be_freed() -> None:
    with call_sites.Recorder():
        dataset = tf.data.Dataset.from_tensor_slices([1, 2, 3]).map(lambda x: x + 1)
        gone = weakref.ref(dataset)
        call_sites.location(dataset)
        del dataset
    gc.collect()
    assert gone() is None


def test_datasets_created_by_pipetune_are_not_recorded() -> None:
    from pipetune.core.edits import Insert, apply_edits
    from pipetune.pipelines import replay

    with call_sites.Recorder():
        source = live.read(tf.data.Dataset.range(4).map(lambda x: x))
        edited = apply_edits(source.pipeline, [Insert("n0", "prefetch", "p", {"buffer_size": 1})])
        built = replay.replay_nodes(source, edited)
    assert call_sites.location(built["p"]) is None and call_sites.location(built["n1"]) is None
    assert call_sites.datasets_at_call(source.datasets["n1"]) == 1


def test_library_files_are_recognised() -> None:
    import keras

    assert files.is_library(tf.__file__) and files.is_library(keras.__file__)
    assert files.is_library(call_sites.__file__) and files.is_library(textwrap.__file__)
    assert files.is_library("<frozen runpy>")
    assert files.is_library("/opt/another/environment/lib/python3.11/site-packages/tensorflow/__init__.py")
    assert not files.is_library(__file__) and not files.is_library("<ipython-input-1-abc>")
    assert not files.is_library("/tmp/__autograph_generated_fileabc.py")


def test_packages_installed_beside_the_users_files_are_libraries(tmp_path, monkeypatch) -> None:
    """`pip install --target` installs where no name of a folder tells."""
    for name in ("tensorflow-2.dist-info", "six-1.dist-info", "tensorflow/data", "mine"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tensorflow-2.dist-info" / "RECORD").write_text("tensorflow/data/ops.py,,\n../bin/tool,,\n")
    (tmp_path / "six-1.dist-info" / "top_level.txt").write_text("six\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    files._library_paths.cache_clear()
    try:
        assert files.is_library(str(tmp_path / "tensorflow" / "data" / "ops.py"))
        assert files.is_library(str(tmp_path / "six.py"))
        assert not files.is_library(str(tmp_path / "mine" / "data.py"))
        assert not files.is_library(str(tmp_path / "train.py"))
        assert not files.is_library(str(tmp_path.parent / "train.py"))
    finally:
        files._library_paths.cache_clear()
