"""Runs sample sources with a stand-in for tf.data whose calls record their true bytecode positions.

The stand-in holds no data: it builds the Pipeline that a capture would build (operators, arguments, locations), so
that locating and emitting are tested on real CPython positions, and a patched source can be run again to check
which operators it builds.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from unittest import mock

from pipetune.core.edits import Edit, Plan, ReplaceFunction, Rewrite, Safety, SetArgument
from pipetune.core.functions import FunctionFacts, FunctionVariant
from pipetune.core.pipeline import Node, Pipeline, SourceLocation
from pipetune.source.call_arguments import METHODS
from pipetune.source.emit import Emission, emit

AUTOTUNE = -1

TRANSFORMS = ("batch", "cache", "filter", "interleave", "map", "padded_batch", "prefetch", "repeat", "shuffle", "skip",
              "take", "with_options")  # fmt: skip


@dataclass(eq=False)
class Dataset:
    """A dataset is the call that created it."""

    op: str
    inputs: tuple[Dataset, ...]
    arguments: dict[str, object]
    location: SourceLocation | None
    calls: tuple[SourceLocation, ...]
    recorder: Recorder = field(repr=False)

    def apply(self, function):
        return function(self)

    def concatenate(self, dataset):
        return self.recorder.make("concatenate", (self, dataset), {})

    def cardinality(self):
        return 100

    def __iter__(self):
        return iter((1, 2, 3))


def _transform(op: str):
    signature = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None) for name in METHODS[op]]
    )

    def method(self, *args, **kwargs):
        bound = signature.bind(*args, **kwargs).arguments
        for function in ("map_func", "predicate"):
            if callable(bound.get(function)):
                if op == "interleave":
                    bound[function](0)  # as in tracing: inner datasets are created while the outer call is open
                del bound[function]
        bound.pop("options", None)
        return self.recorder.make(op, (self,), bound)

    return method


for _op in TRANSFORMS:
    setattr(Dataset, _op, _transform(_op))


class Recorder:
    """Records the datasets that sample files create, and those passed to `train(ds)` and `validate(ds)`."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.consumed: dict[str, Dataset] = {}
        self.made: list[Dataset] = []

    def make(self, op, inputs, arguments):
        arguments = {name: value for name, value in arguments.items() if value is not None}
        location, *calls = self._locations() or [None]
        made = Dataset(op, inputs, arguments, location, tuple(calls), self)
        self.made.append(made)
        return made

    def _locations(self) -> list[SourceLocation]:
        """The user's call that creates a dataset, and the calls around it, innermost first."""
        frame, called, library = sys._getframe(1), "", ""
        while frame is not None and not frame.f_code.co_filename.startswith(self.folder):
            library = frame.f_locals.get("library", library)
            called = frame.f_locals.get("op") if frame.f_code.co_name == "method" else frame.f_code.co_name
            frame = frame.f_back
        found = []
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(self.folder):
                line, end_line, column, end_column = list(code.co_positions())[frame.f_lasti // 2]
                place = SourceLocation(code.co_filename, line, column, end_line, end_column, "", code.co_qualname)
                found.append(place if found else replace(place, method=str(called), library=library))
            frame = frame.f_back
        return found

    def run(self, path: Path, text: str | None = None) -> None:
        """Runs a file, or `text` under its name."""
        source = path.read_bytes() if text is None else text.encode()
        consumers = {name: partial(self.consumed.setdefault, name) for name in ("train", "validate")}
        namespace = {"__name__": "__main__", **consumers}
        with mock.patch.dict(sys.modules, _stand_in(self)):
            exec(compile(source, str(path), "exec", dont_inherit=True), namespace)

    def pipeline(self, name: str = "train") -> Pipeline:
        """The pipeline of a consumed dataset."""
        ordered: list[Dataset] = []

        def visit(dataset: Dataset) -> None:
            for source in dataset.inputs:
                visit(source)
            if dataset not in ordered:
                ordered.append(dataset)

        visit(self.consumed[name])
        sites = Counter((dataset.location, dataset.op) for dataset in self.made)
        ways = dict.fromkeys((one.location, one.op, one.calls) for one in self.made)
        ids = {id(dataset): f"n{position}" for position, dataset in enumerate(ordered)}
        nodes = [
            Node(
                id=ids[id(dataset)],
                op=dataset.op,
                inputs=tuple(ids[id(source)] for source in dataset.inputs),
                arguments=dataset.arguments,
                function=FunctionFacts("function", "traced") if dataset.op == "map" else None,
                location=dataset.location,
                shared=sites[dataset.location, dataset.op],
                calls=dataset.calls,
                other_calls=tuple(
                    calls for *site, calls in ways if site == [dataset.location, dataset.op] and calls != dataset.calls
                ),
            )
            for dataset in ordered
        ]
        return Pipeline(tuple(nodes), name=name)


def _tfds(recorder: Recorder) -> types.ModuleType:
    """TensorFlow Datasets: one call creates all operators that read a split."""
    defaults = {"interleave_cycle_length": 16, "interleave_block_length": 16, "shuffle_seed": None,
                "num_parallel_calls_for_interleave_files": AUTOTUNE, "num_parallel_calls_for_decode": AUTOTUNE,
                "skip_prefetch": False, "try_autocache": True}  # fmt: skip

    def ReadConfig(**fields):
        assert fields.keys() <= defaults.keys()
        return types.SimpleNamespace(**{**defaults, **fields})

    def read(config, *, shuffle_files):
        config = config or ReadConfig()
        dataset = recorder.make("from_tensor_slices", (), {})
        if shuffle_files:
            dataset = dataset.shuffle(8, seed=config.shuffle_seed)
        dataset = dataset.interleave(
            lambda name: name,
            cycle_length=config.interleave_cycle_length,
            block_length=config.interleave_block_length,
            num_parallel_calls=config.num_parallel_calls_for_interleave_files,
        )
        dataset = dataset.map(len, num_parallel_calls=config.num_parallel_calls_for_decode)
        dataset = (dataset.cache() if config.try_autocache else dataset).map(len)
        return dataset if config.skip_prefetch else dataset.prefetch(AUTOTUNE)

    def as_dataset(split=None, *, shuffle_files=False, read_config=None):
        library = "tensorflow_datasets"  # noqa: F841 (for `_locations`)
        splits = split if isinstance(split, list) else [split]
        found = [read(read_config, shuffle_files=shuffle_files) for _ in splits]
        return found if isinstance(split, list) else found[0]

    def load(name, *, split=None, shuffle_files=False, read_config=None, with_info=False):
        dataset = as_dataset(split, shuffle_files=shuffle_files, read_config=read_config)
        return (dataset, {}) if with_info else dataset

    module = types.ModuleType("tensorflow_datasets")
    module.ReadConfig, module.load = ReadConfig, load
    module.builder = lambda name: types.SimpleNamespace(as_dataset=as_dataset)
    return module


def _stand_in(recorder: Recorder) -> dict[str, types.ModuleType]:
    def from_tensor_slices(tensors):
        return recorder.make("from_tensor_slices", (), {})

    def range(*args):
        return recorder.make("range", (), {})

    def list_files(file_pattern, shuffle=None, seed=None):
        """Two operators, as in TensorFlow."""
        files = recorder.make("list_files", (), {})
        return files if shuffle is False else files.shuffle(3, seed=seed)

    def TFRecordDataset(filenames, compression_type=None, buffer_size=None, num_parallel_reads=None):
        given = {"buffer_size": buffer_size, "num_parallel_reads": num_parallel_reads}
        inputs = (filenames,) if isinstance(filenames, Dataset) else ()
        return recorder.make("TFRecordDataset", inputs, given)

    def image_dataset_from_directory(directory, subset=None):
        images = from_tensor_slices(directory).map(lambda path: path).map(lambda path: path).batch(32)
        return (images, images) if subset == "both" else images

    def load_photos(name):
        return image_dataset_from_directory(name), {"name": name}

    def copy_to_device(target_device):
        return lambda dataset: recorder.make("copy_to_device", (dataset,), {"target_device": target_device})

    data = types.ModuleType("tensorflow.data")
    data.AUTOTUNE = AUTOTUNE
    data.experimental = types.SimpleNamespace(AUTOTUNE=AUTOTUNE, copy_to_device=copy_to_device)
    data.Options = lambda: types.SimpleNamespace(threading=types.SimpleNamespace())
    data.Dataset = Dataset
    for constructor in (from_tensor_slices, range, list_files):
        setattr(Dataset, constructor.__name__, staticmethod(constructor))
    data.TFRecordDataset = TFRecordDataset
    utils = types.ModuleType("tensorflow.keras.utils")
    utils.image_dataset_from_directory = image_dataset_from_directory
    utils.load_photos = load_photos
    keras = types.ModuleType("tensorflow.keras")
    keras.utils = utils
    tensorflow = types.ModuleType("tensorflow")
    tensorflow.data, tensorflow.keras = data, keras
    tensorflow.cast = lambda x, dtype: x
    compat = types.ModuleType("tensorflow.compat")
    tensorflow.compat, compat.v2 = compat, tensorflow
    found = {module.__name__: module for module in (tensorflow, data, keras, utils, compat, _tfds(recorder))}
    return {**found, "tensorflow.compat.v2": tensorflow}


def record(path: Path, text: str | None = None) -> Recorder:
    """Runs a sample file (or other text under its name) and returns what it created."""
    recorder = Recorder(path.parent)
    recorder.run(path, text)
    return recorder


def recorded(folder: Path, text: str) -> tuple[Path, Recorder]:
    """Writes a sample file, runs it, and returns its path and what it created."""
    path = folder / "sample.py"
    path.write_bytes(text.encode())
    return path, record(path)


def emit_variant(
    folder: Path, text: str, rewrite: tuple[str, FunctionVariant, Safety], function: FunctionFacts, **more
) -> tuple[str, Emission]:
    """Writes a variant of the function of a sample's first map, and two calls at once of it by another rule.

    Args:
        rewrite: the rule, the variant, and its class.

    Returns:
        The new text of the sample.
    """
    path, recorder = recorded(folder, text)
    pipeline = recorder.pipeline()
    node = next(one.id for one in pipeline if one.op == "map")
    nodes = (replace(one, function=function) if one.id == node else one for one in pipeline)
    rule, variant, safety = rewrite
    rewrites = (
        Rewrite(rule, node, safety, (ReplaceFunction(node, variant, "e"),), ""),
        Rewrite("parallel-map", node, Safety.STATISTICAL, (SetArgument(node, "num_parallel_calls", 2),), ""),
    )
    emission = emit(replace(pipeline, nodes=tuple(nodes)), Plan("p", rewrites), **more)
    return emission.files.get(str(path), (text, text))[1], emission


def spelled_out(text: str) -> str:
    """A sample whose tables call datasets by bare names, as `range(3)`, with the names that scripts use."""
    for owner, names in (
        ("tf.data.Dataset.", "range|list_files"),
        ("tf.data.", "TFRecordDataset"),
        ("tf.keras.utils.", "image_dataset_from_directory"),
    ):
        text = re.sub(rf"(?<![\w.])(?=({names})\()", owner, text)
    return text


def shape(pipeline: Pipeline) -> list[tuple[str, dict[str, object]]]:
    """Operators and arguments, which is what a patched source must reproduce.

    `with_options` is not an operator of the core pipeline, `repeat()` is equal to `repeat(count=-1)`, and
    `cache()` to `cache("")`.
    """
    described = []
    for node in pipeline:
        if node.op == "with_options":
            continue
        given = {name: value for name, value in node.arguments.items() if value is not None}
        if (node.op, given) in (("repeat", {"count": -1}), ("cache", {"filename": ""})):
            given = {}
        described.append((node.op, given))
    return described


def by_title(pipeline: Pipeline, name: str) -> str:
    """The id of an operator by name: "map" for the only one, "map#1" for the second; ids stay ids."""
    op, _, position = name.partition("#")
    found = [node.id for node in pipeline if node.op == op]
    if not found:
        return name
    assert position or len(found) == 1, f"{name} is ambiguous"
    return found[int(position or 0)]


def plan(*edits: Edit, safety: Safety = Safety.EXACT) -> Plan:
    """A plan of one rewrite, by the rule "rule"."""
    return Plan("p", (Rewrite("rule", "n0", safety, edits, ""),))


def resolved(pipeline: Pipeline, edit):
    """An edit whose operators are given by name."""
    changes = {name: by_title(pipeline, getattr(edit, name)) for name in ("node", "after") if hasattr(edit, name)}
    return replace(edit, **changes)
