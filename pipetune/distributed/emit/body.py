"""The statements of `dataset_fn`: the operators of a pipeline in order, divided where the plan says."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.distribution import Definition, SourceText, StandaloneParts, string_literal
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Node
from pipetune.distributed.emit.sharding import Sharding
from pipetune.distributed.emit.steps import SHARED_SEED, SOURCE_ROWS, Steps, option_lines
from pipetune.distributed.emit.wording import REPLICAS, Wording

_LEFT_OUT = frozenset({"with_options", "assert_cardinality"})


class Body:
    """The statements, and the constants they read.

    Raises:
        CannotExpress: an operator or a source has no known form.
    """

    def __init__(
        self, parts: StandaloneParts, where: Sharding, wording: Wording, *, steps: type[Steps] = Steps
    ) -> None:
        self.parts, self.where, self.wording = parts, where, wording
        self.steps = steps(parts, where, wording)
        self.constants: list[Definition] = []
        self.batch_size: int | None = None  # rows, as the script has them
        self._names: dict[str, str] = {}  # node id -> variable
        operators = list(self._operators())
        options = option_lines(parts.pipeline.options, self.steps)
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
        return tuple(dict.fromkeys(self.steps.notes))

    def _operators(self) -> Iterator[str]:
        pipeline = self.parts.pipeline
        last = [node for node in pipeline if node.op not in _LEFT_OUT][-1]
        for node in pipeline:
            follows = len(node.inputs) == 1 and len(pipeline.consumers(node.inputs[0])) == 1
            name = self._names[node.inputs[0]] if follows else self._new_name()
            self._names[node.id] = name
            above = [self._names[input_name] for input_name in node.inputs]
            if not node.inputs:
                yield from self._source(node, name)
            elif node.op not in _LEFT_OUT:
                if node is last and node.op == "prefetch":
                    yield from self._closing(above[0])
                yield f"{name} = {self.steps.expression(node, above)}"
            elif not follows:
                yield f"{name} = {above[0]}"
            if node.op == "assert_cardinality":
                self.steps.notes.append("assert_cardinality is left out: a worker holds a part of the data")
            if node.id in self.where.after:
                yield f"{name} = {name}.shard({self.wording.size}, {self.wording.number})"
        if last.op != "prefetch":
            yield from self._closing(name)
            if self.wording.prefetches:
                self.steps.notes.append(f"a final prefetch is added, {self.wording.why_prefetch}")
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
            yield f"{name} = {self.steps.row_numbers()}"
            return
        if not source.yields_file_names:
            yield f"{name} = {self.steps.data(node, source)}"
            return
        files, constant = name.replace("dataset", "files"), name.replace("dataset", "FILES")
        self.constants.append(Definition(constant, f"{constant} = {_file_text(source)}"))
        yield f"{files} = sorted(tf.io.gfile.glob({constant}))" if source.pattern else f"{files} = {constant}"
        size = self.wording.size
        if size and self.where.by == "file":
            yield f"if len({files}) < {size}:"
            message = f"{{len({files})}} files cannot be divided among {{{size}}} {self.wording.who}s"
            yield f'    raise ValueError(f"{message}")'
        elif source.pattern:
            yield f"if not {files}:"
            yield f'    raise FileNotFoundError(f"no file matches {{{constant}}}")'
        if self.wording.mixes_files:
            yield f"{files} = random.sample({files}, len({files}))"
        yield f"{name} = {self.steps.names(files)}"

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


def _file_text(source: SourceText) -> str:
    if source.pattern:
        return string_literal(source.pattern)
    return "[\n" + "".join(f"    {string_literal(name)},\n" for name in source.names) + "]"
