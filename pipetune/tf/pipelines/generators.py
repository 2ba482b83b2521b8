"""Generators that go through lists: whether the same could be a map over the entries, and that map."""

from __future__ import annotations

import inspect
import linecache
import textwrap
import weakref
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.errors import CannotReplay
from pipetune.core.functions import Entries
from pipetune.core.generators import ListedGenerator, NotListed, read_generator
from pipetune.core.listed_names import Made, may_change
from pipetune.core.pipeline import Node, Pipeline
from pipetune.tf import private
from pipetune.tf.pipelines import functions, live
from pipetune.tf.pipelines.only_tensorflow import codes, foreign, value_of

REPLAYS = True  # datasets made below this module are pipetune's, not the user's

_WIDE = "int64"
_NAME = "_"  # of the function that closes over what the generator does


@dataclass(frozen=True)
class OverEntries:
    """A generator as a source of entries and the function of one."""

    lists: tuple[Any, ...]
    load: Callable[..., Any]
    dtypes: tuple[str, ...]  # per list; "" for what TensorFlow makes of it

    def entries(self) -> Any:
        """The dataset of the entries."""
        given = [
            tf.constant(one, dtype) if dtype else one for one, dtype in zip(self.lists, self.dtypes, strict=True)
        ]
        return tf.data.Dataset.from_tensor_slices(tuple(given) if len(given) > 1 else given[0])


def with_answers(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """`pipeline` (that of `source`, told other things or not), told which generators could be maps over entries."""
    told = {
        node.id: replace(node.function, entries=ask(source, node))
        for node in pipeline
        if node.op == "from_generator" and node.function is not None
    }
    return pipeline.with_functions(told)


def ask(source: live.LivePipeline, node: Node) -> Entries:
    """What the generator `node` would be as a map over the entries of its lists, or why it cannot."""
    dataset = source.datasets[node.id]
    try:
        found = over_entries(dataset)
        _refuse_changing(dataset, node)
        mapped = found.entries().map(found.load)
    except NotListed as reason:
        return Entries(why_not=str(reason))
    except Exception as error:  # the user's code, called with tensors
        return Entries(why_not=f"what it does with an entry does not run on tensors ({type(error).__name__})")
    if mapped.element_spec != dataset.element_spec:
        return Entries(why_not=f"its elements would be declared {mapped.element_spec}, not {dataset.element_spec}")
    facts = functions.read_facts(mapped._map_func)
    if not facts.stateless:
        return Entries(why_not="what it does with an entry draws random numbers, runs Python or keeps something")
    return Entries(digest=facts.digest, count=len(found.lists[0]), dtypes=found.dtypes)


_known: MutableMapping[Any, OverEntries] = weakref.WeakKeyDictionary()
"""By dataset: the text of a generator is read once, as the file may be patched later."""


def replace_generator(dataset: Any, digest: str) -> OverEntries:
    """The lists and the function of a `from_generator` dataset, for the edit that has this digest.

    Raises:
        CannotReplay: its generator does something else than the one that the edit was made for.
    """
    refused = "The generator does something else than the one the plan was made for."
    try:
        found = over_entries(dataset)
        traced = found.entries().map(found.load)
    except NotListed as reason:
        raise CannotReplay(refused, hint=f"{reason}.") from reason
    if functions.read_facts(traced._map_func).digest != digest:
        raise CannotReplay(refused)
    return found


def over_entries(dataset: Any) -> OverEntries:
    """The lists and the function of a `from_generator` dataset.

    Raises:
        NotListed: its generator does something else.
    """
    if dataset not in _known:
        _known[dataset] = _over_entries(dataset)
    return _known[dataset]


def _over_entries(dataset: Any) -> OverEntries:
    generator = private.generator_of(dataset)
    if not isinstance(generator, FunctionType):
        raise NotListed("its generator is no plain function without arguments")
    listed = read_generator(_text_of(generator))
    lists = tuple(_checked(value_of(generator, name), name) for name in listed.lists)
    if len({len(one) for one in lists}) != 1:
        raise NotListed("its lists are not of one length")
    load = _function_of(generator, listed)
    other = foreign(load)
    if other:
        raise NotListed(f"its loop uses {other}, which is not TensorFlow")
    return OverEntries(lists, load, _dtypes(lists, dataset.element_spec))


def _text_of(generator: FunctionType) -> str:
    """The text of a generator, where what stands in its file now is what was run."""
    try:
        text = inspect.getsource(generator)
        module = compile(_file_of(generator), generator.__code__.co_filename, "exec", dont_inherit=True)
    except (OSError, TypeError, SyntaxError, ValueError):
        raise NotListed("the text of its generator is not at hand") from None
    if generator.__code__ not in codes(module):
        raise NotListed("its file was changed since it was run")
    return text


def _file_of(generator: FunctionType) -> str:
    return "".join(linecache.getlines(generator.__code__.co_filename, generator.__globals__))


def _checked(value: Any, name: str) -> Any:
    """A list whose entries are texts or numbers of one kind."""
    if isinstance(value, np.ndarray):
        if value.ndim == 1 and len(value) and value.dtype.kind in "USifb":
            return value
    elif isinstance(value, list | tuple) and value:
        kinds = {type(entry) for entry in value}
        if len(kinds) == 1 and issubclass(kinds.pop(), str | bytes | bool | int | float):
            return value
    raise NotListed(f"{name} is no list of texts or numbers")


def _dtypes(lists: tuple[Any, ...], spec: Any) -> tuple[str, ...]:
    """Python's whole numbers become int32; where the generator declares int64 and no int32, they are given as that."""
    declared = {getattr(part, "dtype", None) for part in tf.nest.flatten(spec)}
    wide = tf.int64 in declared and tf.int32 not in declared
    return tuple(_WIDE if wide and isinstance(one, list | tuple) and type(one[0]) is int else "" for one in lists)


def _function_of(generator: FunctionType, listed: ListedGenerator) -> FunctionType:
    """The function of one entry, in the generator's own names: its globals, and the cells it closes over."""
    code = _compiled(listed.function, listed.name, generator)
    cells = dict(zip(generator.__code__.co_freevars, generator.__closure__ or (), strict=True))
    made = FunctionType(code, generator.__globals__, listed.name, None, tuple(cells[name] for name in code.co_freevars))
    made.__module__ = generator.__module__
    return made


def _compiled(definition: str, name: str, generator: FunctionType) -> CodeType:
    """The code of a function that stands where the generator does, so that it reads the same names."""
    free = generator.__code__.co_freevars
    text = f"def {_NAME}({', '.join(free)}):\n{textwrap.indent(definition, '    ')}\n    return {name}\n"
    file = f"<{name} for one entry, of {generator.__code__.co_filename}:{generator.__code__.co_firstlineno}>"
    # AutoGraph reads the text of what it converts; without a time of change it is never looked for on disk.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    around = next(one for one in compile(text, file, "exec").co_consts if isinstance(one, CodeType))
    return next(one for one in around.co_consts if isinstance(one, CodeType) and one.co_name == name)


def _refuse_changing(dataset: Any, node: Node) -> None:
    """Refuses lists that the script may change later: a generator would see that in its next epoch.

    Raises:
        NotListed: a list may change, or it is not known where the dataset was made.
    """
    generator = private.generator_of(dataset)
    place = node.location
    if place is None or not place.exact:
        raise NotListed("it is not known where in the source it stands")
    lines, first = inspect.getsourcelines(generator)
    made = Made(place.line, range(first, first + len(lines)))
    text = _file_of(generator)
    for name in read_generator("".join(lines)).lists:
        if may_change(text, name, made):
            raise NotListed(f"{name} may be changed after the dataset is made, which a generator would see")
