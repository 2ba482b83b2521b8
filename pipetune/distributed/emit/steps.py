"""One operator of a pipeline as a line of a stand-alone module."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pipetune.core.distribution import SourceText, StandaloneParts, string_literal
from pipetune.core.errors import CannotExpress
from pipetune.core.functions import FunctionVariant
from pipetune.core.pipeline import AUTOTUNE, DEFAULT_GRAPH_SEED, Node, Value
from pipetune.distributed.emit.sharding import Sharding
from pipetune.distributed.emit.wording import Wording
from pipetune.model.sharding import READERS
from pipetune.source.function_variants import vectorized_text
from pipetune.source.map_functions import named_callee

SHARED_SEED = "SHARED_SEED"
SOURCE_ROWS = "source_rows"
_LONG = 90
_LEFT_OUT = {
    FunctionVariant.DECODE_AND_CROP: "decodes whole images",
    FunctionVariant.BRANCHING: "computes both sides of tf.where",
    FunctionVariant.ARRAYS: "calls tf.py_function",
}
"""What a function does in a module that names it, in variants that only the patch of its source has."""

ENUM_OPTIONS = {
    "autotune.autotune_algorithm": "AutotuneAlgorithm",
    "experimental_distribute.auto_shard_policy": "AutoShardPolicy",
    "experimental_external_state_policy": "ExternalStatePolicy",
}


class Steps:
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
        if node.op == "concatenate":
            return f"{above[0]}.concatenate({above[1]})"
        if node.op in READERS:
            return _call(f"tf.data.{node.op}", [above[0], *_keywords(extra)])
        writer = _WRITERS.get(node.op)
        if writer is None:
            raise CannotExpress(f"The operator {node.title} has no known distributed form.")
        return _call(f"{above[0]}.{node.op}", [*writer(self, node), *_keywords(extra)])

    def extra(self, node: Node) -> dict[str, str]:
        """Arguments that the pipeline's values leave out, and their expressions."""
        return dict(self.parts.extra_arguments.get(node.id, {}))

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
        if form in _LEFT_OUT:
            self.notes.append(f"{node.title} {_LEFT_OUT[form]} here: this is only changed by the patch")
        return reference

    def parallel(self, node: Node) -> list[str]:
        """`num_parallel_calls` and `deterministic`, as written; above the division the order is kept."""
        found = []
        calls, deterministic = node.argument("num_parallel_calls"), node.argument("deterministic")
        if calls is not None:
            found.append(f"num_parallel_calls={number(calls)}")
        if deterministic is False and node.id in self.sharding.shared:
            self.notes.append(
                f"deterministic=False is left out of {node.op}: what stands above the division must come in "
                "the same order on every worker"
            )
        elif deterministic is not None and calls is not None:
            found.append(f"deterministic={deterministic}")
        return found

    def count(self, node: Node, name: str) -> str:
        """A number of elements; one of whole batches follows the size of those a pipeline makes."""
        text = number(node.argument(name))
        if node.id in self.sharding.below_batch and text not in ("-1", "tf.data.AUTOTUNE", "0"):
            return self.wording.batches_count(node.op, text)
        return text

    def interleave(self, node: Node) -> list[str]:
        cycle = node.argument("cycle_length")
        found = [self.function(node)]
        if cycle not in (None, AUTOTUNE):
            found.append(f"cycle_length={cycle}")
        elif node.id in self.sharding.shared:
            found.append(f"cycle_length={self.parts.processors}")
            self.notes.append(
                f"cycle_length={self.parts.processors} is written out in interleave: its default follows the "
                "number of processors, and the order must be the same on every worker"
            )
        block = node.argument("block_length")
        return found + ([f"block_length={block}"] if block not in (None, 1) else []) + self.parallel(node)

    def shuffle(self, node: Node) -> list[str]:
        found = [self.count(node, "buffer_size")]
        seed = node.argument("seed")
        if self.wording.shuffle_seed:
            found.append(f"seed={self.wording.shuffle_seed}")
        elif isinstance(seed, str):
            graph_seed, operator_seed = seed.split(",")
            found.append(f"seed={operator_seed}")
            if graph_seed != DEFAULT_GRAPH_SEED:
                self.notes.append(
                    f"the order also follows the global seed: call tf.random.set_seed({graph_seed}) first, "
                    "as the script does"
                )
        elif node.id in self.sharding.shared:
            found.append(f"seed={SHARED_SEED}")
            self.notes.append(
                f"{SHARED_SEED} is given to a shuffle that had no seed: it stands above the division and "
                "must shuffle alike on every worker (which also need the same global seed, or none)"
            )
        if node.argument("reshuffle_each_iteration") is False:
            found.append("reshuffle_each_iteration=False")
        return found

    def batch(self, node: Node) -> list[str]:
        final = node.id in self.sharding.batches
        found = [self.wording.batch if final else number(node.argument("batch_size"))]
        if node.argument("drop_remainder"):
            found.append(f"drop_remainder={'not fill' if final and self.wording.fills else 'True'}")
        return found + (self.parallel(node) if node.op == "batch" else [])

    def cache(self, node: Node) -> list[str]:
        name = node.argument("filename")
        if not isinstance(name, str) or not name:
            return []
        who, which, size = self.wording.who, self.wording.number, self.wording.size
        self.notes.append(f"each {who}'s cache file carries the {who}'s number")
        return [f'{string_literal(name)} f"-{{{which}}}-of-{{{size}}}"']


def number(value: Value) -> str:
    return "tf.data.AUTOTUNE" if value == AUTOTUNE else repr(value)


def option_lines(options: Mapping[str, Value], steps: Steps) -> list[str]:
    """Statements that set `tf.data.Options` as the pipeline has them, and turn automatic sharding off."""
    policy = "experimental_distribute.auto_shard_policy"
    lines = ["options = tf.data.Options()"]
    for name, value in {**options, policy: "OFF"}.items():
        if name == "deterministic" and value is False and steps.order_matters:
            steps.notes.append(
                "options.deterministic = False is left out: what stands above the division must come in the "
                "same order on every worker"
            )
            continue
        enum = ENUM_OPTIONS.get(name)
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


def _repeat(_steps: Steps, node: Node) -> list[str]:
    count = node.argument("count")
    return [] if count in (None, AUTOTUNE) else [repr(count)]


def _window(_steps: Steps, node: Node) -> list[str]:
    found = [repr(node.argument("size"))]
    found += [f"{name}={node.argument(name)!r}" for name in ("shift", "stride") if node.argument(name) is not None]
    return found + (["drop_remainder=True"] if node.argument("drop_remainder") else [])


def _function_only(steps: Steps, node: Node) -> list[str]:
    return [steps.function(node)]


def _nothing(_steps: Steps, _node: Node) -> list[str]:
    return []


_WRITERS: Mapping[str, Callable[[Steps, Node], list[str]]] = {
    "map": lambda steps, node: [steps.function(node), *steps.parallel(node)],
    "interleave": Steps.interleave,
    "flat_map": _function_only,
    "filter": _function_only,
    "take_while": _function_only,
    "shuffle": Steps.shuffle,
    "batch": Steps.batch,
    "padded_batch": Steps.batch,
    "cache": Steps.cache,
    "repeat": _repeat,
    "take": lambda steps, node: [steps.count(node, "count")],
    "skip": lambda steps, node: [steps.count(node, "count")],
    "prefetch": lambda steps, node: [steps.count(node, "buffer_size")],
    "shard": lambda steps, node: [repr(node.argument("num_shards")), repr(node.argument("index"))],
    "window": _window,
    "unbatch": _nothing,
    "unique": _nothing,
    "ignore_errors": _nothing,
}
