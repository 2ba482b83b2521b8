"""Every tf.data operator: how it is called, and its effect on order, count, randomness and epochs.

A row is all that pipetune needs to read an operator from a dataset, to make it again, and to write its call. Beside
them: which graph passes TensorFlow runs on a pipeline, by the options that are set.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from pipetune.core.pipeline import AUTOTUNE, INFINITE, Node, Pipeline, Value


class CountEffect(enum.StrEnum):
    """The number of output elements compared with the input elements."""

    ONE_TO_ONE = "one-to-one"
    FEWER = "fewer"  # never more than went in
    MORE = "more"  # never fewer than went in
    UNKNOWN = "unknown"


class OrderEffect(enum.StrEnum):
    """What an operator does to the order of elements."""

    KEEPS = "keeps"
    CHANGES = "changes"  # deterministically, the same every time
    SHUFFLES = "shuffles"  # by random draws
    UNKNOWN = "unknown"


class EpochEffect(enum.StrEnum):
    """What an operator does when its dataset is iterated again."""

    SAME = "same"  # adds no difference of its own between epochs
    DIFFERENT = "different"  # a different order or different draws in each epoch
    FREEZES = "freezes"  # replays the first epoch
    JOINS = "joins"  # merges several epochs into one stream
    UNKNOWN = "unknown"


class Division(enum.StrEnum):
    """Where elements may be divided among workers, so that what all of them output is the same as without."""

    UPSTREAM = "upstream"  # what it does to an element does not depend on the others: divide as early as possible
    DOWNSTREAM = "downstream"  # it needs all elements in front of an element, and runs on every worker
    UNKNOWN = "unknown"  # no distributed module is written


class Role(enum.Enum):
    """Where the value of a parameter is found once the operator is made."""

    VALUE = enum.auto()  # a plain value: in `Node.arguments`
    COUNT = enum.auto()  # a plain value, a number of elements
    PARALLEL = enum.auto()  # a plain value, which says how it runs in threads of its own
    FUNCTION = enum.auto()  # traced by TensorFlow, and kept by the dataset object
    OBJECT = enum.auto()  # another object, kept by the dataset object
    UNREAD = enum.auto()  # nowhere, or read in a special way: an operator that is made again has the default


@dataclass(frozen=True)
class Parameter:
    """A parameter of the call that makes an operator."""

    name: str
    role: Role = Role.VALUE
    default: Value = None  # not written out
    required: bool = False
    autotuned: bool = False  # -1 means AUTOTUNE, not "forever" or "no limit"
    attribute: str = ""  # the dataset object's, if it is not `name` behind an underscore

    @property
    def kept_in(self) -> str:
        """The attribute of a dataset object that holds the value."""
        return self.attribute or f"_{self.name}"

    @property
    def plain(self) -> bool:
        """Whether `Node.arguments` has its value."""
        return self.role in (Role.VALUE, Role.COUNT, Role.PARALLEL)


@dataclass(frozen=True)
class OperatorFacts:
    """Facts about an operator that do not depend on its function.

    The defaults are those of an operator that does no more than pass on one element for each that it gets.
    """

    classes: tuple[str, ...] = ()  # of dataset objects; the kernels have the same names, without the underscore
    parameters: tuple[Parameter, ...] = ()  # in the order of the call; each also takes `name` last
    count: CountEffect = CountEffect.ONE_TO_ONE
    division: Division = Division.UNKNOWN
    method: bool = True  # of a dataset: that of the operator's name makes it
    order: OrderEffect = OrderEffect.KEEPS
    random: bool = False  # draws random numbers itself
    source: bool = False  # has no input dataset
    batches: bool = False  # combines several elements into one, or splits one
    epochs: EpochEffect = EpochEffect.SAME
    python: bool = False  # runs Python code under the GIL itself
    reads_files: bool = False
    same_elements: bool = False  # passes elements through unchanged: same structure, same bytes
    reads_all: bool = True  # consumes its inputs completely whenever it is consumed completely

    @property
    def makes_batches(self) -> bool:
        """Whether it combines a fixed number of elements into one."""
        return self.batches and self.count is CountEffect.FEWER

    @property
    def takes_function(self) -> bool:
        """Whether it has a function that TensorFlow traces; `Node.function` describes it."""
        return any(parameter.role is Role.FUNCTION for parameter in self.parameters)

    @property
    def parallel_argument(self) -> str:
        """The argument that makes it run in its own threads; "" if there is none."""
        return next((one.name for one in self.parameters if one.role is Role.PARALLEL), "")

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.parameters)

    def argument_list(self, texts: Mapping[str, str]) -> list[str]:
        """Returns the arguments of a call as source text: the first and required ones by position, others by name.

        Args:
            texts: source text of the values by parameter name.
        """
        by_position = {*self.parameter_names[:1], *(one.name for one in self.parameters if one.required)}
        given = [(name, texts[name]) for name in self.parameter_names if name in texts]
        return [text if name in by_position else f"{name}={text}" for name, text in given]


def _values(*names: str, role: Role = Role.VALUE, required: bool = False) -> tuple[Parameter, ...]:
    return tuple(Parameter(name, role, required=required) for name in names)


_functions = partial(_values, role=Role.FUNCTION, required=True)
_objects = partial(_values, role=Role.OBJECT)
_unread = partial(_values, role=Role.UNREAD)
_same_elements = partial(OperatorFacts, same_elements=True)
_batching = partial(OperatorFacts, batches=True)

_BATCH_SIZE = Parameter("batch_size", required=True)
_BUFFER_SIZE = Parameter("buffer_size", Role.COUNT, required=True)
_COUNT = Parameter("count", Role.COUNT, required=True)
_CYCLE_LENGTH = Parameter("cycle_length", default=AUTOTUNE, autotuned=True)
_DROP_REMAINDER = Parameter("drop_remainder", default=False)
_FILENAMES = Parameter("filenames", Role.UNREAD, required=True)
_MAP_FUNC = Parameter("map_func", Role.FUNCTION, required=True)
_PREDICATE = Parameter("predicate", Role.FUNCTION, required=True)
_PARALLEL = Parameter("num_parallel_calls", Role.PARALLEL, autotuned=True), Parameter("deterministic", Role.PARALLEL)
_PARALLEL_READS = Parameter("num_parallel_reads", autotuned=True)

CAUTIOUS = OperatorFacts(
    parameters=(_MAP_FUNC,),  # it may call one
    method=False,
    order=OrderEffect.UNKNOWN,
    count=CountEffect.UNKNOWN,
    random=True,
    epochs=EpochEffect.UNKNOWN,
    python=True,
    reads_files=True,
    reads_all=False,
)
"""The facts assumed for an unknown operator."""

_FEWER, _MORE, _UNKNOWN = CountEffect.FEWER, CountEffect.MORE, CountEffect.UNKNOWN
_UPSTREAM, _DOWNSTREAM = Division.UPSTREAM, Division.DOWNSTREAM
_DRAWS = OperatorFacts(order=OrderEffect.SHUFFLES, random=True, epochs=EpochEffect.DIFFERENT)
_MEMORY_SOURCE = OperatorFacts(count=_MORE, method=False, source=True)
_FILE_SOURCE = replace(_MEMORY_SOURCE, reads_files=True)
_RECORDS = replace(
    _FILE_SOURCE,
    parameters=(_FILENAMES, Parameter("compression_type"), *_objects("buffer_size"), _PARALLEL_READS),
    division=_UPSTREAM,
)

OPERATORS: MappingProxyType[str, OperatorFacts] = MappingProxyType(
    {
        # Sources.
        "from_tensor_slices": replace(_MEMORY_SOURCE, classes=("_TensorSliceDataset",)),
        "from_tensors": replace(_MEMORY_SOURCE, classes=("_TensorDataset",)),
        "from_list": replace(_MEMORY_SOURCE, classes=("_ListDataset",)),
        "from_sparse_tensor_slices": replace(_MEMORY_SOURCE, classes=("_SparseTensorSliceDataset",)),
        "range": replace(_MEMORY_SOURCE, classes=("_RangeDataset",), parameters=_values("start", "stop", "step")),
        # A generator may yield anything each time it is started: its code is not visible in the graph.
        "from_generator": replace(CAUTIOUS, parameters=(), source=True, reads_files=False, reads_all=True),
        "random": replace(_DRAWS, classes=("_RandomDataset",), count=_MORE, method=False, source=True),
        "TFRecordDataset": replace(_RECORDS, classes=("TFRecordDatasetV2",)),
        "TextLineDataset": replace(_RECORDS, classes=("TextLineDatasetV2",)),
        "FixedLengthRecordDataset": replace(
            _RECORDS,
            classes=("FixedLengthRecordDatasetV2",),
            parameters=(
                _FILENAMES,
                Parameter("record_bytes"),
                *_objects("header_bytes", "footer_bytes", "buffer_size", "compression_type"),
                _PARALLEL_READS,
            ),
        ),
        "CsvDataset": replace(_FILE_SOURCE, classes=("CsvDatasetV2",)),
        "SqlDataset": replace(_FILE_SOURCE, classes=("SqlDatasetV2",)),
        "load": replace(
            _FILE_SOURCE,
            classes=("_LoadDataset",),
            parameters=(Parameter("path"), Parameter("reader_func", Role.FUNCTION)),
        ),
        # One element in, one element out.
        "map": OperatorFacts(
            ("_MapDataset", "_ParallelMapDataset"),
            (_MAP_FUNC, *_PARALLEL, *_unread("synchronous", "use_unbounded_threadpool")),
            division=_UPSTREAM,
        ),
        # The state of a scan lets it stop early.
        "scan": OperatorFacts(
            ("_ScanDataset",),
            (*_objects("initial_state", required=True), *_functions("scan_func")),
            _FEWER,
            _DOWNSTREAM,
        ),
        "enumerate": OperatorFacts(parameters=_unread("start"), division=_DOWNSTREAM),
        "to_ragged": OperatorFacts(("_DenseToRaggedDataset",), method=False),
        "prefetch": _same_elements(("_PrefetchDataset",), (replace(_BUFFER_SIZE, autotuned=True),), division=_UPSTREAM),
        "with_options": _same_elements(("_OptionsDataset",), _unread("options", required=True), division=_UPSTREAM),
        "copy_to_device": _same_elements(("_CopyToDeviceDataset",), _values("target_device"), method=False),
        "assert_cardinality": _same_elements(
            ("_AssertCardinalityDataset",), _values("expected_cardinality"), division=_UPSTREAM, method=False
        ),
        "cache": _same_elements(
            ("CacheDataset",), (Parameter("filename", default=""),), division=_UPSTREAM, epochs=EpochEffect.FREEZES
        ),
        "snapshot": OperatorFacts(
            ("_SnapshotDataset",),
            (*_unread("path", required=True), *_unread("compression", "reader_func", "shard_func")),
            epochs=EpochEffect.FREEZES,
            reads_files=True,
        ),
        "shuffle": replace(
            _DRAWS,
            classes=("_ShuffleDataset",),
            parameters=(_BUFFER_SIZE, *_unread("seed"), Parameter("reshuffle_each_iteration", default=True)),
            division=_UPSTREAM,
            same_elements=True,
        ),
        # Fewer.
        "filter": _same_elements(("_FilterDataset",), (_PREDICATE,), _FEWER, _UPSTREAM),
        "take": _same_elements(("_TakeDataset",), (_COUNT,), _FEWER, _DOWNSTREAM, reads_all=False),
        "skip": _same_elements(("_SkipDataset",), (_COUNT,), _FEWER, _DOWNSTREAM),
        "shard": _same_elements(("_ShardDataset",), _values("num_shards", "index", required=True), _FEWER, _DOWNSTREAM),
        "take_while": _same_elements(("_TakeWhileDataset",), (_PREDICATE,), _FEWER, _DOWNSTREAM, reads_all=False),
        "ignore_errors": _same_elements(("_IgnoreErrorsDataset",), _unread("log_warning"), _FEWER, _UPSTREAM),
        "unique": _same_elements(("_UniqueDataset",), (), _FEWER, _DOWNSTREAM),
        # Several into one, one into several.
        "batch": _batching(
            ("_BatchDataset", "_ParallelBatchDataset"), (_BATCH_SIZE, _DROP_REMAINDER, *_PARALLEL), _FEWER, _UPSTREAM
        ),
        "padded_batch": _batching(
            ("_PaddedBatchDataset",),
            (_BATCH_SIZE, *_unread("padded_shapes", "padding_values"), _DROP_REMAINDER),
            _FEWER,
            _UPSTREAM,
        ),
        "ragged_batch": _batching((), (_BATCH_SIZE, _DROP_REMAINDER, *_unread("row_splits_dtype")), _FEWER),
        "unbatch": _batching(("_UnbatchDataset",), (), _UNKNOWN, _UPSTREAM),
        "rebatch": _batching(
            ("_RebatchDataset",), (replace(_BATCH_SIZE, attribute="_batch_sizes"), _DROP_REMAINDER), _UNKNOWN
        ),
        "window": _batching(
            ("_WindowDataset",),
            (Parameter("size", required=True), *_values("shift", "stride"), _DROP_REMAINDER),
            _UNKNOWN,
            _DOWNSTREAM,
        ),
        "group_by_window": _batching(
            ("_GroupByWindowDataset",),
            (*_functions("key_func", "reduce_func"), *_unread("window_size"), *_functions("window_size_func")),
            _UNKNOWN,
            order=OrderEffect.CHANGES,
        ),
        "flat_map": OperatorFacts(("_FlatMapDataset",), (_MAP_FUNC,), _UNKNOWN, _UPSTREAM),
        "interleave": OperatorFacts(
            ("_InterleaveDataset", "_ParallelInterleaveDataset"),
            (_MAP_FUNC, _CYCLE_LENGTH, Parameter("block_length", default=1), *_PARALLEL),
            _UNKNOWN,
            _UPSTREAM,
            order=OrderEffect.CHANGES,
        ),
        # That of `tf.data.experimental`, in which `make_csv_dataset` reads: always parallel.
        "parallel_interleave": OperatorFacts(
            ("ParallelInterleaveDataset",),
            (
                _MAP_FUNC,
                Parameter("cycle_length", required=True),
                Parameter("block_length", default=1),
                Parameter("deterministic", Role.PARALLEL),
                *_unread("buffer_output_elements", "prefetch_input_elements"),
            ),
            _UNKNOWN,
            method=False,
            order=OrderEffect.CHANGES,
        ),
        # Epochs.
        "repeat": _same_elements(
            ("_RepeatDataset",), (Parameter("count", default=INFINITE),), _MORE, _UPSTREAM, epochs=EpochEffect.JOINS
        ),
        # Several inputs.
        "concatenate": _same_elements(("_ConcatenateDataset",), _unread("dataset", required=True), _MORE, _DOWNSTREAM),
        # A zip stops with its shortest input.
        "zip": OperatorFacts(("_ZipDataset",), (), _FEWER, _DOWNSTREAM, method=False, reads_all=False),
        "choose": replace(
            _DRAWS,
            classes=("_DirectedInterleaveDataset",),
            parameters=_values("stop_on_empty_dataset"),
            count=_UNKNOWN,
            method=False,
            same_elements=True,
            reads_all=False,
        ),
        "opaque": CAUTIOUS,
    }
)
"""Facts by `Node.op`. Use `operator_facts` to read them; it also handles unknown names."""

DIVIDED_UPSTREAM = frozenset(op for op, facts in OPERATORS.items() if facts.division is _UPSTREAM)
DIVIDED_DOWNSTREAM = frozenset(op for op, facts in OPERATORS.items() if facts.division is _DOWNSTREAM)

FLATTENING = frozenset({"flat_map", "interleave", "parallel_interleave"})
"""Operators whose function makes a dataset of each element, and that output what these hold."""

READERS = frozenset(op for op, facts in OPERATORS.items() if _PARALLEL_READS in facts.parameters)
"""Readers of any number of files, which TensorFlow can divide; not `CsvDataset`, nor a map with `tf.io.read_file`."""


def operator_facts(op: str) -> OperatorFacts:
    """Returns the facts about operator `op` (a `Node.op`); `CAUTIOUS` for an unknown name."""
    return OPERATORS.get(op, CAUTIOUS)


_VERSION = re.compile(r"V\d+$")


def _kind(kernel: str) -> str:
    """Returns the name of a kernel without its ending: "Map" for "MapDataset" and for the class "_MapDataset"."""
    return _VERSION.sub("", kernel).removeprefix("_").removesuffix("Dataset")


# Of kernels: of the classes, and those that only graphs have.
_KINDS = {_kind(name): op for op, facts in OPERATORS.items() for name in facts.classes} | {
    "Generator": "from_generator",
    "ParallelInterleave": "interleave",  # also the name of the other one's class
    "LegacyParallelInterleave": "parallel_interleave",
    "CSV": "CsvDataset",
    "ExperimentalCSV": "CsvDataset",
    "ParallelFilter": "filter",
    "ShuffleAndRepeat": "shuffle",
    "DenseToRaggedBatch": "ragged_batch",
}


def is_dataset_kernel(name: str) -> bool:
    """Whether `name` is a kernel that creates a dataset ("ParallelMapDatasetV2")."""
    return _VERSION.sub("", name).endswith("Dataset") and name != "ReduceDataset"  # which reads one


def public_name(name: str) -> str:
    """Returns the operator for `name`, which may be the name of a kernel in a graph ("ParallelMapDatasetV2")."""
    if name in OPERATORS:
        return name
    return _KINDS.get(_kind(name), "opaque") if is_dataset_kernel(name) else "opaque"


FUSED_SHUFFLE = "TensorFlow fuses a shuffle with the repeat next to it, which changes the order of later epochs"
"""Why a rewrite that makes the two operators adjacent, or separates them, does not keep the order."""


def fused_shuffles(pipeline: Pipeline) -> frozenset[str]:
    """Returns the ids of the seeded shuffles whose order TensorFlow changes by fusing them with a finite repeat."""
    ends = (node for node in pipeline if node.op == "repeat" and node.argument("count") not in (None, INFINITE))
    repeated = {name for node in ends for name in node.inputs}
    return frozenset(
        node.id
        for node in pipeline
        if node.op == "shuffle" and node.argument("seed") is not None and node.id in repeated
    )


def reshuffles_each_epoch(node: Node) -> bool:
    """Whether a node is a shuffle that reshuffles in each epoch."""
    return node.op == "shuffle" and node.argument("reshuffle_each_iteration") is not False


def settled_operators(pipeline: Pipeline) -> frozenset[str]:
    """Returns the ids of the operators whose own order nobody can tell: a shuffle downstream draws every order anew.

    It has a buffer for all elements, which it fills before it draws the first, and reshuffles in each epoch.
    Between the two, every element becomes one other, whatever its position.
    """
    found: set[str] = set()
    for last in pipeline:
        size = last.argument("buffer_size")
        holds_all = isinstance(size, int) and 0 <= last.cardinality <= size
        if not reshuffles_each_epoch(last) or not holds_all:
            continue
        node = last
        while len(node.inputs) == 1 and len(pipeline.consumers(node.inputs[0])) == 1:
            node = pipeline[node.inputs[0]]
            if not treats_elements_alike(node):
                break
            found.add(node.id)
    return frozenset(found)


_KEEP_ELEMENTS_APART = frozenset({"assert_cardinality", "cache", "prefetch", "shuffle", "with_options"})


def treats_elements_alike(node: Node) -> bool:
    """Whether every element becomes one other, whatever its position; draws without a seed differ anyway."""
    if node.op != "map":
        return node.op in _KEEP_ELEMENTS_APART
    function = node.function
    return function is not None and function.only_draws and not (function.random and function.seeded)


OPTION = "experimental_optimization."
"""Prefix of the option of a pass, as in `tf.data.Options`."""

DEFAULT_PASSES = frozenset(
    {"map_and_batch_fusion", "map_parallelization", "noop_elimination", "parallel_batch", "shuffle_and_repeat_fusion"}
    | {"inject_prefetch"}
)
"""Passes that are on by default (`DefaultOptimizationGraphRewrites` in dataset_utils.cc)."""


def runs_pass(options: Mapping[str, Value], name: str) -> bool:
    """Whether TensorFlow runs a pass under these options, by dotted name."""
    if name == "make_sloppy" and options.get("deterministic") is False:
        return True
    own = options.get(OPTION + name)
    if own is not None:
        return own is True
    return name in DEFAULT_PASSES and options.get(OPTION + "apply_default_optimizations") is not False
