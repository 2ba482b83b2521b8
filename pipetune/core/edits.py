"""The closed set of edits, each of which applies itself to a pipeline, and the rewrites and plans made of them."""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from pipetune.core import functions
from pipetune.core.errors import PipetuneError
from pipetune.core.functions import FunctionFacts, FunctionSplit, FunctionVariant, RowGathering, RowWindows
from pipetune.core.operators import operator_facts
from pipetune.core.pipeline import UNKNOWN, Node, Pipeline, Value

ROW_INDEX_BYTES = 8.0  # of one row index, an int64
_ROW_INDEX_SPEC = "TensorSpec(shape=(), dtype=tf.int64, name=None)"


@dataclass(frozen=True)
class SetArgument:
    """Set argument `name` of operator `node` to `value`."""

    node: str
    name: str
    value: Value

    def apply(self, pipeline: Pipeline) -> Pipeline:
        node = _find(pipeline, self.node)
        return _substitute(pipeline, replace(node, arguments={**node.arguments, self.name: self.value}))


@dataclass(frozen=True)
class Insert:
    """Insert a new operator with this `id` directly downstream of `after`."""

    after: str
    op: str
    id: str
    arguments: Mapping[str, Value] = field(default_factory=dict)

    def apply(self, pipeline: Pipeline) -> Pipeline:
        anchor = _find(pipeline, self.after)
        new = Node(id=self.id, op=self.op, inputs=(self.after,), arguments=dict(self.arguments))
        if not operator_facts(self.op).batches:
            new = replace(new, spec=anchor.spec, cardinality=anchor.cardinality, element_bytes=anchor.element_bytes)
        return _insert(pipeline, new, after=self.after)


@dataclass(frozen=True)
class Remove:
    """Remove operator `node`, which has one input."""

    node: str

    def apply(self, pipeline: Pipeline) -> Pipeline:
        rest, node = _take_out(pipeline, self.node)
        if node.function is not None and node.function.first:
            raise PipetuneError(
                f"Operator {node.id} ({node.op}) calls the functions of other maps, which would be lost."
            )
        return rest


@dataclass(frozen=True)
class Move:
    """Move operator `node`, which has one input, to directly downstream of `after`."""

    node: str
    after: str

    def apply(self, pipeline: Pipeline) -> Pipeline:
        rest, node = _take_out(pipeline, self.node)
        moved = _insert(rest, replace(node, inputs=(self.after,)), after=self.after)
        if node.op == "repeat":  # what it has passed has the elements of one pass, or no longer
            before, after = ({one.id for one in place.downstream(node.id)} for place in (pipeline, moved))
            passed = before ^ after
            nodes = tuple(replace(one, cardinality=UNKNOWN) if one.id in passed else one for one in moved)
            moved = replace(moved, nodes=nodes)
        return moved


@dataclass(frozen=True)
class SetOption:
    """Set a field of `tf.data.Options` on the output, by its dotted name ("autotune.cpu_budget")."""

    name: str
    value: Value

    def apply(self, pipeline: Pipeline) -> Pipeline:
        return replace(pipeline, options={**pipeline.options, self.name: self.value})


@dataclass(frozen=True)
class ReplaceFunction:
    """Call the function of operator `node` in another variant; `digest` is that of the function traced in this way."""

    node: str
    form: FunctionVariant
    digest: str
    first: tuple[str, ...] = ()  # ids of fused upstream maps, most upstream first: it calls their functions first

    def apply(self, pipeline: Pipeline) -> Pipeline:
        node = _find(pipeline, self.node)
        if node.function is None:
            raise PipetuneError(f"Operator {node.id} ({node.op}) has no function to replace.")
        _check_fusable(pipeline, node, self.first)
        called = [one.function for one in map(pipeline.__getitem__, self.first) if one.function is not None]
        forms = tuple(one.form for one in (*called, node.function)) if self.first else ()
        function = functions.with_effects_of(node.function, called)
        function = replace(function, form=self.form, digest=self.digest, first=self.first, called_forms=forms)
        return _substitute(pipeline, replace(node, function=function))


@dataclass(frozen=True)
class ReplaceSource:
    """Make `node`, which outputs the rows of arrays, output row indices, and gather the rows after `after`.

    Operators upstream of `node` without another consumer are removed: the gathering also does their work.

    The map that gathers is the operator `gather`; `digest` is that of its traced function. With `windows`, it gathers
    the windows of rows that start at the indices.
    """

    node: str
    after: str
    digest: str
    windows: RowWindows | None = None

    @property
    def gather(self) -> str:
        """The id of the map that gathers the rows."""
        return f"gather@{self.node}"

    def apply(self, pipeline: Pipeline) -> Pipeline:
        rows, anchor = _find(pipeline, self.node), _find(pipeline, self.after)
        if rows.cardinality < 0:
            raise PipetuneError(f"Operator {rows.id} ({rows.op}) has no rows that can be accessed by index.")
        starts = self.windows.window_starts(rows.cardinality) if self.windows is not None else range(rows.cardinality)
        numbers = Node(
            id=rows.id,
            op="range",
            arguments={"start": 0, "stop": starts.stop, "step": starts.step},
            location=rows.location,
            shared=rows.shared,
            spec=_ROW_INDEX_SPEC,
            cardinality=len(starts),
            element_bytes=ROW_INDEX_BYTES,
        )
        gather = Node(
            id=self.gather,
            op="map",
            inputs=(anchor.id,),
            arguments={"num_parallel_calls": None, "deterministic": None},
            function=FunctionFacts(
                name="gather", digest=self.digest, operations=("GatherV2",), form=FunctionVariant.GATHERING
            ),
            spec=anchor.spec,
            cardinality=anchor.cardinality,
            element_bytes=anchor.element_bytes,
            gathering=RowGathering(digest=self.digest, windows=self.windows),
        )
        edited = _insert(_substitute(pipeline, numbers), gather, after=anchor.id)
        reached = {edited.output.id, *(above.id for above in edited.upstream(edited.output.id))}
        return replace(edited, nodes=tuple(node for node in edited if node.id in reached))


HEAD_PREFIX = "head"
"""Prefix of the id of a map that calls the first part of a function."""


@dataclass(frozen=True)
class SplitFunction:
    """Split the function of the map `node`: a new map directly upstream calls the first part, `node` the second."""

    node: str
    cut: FunctionSplit

    @property
    def head(self) -> str:
        """The id of the map that calls the first part."""
        return f"{HEAD_PREFIX}@{self.node}"

    def apply(self, pipeline: Pipeline) -> Pipeline:
        node, cut = _find(pipeline, self.node), self.cut
        if node.op != "map" or node.function is None or node.function.form is not FunctionVariant.AS_TRACED:
            raise PipetuneError(
                f"Operator {node.id} ({node.op}) has no unmodified function that could be split in two."
            )
        part = FunctionFacts(
            name=node.function.name,
            digest=cut.head,
            operations=node.function.operations,
            size=node.function.size,
            reads_files=node.function.reads_files,
            can_raise=node.function.can_raise,
            form=FunctionVariant.HEAD,
            part_of=node.id,
            cut=cut,
        )
        head = replace(
            node,
            id=self.head,
            arguments=dict(node.arguments),
            function=part,
            location=None,
            shared=1,
            spec=cut.spec,
            element_bytes=cut.element_bytes,
        )
        part = replace(
            part,
            digest=cut.tail,
            form=FunctionVariant.TAIL,
            random=node.function.random,
            seeded=node.function.seeded,
            python=node.function.python,
        )
        tail = replace(node, inputs=(head.id,), function=part)
        nodes = ((head, tail) if old.id == node.id else (old,) for old in pipeline.nodes)
        return replace(pipeline, nodes=tuple(one for some in nodes for one in some))


@dataclass(frozen=True)
class ReplaceOperator:
    """Replace `node` by the operator `op`, which gets the function of `node` if there is one."""

    node: str
    op: str
    arguments: Mapping[str, Value] = field(default_factory=dict)

    def apply(self, pipeline: Pipeline) -> Pipeline:
        node = _find(pipeline, self.node)
        location = replace(node.location, method=self.op) if node.location is not None else None
        return _substitute(pipeline, replace(node, op=self.op, arguments=dict(self.arguments), location=location))


Edit = (
    SetArgument | Insert | Remove | Move | SetOption | ReplaceFunction | ReplaceSource | ReplaceOperator | SplitFunction
)


_RESOURCE_OPTIONS = frozenset({"autotune.cpu_budget", "autotune.ram_budget", "threading.private_threadpool_size"})


def named_operators(edit: Edit) -> tuple[str, ...]:
    """Returns the ids of the operators that an edit changes, is placed behind, or fuses."""
    names = [getattr(edit, name) for name in ("node", "after") if hasattr(edit, name)]
    return (*names, *(edit.first if isinstance(edit, ReplaceFunction) else ()))


def renamed(edit: Edit, names: Mapping[str, str]) -> Edit:
    """Returns the same edit of other operators; `names` has the id of each, by that in `edit`."""
    fields = [name for name in ("node", "after", "id") if hasattr(edit, name)]
    changes: dict[str, object] = {name: names[getattr(edit, name)] for name in fields}
    if isinstance(edit, ReplaceFunction):
        changes["first"] = tuple(names[name] for name in edit.first)
    return replace(edit, **changes)  # type: ignore[arg-type]


def inserted_caches(edits: Iterable[Edit]) -> list[Insert]:
    return [edit for edit in edits if isinstance(edit, Insert) and edit.op == "cache"]


def needs_comparison(edits: Iterable[Edit]) -> bool:
    """Whether the edits can change values or order, so that the data must be compared before they are allowed.

    Prefetching, copying to a device, the number of parallel calls (of a function that runs in order), threads and
    budgets cannot.
    """
    return not all(
        (isinstance(edit, Insert) and edit.op in ("prefetch", "copy_to_device"))
        or (isinstance(edit, SetArgument) and edit.name == "num_parallel_calls")
        or (isinstance(edit, SetOption) and edit.name in _RESOURCE_OPTIONS)
        for edit in edits
    )


class Safety(enum.IntEnum):
    """What a rewrite may change, from nothing to values. A plan has the worst class of its rewrites."""

    EXACT = 0  # same elements, same order, same random numbers for each element, in every epoch
    STATISTICAL = 1  # different draws, or a different shuffle order, from the same distribution
    REORDERS = 2  # same elements per epoch, different order or epoch boundaries
    APPROXIMATE = 3  # values differ within a stated tolerance


class Consent(enum.StrEnum):
    """Values of `--allow`."""

    STATISTICAL = "statistical"
    REORDER = "reorder"
    APPROXIMATE = "approximate"
    PYTHON_PARALLEL = "python-parallel"
    PYTHON_CACHE = "python-cache"
    FILE_CACHE = "file-cache"


CONSENT_OF_CLASS = {
    Safety.STATISTICAL: Consent.STATISTICAL,
    Safety.REORDERS: Consent.REORDER,
    Safety.APPROXIMATE: Consent.APPROXIMATE,
}


@dataclass(frozen=True)
class Rewrite:
    """One legal change proposed by a rule: its edits, and what they may change in the data."""

    rule: str
    node: str  # id of the operator it applies to
    safety: Safety
    edits: tuple[Edit, ...]
    summary: str  # what it does, one sentence for the report
    needs: frozenset[Consent] = frozenset()  # consent needed in addition to that for the safety class
    group: str = ""  # rewrites of the same group exclude each other
    reproducible: bool = True  # order and draws stay identical from run to run, if they were before
    epochs_kept: bool = True  # every element occurs once per epoch, and epochs do not mix
    notes: tuple[str, ...] = ()  # for the user; where it needs approval, the last one says what is approved
    predicted_bytes: float = 0.0  # additional memory
    epochs_read: float | None = None  # in which what it stores is filled or read; None: it stores nothing, or unknown
    only_training: bool = False  # its gain is visible only in a training step, not in the input alone

    @property
    def consents(self) -> frozenset[Consent]:
        """All consent that it may need: its own, and that for its safety class."""
        own = CONSENT_OF_CLASS.get(self.safety)
        return self.needs if own is None else self.needs | {own}

    @property
    def named(self) -> tuple[str, ...]:
        """Ids of the operators that its edits change, are placed behind, or fuse, in the order of the edits."""
        return tuple(name for edit in self.edits for name in named_operators(edit))

    @functools.cached_property
    def key(self) -> str:
        """Identifies the rewrite within a session."""
        values: list[object] = []
        for edit in self.edits:
            match edit:
                case SetArgument(value=value) | SetOption(value=value):
                    values.append(value)
                case Insert(after=after, arguments=arguments):
                    values += [*([after] if after != self.node else []), *arguments.values()]
                case ReplaceOperator(arguments=arguments):
                    values += arguments.values()
                case Move(after=after):
                    values.append(after)
        return f"{self.rule}@{self.node}" + ("=" + ",".join(map(str, values)) if values else "")


@dataclass(frozen=True)
class NoProposal:
    """Why a rule does not propose a rewrite for an operator where one might be expected."""

    rule: str
    node: str
    why: str


@dataclass(frozen=True)
class Plan:
    """Rewrites applied together, in order."""

    name: str
    rewrites: tuple[Rewrite, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        return tuple(edit for rewrite in self.rewrites for edit in rewrite.edits)

    @property
    def title(self) -> str:
        """Its rules, each once; its name if it has none."""
        rules = dict.fromkeys(rewrite.rule.removeprefix("baseline-") for rewrite in self.rewrites)
        return " + ".join(rules) or self.name

    @functools.cached_property
    def key(self) -> str:
        """Identifies the plan within a session by its rewrites, independent of its name."""
        return "+".join(rewrite.key for rewrite in self.rewrites) or self.name

    @property
    def safety(self) -> Safety:
        """The worst safety class of its rewrites; EXACT without rewrites."""
        return max((rewrite.safety for rewrite in self.rewrites), default=Safety.EXACT)

    @property
    def only_training(self) -> bool:
        """Whether part of its gain is visible only in a training step."""
        return any(rewrite.only_training for rewrite in self.rewrites)

    def with_rewrite(self, rewrite: Rewrite) -> Plan:
        """Returns the plan with `rewrite` added; it replaces a rewrite of the same group."""
        kept = tuple(old for old in self.rewrites if not rewrite.group or old.group != rewrite.group)
        return Plan(self.name, (*kept, rewrite))


def apply_edits(pipeline: Pipeline, edits: Iterable[Edit]) -> Pipeline:
    """Returns the pipeline after applying `edits` in order.

    Raises:
        PipetuneError: an edit names an operator that does not exist, or one that it cannot be applied to.
    """
    for edit in edits:
        pipeline = edit.apply(pipeline)
    return pipeline


_FUSABLE = (FunctionVariant.AS_TRACED, *functions.GRAPH_EDITS)


def _check_fusable(pipeline: Pipeline, node: Node, first: tuple[str, ...]) -> None:
    """Raises if functions cannot be fused: an earlier edit changed how one is called, or what is between them.

    A function whose graph was edited is called as the others are.
    """
    run = [*(_find(pipeline, name) for name in first), node]
    if node.function is not None and node.function.first:
        raise PipetuneError(f"Operator {node.id} ({node.op}) already has other functions fused into it.")
    if not first:
        return
    if any(lower.inputs != (upper.id,) for upper, lower in pairwise(run)):
        raise PipetuneError(f"There is an operator between {node.id} ({node.op}) and the maps to be fused with it.")
    if any(one.function is None or one.function.form not in _FUSABLE for one in run):
        raise PipetuneError(f"A function to be fused into {node.id} ({node.op}) was already changed by another edit.")


def _find(pipeline: Pipeline, node_id: str) -> Node:
    if node_id not in pipeline:
        raise PipetuneError(f"The edit names operator {node_id}, which the pipeline does not have.")
    return pipeline[node_id]


def _substitute(pipeline: Pipeline, node: Node) -> Pipeline:
    return replace(pipeline, nodes=tuple(node if old.id == node.id else old for old in pipeline.nodes))


def _insert(pipeline: Pipeline, new: Node, *, after: str) -> Pipeline:
    _find(pipeline, after)
    nodes: list[Node] = []
    for node in pipeline.nodes:
        if node.id != new.id and after in node.inputs:
            node = replace(node, inputs=tuple(new.id if name == after else name for name in node.inputs))
        nodes.append(node)
        if node.id == after:
            nodes.append(new)
    return replace(pipeline, nodes=tuple(nodes))


def _take_out(pipeline: Pipeline, node_id: str) -> tuple[Pipeline, Node]:
    node = _find(pipeline, node_id)
    if len(node.inputs) != 1:
        raise PipetuneError(
            f"Operator {node_id} ({node.op}) has {len(node.inputs)} inputs and cannot be removed or moved."
        )
    (above,) = node.inputs
    nodes = tuple(
        replace(other, inputs=tuple(above if name == node_id else name for name in other.inputs))
        for other in pipeline.nodes
        if other.id != node_id
    )
    return replace(pipeline, nodes=nodes), node
