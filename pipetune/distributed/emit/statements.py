"""The statements of `dataset_fn`: the operators of a pipeline in order, divided where the plan says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pipetune.core.distribution import Definition, SourceText, StandaloneParts, string_literal
from pipetune.core.errors import CannotExpress
from pipetune.core.functions import GRAPH_EDITS, FunctionVariant
from pipetune.core.operators import READERS, Division, Parameter, Role, operator_facts
from pipetune.core.pipeline import AUTOTUNE, DEFAULT_GRAPH_SEED, Node, Value
from pipetune.distributed.emit.sharding import Sharding
from pipetune.source.function_variants import vectorized_text
from pipetune.source.map_functions import named_callee

REPLICAS = "replicas"
GLOBAL_BATCH_SIZE = "GLOBAL_BATCH_SIZE"
SHARED_SEED = "SHARED_SEED"
SOURCE_ROWS = "source_rows"
_LONG = 90
_ENUM_OPTIONS = {
    "autotune.autotune_algorithm": "AutotuneAlgorithm",
    "experimental_distribute.auto_shard_policy": "AutoShardPolicy",
    "experimental_external_state_policy": "ExternalStatePolicy",
}

_NOT_WRITTEN = frozenset({"with_options", "assert_cardinality"})
_SAME_ORDER = "what stands above the division must come in the same order on every worker"


@dataclass(frozen=True)
class Wording:
    """How the statements of one kind say which part they read and how large its batches are."""

    who: str = "worker"  # what runs one of the pipelines, in words
    opening: tuple[str, ...] = (
        "workers = input_context.num_input_pipelines",
        "worker = input_context.input_pipeline_id",
    )
    size: str = "workers"  # into how many parts; "" where nothing is divided
    number: str = "worker"  # which of them
    batch_constant: str = GLOBAL_BATCH_SIZE
    batch_comment: str = "rows of all replicas together"
    batch_opening: str = "batch_size = input_context.get_per_replica_batch_size(GLOBAL_BATCH_SIZE)"
    batch: str = "batch_size"  # the expression for the rows of a batch
    replicas_opening: str = f"{REPLICAS} = input_context.num_replicas_in_sync // workers  # that this pipeline feeds"
    batches_count: Callable[[str, str], str] = lambda op, count: f"{count} * {REPLICAS}"
    """Operator and number of whole batches -> expression: here one pipeline feeds several replicas, a part each."""
    shuffle_seed: str = ""  # an expression that takes the place of every seed of a shuffle
    fills: bool = False  # last batches can be filled by the argument `fill`
    mixes_files: bool = False  # the list of files is shuffled as it is made
    closing: tuple[str, ...] = ()  # statements in front of the last prefetch, `{dataset}` for the variable
    prefetches: bool = True  # ends with a prefetch
    why_prefetch: str = "because distribute_datasets_from_function adds none"


class OperatorWriter:
    """Writes operators; knows which run on every worker alike and which count in batches."""

    def __init__(self, parts: StandaloneParts, sharding: Sharding, wording: Wording) -> None:
        self.parts, self.sharding, self.wording = parts, sharding, wording
        self.notes: list[str] = []
        # With files divided, what is shared is the list of names: nothing that runs in parallel.
        self.order_matters = sharding.by != "file" and len(sharding.shared) > len(sharding.after)

    def expression(self, node: Node, above: list[str]) -> str:
        """The call that makes the dataset of `node` from the datasets named `above`."""
        extra = self.extra(node)
        if node.op == "zip":
            return f"tf.data.Dataset.zip({extra['datasets'].format(*above)})"
        if node.op in READERS:
            return _call(f"tf.data.{node.op}", [above[0], *_keywords(extra)])
        facts = operator_facts(node.op)
        if facts.division is Division.UNKNOWN or any(one.role is Role.OBJECT for one in facts.parameters):
            raise CannotExpress(f"The operator {node.title} has no known distributed form.")
        texts = _SPECIAL.get(node.op, OperatorWriter.plain)(self, node) | self.parallel(node)
        return _call(f"{above[0]}.{node.op}", [*above[1:], *facts.argument_list(texts), *_keywords(extra)])

    def extra(self, node: Node) -> dict[str, str]:
        """Arguments that the pipeline's values leave out, and their expressions."""
        found = dict(self.parts.extra_arguments.get(node.id, {}))
        if node.id in self.sharding.shared and found.get("num_parallel_reads") == "tf.data.AUTOTUNE":
            found["num_parallel_reads"] = str(self.parts.processors)
            self.notes.append(
                f"num_parallel_reads={self.parts.processors} is written out in {node.op}: with AUTOTUNE it follows the "
                "number of processors, and the order must be the same on every worker"
            )
        return found

    def row_numbers(self) -> str:
        """The dataset of the numbers of rows that are gathered further down."""
        return f"tf.data.Dataset.range(len(tf.nest.flatten({SOURCE_ROWS})[0]))"

    def names(self, files: str) -> str:
        """The dataset of the names of files in the variable `files`."""
        return f"tf.data.Dataset.from_tensor_slices({files})"

    def data(self, _node: Node, source: SourceText) -> str:
        """The dataset of any other source."""
        return source.expression

    def function(self, node: Node) -> str:
        if node.gathers_rows:
            return f"lambda index: tf.nest.map_structure(lambda array: tf.gather(array, index), {SOURCE_ROWS})"
        if node.function is not None and node.function.part_of:
            raise CannotExpress(f"The parts of the function of {node.title} have no distributed form.")
        if node.id not in self.parts.functions:
            raise CannotExpress(f"The function of {node.title} is not known.")
        reference = self.parts.functions[node.id].reference
        form = node.function.form if node.function is not None else FunctionVariant.AS_TRACED
        if form is FunctionVariant.FUSED:
            raise CannotExpress(f"The functions that {node.title} calls one after another have no distributed form.")
        if form is FunctionVariant.VECTORIZED:
            called = reference if reference.replace(".", "").isidentifier() else f"({reference})"
            return vectorized_text(named_callee(called), tuple_input=self.parts.functions[node.id].unpacks_tuple)
        if form is FunctionVariant.PARSING:
            if reference.count("parse_single_example") == 0 or not reference.startswith("lambda"):
                raise CannotExpress(f"The function of {node.title} would parse batches wherever it is used.")
            return reference.replace("parse_single_example", "parse_example")
        if form in GRAPH_EDITS:
            self.notes.append(f"{node.title} {GRAPH_EDITS[form].otherwise} here: this is only changed by the patch")
        return reference

    def plain(self, node: Node) -> dict[str, str]:
        """Arguments by name, as the script has them, without those that are a default."""
        found = {}
        for parameter in operator_facts(node.op).parameters:
            name, role, value = parameter.name, parameter.role, node.argument(parameter.name)
            if role is Role.FUNCTION:
                found[name] = self.function(node)
            elif role in (Role.VALUE, Role.COUNT) and value not in (None, parameter.default):
                found[name] = self.count(node, parameter) if role is Role.COUNT else repr(value)
        return found

    def parallel(self, node: Node) -> dict[str, str]:
        """`num_parallel_calls` and `deterministic`, as written; above the division the order is kept."""
        found = {}
        calls, deterministic = node.argument("num_parallel_calls"), node.argument("deterministic")
        if calls is not None:
            found["num_parallel_calls"] = number(calls)
        if deterministic is False and node.id in self.sharding.shared:
            self.notes.append(f"deterministic=False is left out of {node.op}: {_SAME_ORDER}")
        elif deterministic is not None and calls is not None:
            found["deterministic"] = str(deterministic)
        return found

    def count(self, node: Node, parameter: Parameter) -> str:
        """A number of elements; one of whole batches follows the size of those a pipeline makes."""
        value = node.argument(parameter.name)
        if node.id in self.sharding.below_batch and value not in (AUTOTUNE, 0):
            return self.wording.batches_count(node.op, repr(value))
        return number(value) if parameter.autotuned else repr(value)

    def interleave(self, node: Node) -> dict[str, str]:
        found = self.plain(node)
        if "cycle_length" not in found and node.id in self.sharding.shared:
            found["cycle_length"] = str(self.parts.processors)
            self.notes.append(
                f"cycle_length={self.parts.processors} is written out in interleave: its default follows the "
                "number of processors, and the order must be the same on every worker"
            )
        return found

    def shuffle(self, node: Node) -> dict[str, str]:
        found = self.plain(node)
        seed = node.argument("seed")
        if self.wording.shuffle_seed:
            found["seed"] = self.wording.shuffle_seed
        elif isinstance(seed, str):
            graph_seed, operator_seed = seed.split(",")
            found["seed"] = operator_seed
            if graph_seed != DEFAULT_GRAPH_SEED:
                self.notes.append(
                    f"the order also follows the global seed: call tf.random.set_seed({graph_seed}) first, "
                    "as the script does"
                )
        elif node.id in self.sharding.shared:
            found["seed"] = SHARED_SEED
            self.notes.append(
                f"{SHARED_SEED} is given to a shuffle that had no seed: it stands above the division and "
                "must shuffle alike on every worker (which also need the same global seed, or none)"
            )
        return found

    def batch(self, node: Node) -> dict[str, str]:
        found = self.plain(node)
        if node.id in self.sharding.batches:
            found["batch_size"] = self.wording.batch
            if "drop_remainder" in found and self.wording.fills:
                found["drop_remainder"] = "not fill"
        return found

    def cache(self, node: Node) -> dict[str, str]:
        name = node.argument("filename")
        if not isinstance(name, str) or not name:
            return {}
        who, which, size = self.wording.who, self.wording.number, self.wording.size
        self.notes.append(f"each {who}'s cache file carries the {who}'s number")
        return {"filename": f'{string_literal(name)} f"-{{{which}}}-of-{{{size}}}"'}


def number(value: Value) -> str:
    return "tf.data.AUTOTUNE" if value == AUTOTUNE else repr(value)


def option_lines(options: Mapping[str, Value], writer: OperatorWriter) -> list[str]:
    """Statements that set `tf.data.Options` as the pipeline has them, and turn automatic sharding off."""
    policy = "experimental_distribute.auto_shard_policy"
    lines = ["options = tf.data.Options()"]
    for name, value in {**options, policy: "OFF"}.items():
        if name == "deterministic" and value is False and writer.order_matters:
            writer.notes.append(f"options.deterministic = False is left out: {_SAME_ORDER}")
            continue
        enum = _ENUM_OPTIONS.get(name)
        text = f"tf.data.experimental.{enum}.{value}" if enum else repr(value)
        lines.append(f"options.{name} = {text}")
    return lines


def _call(function: str, arguments: list[str]) -> str:
    """A call, on several lines where it is long."""
    text = f"{function}({', '.join(arguments)})"
    if len(text) <= _LONG:
        return text
    return f"{function}(\n" + "".join(f"    {argument},\n" for argument in arguments) + ")"


def _keywords(extra: Mapping[str, str]) -> list[str]:
    return [f"{name}={text}" for name, text in extra.items()]


_SPECIAL: Mapping[str, Callable[[OperatorWriter, Node], dict[str, str]]] = {
    "interleave": OperatorWriter.interleave,
    "shuffle": OperatorWriter.shuffle,
    "batch": OperatorWriter.batch,
    "padded_batch": OperatorWriter.batch,
    "cache": OperatorWriter.cache,
}
"""Operators with an argument that is not written as the script has it."""


class Body:
    """The statements, and the constants they read.

    Raises:
        CannotExpress: an operator or a source has no known form.
    """

    def __init__(
        self,
        parts: StandaloneParts,
        where: Sharding,
        wording: Wording,
        *,
        writer: type[OperatorWriter] = OperatorWriter,
    ) -> None:
        self.parts, self.where, self.wording = parts, where, wording
        self.writer = writer(parts, where, wording)
        self.constants: list[Definition] = []
        self.batch_size: int | None = None  # rows, as the script has them
        self._names: dict[str, str] = {}  # node id -> variable
        operators = list(self._operators())
        options = option_lines(parts.pipeline.options, self.writer)
        output = self._names[parts.pipeline.output.id]
        statements = [*operators, "", *options, f"return {output}.with_options(options)"]
        preamble = list(self._preamble(statements))
        self.lines = [*preamble, "", *statements] if preamble else statements
        if any(SHARED_SEED in line for line in statements):
            self.constants.append(Definition(SHARED_SEED, f"{SHARED_SEED} = 1"))
        if wording.size:
            self.constants.append(Definition("SHARD_BY", f'SHARD_BY = "{where.by}"'))

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.writer.notes))

    def _operators(self) -> Iterator[str]:
        pipeline = self.parts.pipeline
        last = [node for node in pipeline if node.op not in _NOT_WRITTEN][-1]
        for node in pipeline:
            follows = len(node.inputs) == 1 and len(pipeline.consumers(node.inputs[0])) == 1
            name = self._names[node.inputs[0]] if follows else self._new_name()
            self._names[node.id] = name
            above = [self._names[input_name] for input_name in node.inputs]
            if not node.inputs:
                yield from self._source(node, name)
            elif node.op not in _NOT_WRITTEN:
                if node is last and node.op == "prefetch":
                    yield from self._closing(above[0])
                yield f"{name} = {self.writer.expression(node, above)}"
            elif not follows:
                yield f"{name} = {above[0]}"
            if node.op == "assert_cardinality":
                self.writer.notes.append("assert_cardinality is left out: a worker holds a part of the data")
            if node.id in self.where.after:
                yield f"{name} = {name}.shard({self.wording.size}, {self.wording.number})"
        if last.op != "prefetch":
            yield from self._closing(name)
            if self.wording.prefetches:
                self.writer.notes.append(f"a final prefetch is added, {self.wording.why_prefetch}")
                yield f"{name} = {name}.prefetch(tf.data.AUTOTUNE)"

    def _closing(self, name: str) -> Iterator[str]:
        yield from (line.format(dataset=name) for line in self.wording.closing)

    def _new_name(self) -> str:
        made = len(set(self._names.values()))
        return f"dataset_{made + 1}" if made else "dataset"

    def _source(self, node: Node, name: str) -> Iterator[str]:
        source = self.parts.sources.get(node.id)
        if source is None:
            raise CannotExpress(f"The source {node.title} cannot be written down.")
        if source.gathers_rows:
            yield f"{SOURCE_ROWS} = {source.expression}.get_single_element()"
            yield f"{name} = {self.writer.row_numbers()}"
            return
        if not source.yields_file_names:
            yield f"{name} = {self.writer.data(node, source)}"
            return
        files, constant = name.replace("dataset", "files"), name.replace("dataset", "FILES")
        listed = "".join(f"    {string_literal(file)},\n" for file in source.names)
        given = string_literal(source.pattern) if source.pattern else f"[\n{listed}]"
        self.constants.append(Definition(constant, f"{constant} = {given}"))
        yield f"{files} = sorted(tf.io.gfile.glob({constant}))" if source.pattern else f"{files} = {constant}"
        size = self.wording.size
        if size and self.where.by == "file":
            yield f"if len({files}) < {size}:"
            message = f"{{len({files})}} files cannot be divided among {{{size}}} {self.wording.who}s"
            yield f'    raise ValueError(f"{message}")'
        elif source.pattern and self._has_a_partner(source):
            yield f"if len({files}) != {source.count}:  # they are zipped with as many values of the script"
            yield f'    raise ValueError(f"{{len({files})}} files match {{{constant}}}, not {source.count}")'
        elif source.pattern:
            yield f"if not {files}:"
            yield f'    raise FileNotFoundError(f"no file matches {{{constant}}}")'
        if self.wording.mixes_files:
            yield f"{files} = random.sample({files}, len({files}))"
        yield f"{name} = {self.writer.names(files)}"

    def _has_a_partner(self, source: SourceText) -> bool:
        """Whether data of the script belongs to the files by their places, as labels do."""
        others = (other for other in self.parts.sources.values() if not other.yields_file_names)
        zips = any(node.op == "zip" for node in self.parts.pipeline)
        return zips and any(other.count == source.count for other in others)

    def _preamble(self, statements: list[str]) -> Iterator[str]:
        wording = self.wording
        yield from wording.opening
        if self.where.batches:
            size = self.parts.pipeline[self.where.batches[0]].argument("batch_size")
            if not isinstance(size, int):
                raise CannotExpress("The batch size is not known.")
            self.batch_size = size
            text = f"{wording.batch_constant} = {size}  # {wording.batch_comment}"
            self.constants.append(Definition(wording.batch_constant, text))
            if wording.batch_opening:
                yield wording.batch_opening
        if any(f"* {REPLICAS}" in line or f", {REPLICAS})" in line for line in statements):
            yield wording.replicas_opening
