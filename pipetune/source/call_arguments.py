"""The arguments of a call: adding, changing, removing one, their values as source, and the calls' parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import libcst as cst
from libcst.metadata import Assignment, BaseAssignment, QualifiedNameSource

from pipetune.core.errors import CannotExpress
from pipetune.core.operators import OPERATORS, READERS, operator_facts
from pipetune.core.pipeline import AUTOTUNE, Value
from pipetune.source.draft import Splice
from pipetune.source.source_files import NEWLINE, line_end
from pipetune.source.syntax_tree import SyntaxTree

METHODS: Mapping[str, tuple[str, ...]] = {
    **{op: facts.parameter_names for op, facts in OPERATORS.items() if facts.method},
    **dict.fromkeys(("apply", "bucket_by_sequence_length", "rejection_resample", "sparse_batch"), ()),
}
"""Methods of a dataset (TensorFlow 2.21, `Dataset` in dataset_ops.py), with the parameters of those that patches write;
each also takes `name` last."""

CONSTRUCTORS: Mapping[str, tuple[str, ...]] = {
    **{op: OPERATORS[op].parameter_names for op in READERS},
    "list_files": ("file_pattern", "shuffle", "seed"),
    **dict.fromkeys(
        ("CsvDataset", "SqlDataset", "choose_from_datasets", "from_generator", "from_list", "from_tensor_slices",
         "from_tensors", "load", "make_csv_dataset", "random", "range", "sample_from_datasets", "zip"), ()),
}  # fmt: skip
"""Calls that make a dataset and are not methods of one, with the parameters of those that patches write."""

RETURNS_ONE_DATASET = frozenset(
    {*METHODS, *CONSTRUCTORS, "audio_dataset_from_directory", "image_dataset_from_directory",
     "text_dataset_from_directory", "timeseries_dataset_from_array"}
)  # fmt: skip
"""Calls that return one dataset (two with `subset="both"`, see `call_moves.py`)."""

TAKES_FUNCTION = frozenset(
    {"apply", "bucket_by_sequence_length", "rejection_resample"}
    | {op for op in METHODS.keys() & OPERATORS.keys() if OPERATORS[op].takes_function}
)


def parameters(op: str) -> tuple[str, ...]:
    """Returns the parameter names of a call in positional order; none if the call is not known."""
    return METHODS.get(op) or CONSTRUCTORS.get(op, ())


_ROOTS = ("tensorflow", "tensorflow.compat.v2")  # the same API
_AUTOTUNE = frozenset(f"{root}.{name}" for root in _ROOTS for name in ("data.AUTOTUNE", "data.experimental.AUTOTUNE"))


def write_value(tree: SyntaxTree, call: cst.Call, value: Value, *, op: str, name: str) -> str:
    """Returns a value as source text at the place of `call`.

    Args:
        call: the call that gets the value as an argument, or to which the call that gets it is appended.
        op, name: the operator and its argument; they determine whether -1 means AUTOTUNE.
    """
    autotuned = any(one.autotuned for one in operator_facts(op).parameters if one.name == name)
    if value == AUTOTUNE and autotuned:
        return autotune_text(tree, call)
    if isinstance(value, str) and tree.code.count(b'"') > tree.code.count(b"'"):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def write_call(tree: SyntaxTree, call: cst.Call, arguments: Mapping[str, Value], *, op: str) -> str:
    """Returns `op(...)` with `arguments`, to be appended to `call`: the leading one by position, the others by name.

    Args:
        arguments: values by name; those that are None or a default are omitted.

    Raises:
        CannotExpress: the operator needs more than plain values, or is not known.
    """
    if op == "copy_to_device":  # not a dataset method but a function for `apply`
        function = needed_tensorflow_text(tree, call, "data.experimental.copy_to_device", "the copy to the device")
        device = write_value(tree, call, arguments["target_device"], op=op, name="target_device")
        return f"apply({function}({device}))"
    facts = operator_facts(op)
    given = {name: value for name, value in arguments.items() if value is not None}
    if not facts.method or not given.keys() <= set(facts.parameter_names):
        raise CannotExpress(f"pipetune cannot write the call {op}({', '.join(given)}).")
    if any(one.required and not one.plain for one in facts.parameters):
        raise CannotExpress(f"{op} needs an argument that is not a plain value, which pipetune cannot write.")
    texts = {
        one.name: write_value(tree, call, given[one.name], op=op, name=one.name)
        for one in facts.parameters
        if given.get(one.name, one.default) != one.default
    }
    return f"{op}({', '.join(facts.argument_list(texts))})"


def autotune_text(tree: SyntaxTree, node: cst.CSTNode) -> str:
    """Returns the text for AUTOTUNE at `node`: a name that the file bound to it, else through TensorFlow's alias.

    A file that does not import TensorFlow gets the constant's documented value, -1: an import added for one name would
    be a larger change than the requested one, and could run before code that must come first.
    """
    for statement in tree.nodes(cst.Assign):
        match statement:
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value):
                assignments = tree.scope(node)[name] if tree.text(value).endswith("AUTOTUNE") else ()
                if assignments and all(_is_autotune(tree, one, at=node) for one in assignments):
                    return name
    return tensorflow_text(tree, node, "data.AUTOTUNE") or "-1"


def tensorflow_text(tree: SyntaxTree, node: cst.CSTNode, path: str) -> str | None:
    """Returns the text that `tensorflow.<path>` is reached by at `node`, or None if the file has no name for it."""
    parts, names = path.split("."), [f"{root}.{path}" for root in _ROOTS]
    candidates = [
        ".".join([name, *parts[skipped:]])
        for skipped in range(len(parts), -1, -1)  # the shortest text first
        for name in _imported_names(tree)
    ]
    return next((one for one in candidates if tree.means_import(one, *names, at=node)), None)


def needed_tensorflow_text(tree: SyntaxTree, node: cst.CSTNode, path: str, user: str) -> str:
    """Returns the same text, which `user` needs.

    Raises:
        CannotExpress: the file has no name for it.
    """
    found = tensorflow_text(tree, node, path)
    if found is None:
        raise CannotExpress(f"The file does not import TensorFlow under a name, which {user} needs.")
    return found


def tensorflow_name(tree: SyntaxTree, node: cst.CSTNode, user: str) -> str:
    """Returns the file's name for TensorFlow, which `user` needs.

    Raises:
        CannotExpress: it has none.
    """
    if (name := module_text(tree, node, *_ROOTS)) is None:
        raise CannotExpress(f"The file does not import TensorFlow under a name, which {user} needs.")
    return name


def module_text(tree: SyntaxTree, node: cst.CSTNode, *modules: str) -> str | None:
    """Returns the name of one of some modules at `node`, or None if the file has none for it."""
    return next((name for name in _imported_names(tree) if tree.means_import(name, *modules, at=node)), None)


def _imported_names(tree: SyntaxTree) -> list[str]:
    """Local names of every import statement, in the order written."""
    aliases = tree.nodes(cst.ImportAlias)
    return list(dict.fromkeys(one.evaluated_alias or one.evaluated_name.partition(".")[0] for one in aliases))


def _is_autotune(tree: SyntaxTree, assignment: BaseAssignment, *, at: cst.CSTNode) -> bool:
    """Whether an assignment above a node, which runs whenever the node does, binds a name to AUTOTUNE."""
    value = tree.assigned_value(assignment)
    if value is None or tree.end(value) > tree.start(at):
        return False
    blocks = [one for one in tree.ancestors(value) if isinstance(one, cst.BaseSuite)]
    if not set(blocks).issubset(tree.ancestors(at)):
        return False
    names = assignment.scope.get_qualified_names_for(tree.text(value))
    return bool(names) and all(name.name in _AUTOTUNE and name.source is QualifiedNameSource.IMPORT for name in names)


_CLASSES = ("Dataset", "DatasetV2", "DatasetV1")
_MAX_NAMES = 8  # names followed from one assignment to the next, until the class is found


def is_unbound(tree: SyntaxTree, call: cst.Call) -> bool:
    """Whether a call calls a dataset method through the class."""
    match call.func:
        # The qualified name of a call is that of its function: `TFRecordDataset(files).map(f)` is no call of the class.
        case cst.Attribute(value=cst.Name() | cst.Attribute() as owner, attr=cst.Name(value=method)):
            return method in METHODS and method not in CONSTRUCTORS and _is_dataset_class(tree, owner, _MAX_NAMES)
    return False


def method_arguments(tree: SyntaxTree, call: cst.Call) -> Sequence[cst.Arg]:
    """Returns the arguments of a method call, without the dataset that comes first in a call through the class."""
    return call.args[1:] if is_unbound(tree, call) else call.args


def receiver_of(tree: SyntaxTree, call: cst.Call) -> cst.BaseExpression | None:
    """Returns the dataset whose method is called; None if the call does not show it or is not a method call."""
    if is_unbound(tree, call):
        first = call.args[0] if call.args else None
        return first.value if first is not None and first.keyword is None and not first.star else None
    return call.func.value if isinstance(call.func, cst.Attribute) else None


def _is_dataset_class(tree: SyntaxTree, owner: cst.Name | cst.Attribute, names: int) -> bool:
    """Whether an expression is a dataset class: an imported one, or a name that was assigned one."""
    if imported := tree.imported_names(owner):
        last = next(iter(imported)).rpartition(".")[2]
        return last in _CLASSES or (last.endswith("Dataset") and last in CONSTRUCTORS)
    if isinstance(owner, cst.Attribute):
        return tree.text(owner).endswith("data.Dataset")  # of TensorFlow, under a name that is not an import
    values = map(tree.assigned_value, tree.assignments(owner))
    given = [value for value in values if isinstance(value, cst.Name | cst.Attribute)]
    return names > 0 and any(_is_dataset_class(tree, value, names - 1) for value in given)


def named_arguments(call: cst.Call) -> dict[str, cst.Arg]:
    """Returns the arguments that a call passes by name."""
    return {one.keyword.value: one for one in call.args if one.keyword is not None}


def arguments_by_name(arguments: Sequence[cst.Arg], names: tuple[str, ...]) -> dict[str, cst.Arg] | None:
    """Returns the arguments of a call by parameter name; None if there are starred or other ones.

    Args:
        names: parameters in their order, which may be passed by position or by name.
    """
    given: dict[str, cst.Arg] = {}
    for position, argument in enumerate(arguments):
        if argument.star or (argument.keyword is None and position >= len(names)):
            return None
        name = argument.keyword.value if argument.keyword is not None else names[position]
        if name not in names:
            return None
        given[name] = argument
    return given


def argument_text(tree: SyntaxTree, argument: cst.Arg) -> str:
    """Returns the value of an argument as written, including parentheses around it."""
    text = tree.text(argument)
    return text.partition("=")[2].strip() if argument.keyword is not None else text


def set_argument(tree: SyntaxTree, call: cst.Call, *, op: str, name: str, text: str | None) -> list[Splice]:
    """Returns the changes that set argument `name` of a call to `text`, or remove it if `text` is None.

    Args:
        op: name of the called operator, which determines the order of its parameters.
        text: the value as Python source.

    Raises:
        CannotExpress: a starred argument may already pass the parameter, or the operator has no such parameter.
    """
    position = _position(tree, call, op=op, name=name)
    if position is None:
        if text is not None and name not in parameters(op):
            raise CannotExpress(f"pipetune knows no parameter {name} of {op}.")
        if any(argument.star and not _excludes_name(tree, argument, name) for argument in call.args):
            raise CannotExpress(f"The call has starred arguments, which may already set {name}.")
        return add_argument(tree, call, f"{name}={text}") if text is not None else []
    argument = call.args[position]
    if text is not None:
        start, _ = tree.whole_span(argument.value)
        return [Splice(start, tree.end(argument), text.encode())]
    if argument.keyword is None and position + 1 < len(call.args) and call.args[position + 1].keyword is None:
        return [Splice(tree.start(argument), tree.end(argument), b"None")]  # positional arguments follow it
    return [_remove_argument(tree, call, position)]


def _position(tree: SyntaxTree, call: cst.Call, *, op: str, name: str) -> int | None:
    """Index of the argument that is passed for parameter `name`; None if there is none."""
    names = parameters(op)
    own = method_arguments(tree, call)
    first = len(call.args) - len(own)
    starred = False
    for index, argument in enumerate(own):
        starred = starred or argument.star != ""
        if argument.keyword is not None:
            if argument.keyword.value == name:
                return first + index
        elif not starred and index < len(names) and names[index] == name:
            return first + index
    return None


def _excludes_name(tree: SyntaxTree, argument: cst.Arg, name: str) -> bool:
    """Whether `**options` certainly has no key `name`: a dict with visible keys, assigned once and only unpacked."""
    assignment = tree.only_assignment(argument.value)
    if argument.star != "**" or not isinstance(assignment, Assignment):
        return False
    given = [tree.parent(access.node) for access in assignment.references]
    if any(not isinstance(one, cst.Arg) or one.star != "**" for one in given):
        return False
    match tree.assigned_value(assignment):  # None where the dict has two names, as in `options = more = {}`
        case cst.Dict(elements=elements):
            keys = [one.key for one in elements if isinstance(one, cst.DictElement)]
            texts = [key.evaluated_value for key in keys if isinstance(key, cst.SimpleString)]
            return len(texts) == len(elements) and name not in texts
        case cst.Call(func=cst.Name(value="dict"), args=arguments):
            return all(one.keyword is not None and one.keyword.value != name for one in arguments)
    return False


def add_argument(tree: SyntaxTree, call: cst.Call, text: str) -> list[Splice]:
    """Returns the changes that append the argument `text` to a call, formatted like the others.

    Raises:
        CannotExpress: the last argument is a generator expression without parentheses, which must be the only one.
    """
    if not call.args:
        opened = tree.start(call.whitespace_before_args)
        return [Splice(opened, opened, text.encode())]
    last = call.args[-1]
    if isinstance(last.value, cst.GeneratorExp) and not last.value.lpar:
        raise CannotExpress("A call with a generator expression without parentheses allows no second argument.")
    end, gap = tree.end(last), _gap_before(tree, call, len(call.args) - 1)
    return append_item(tree.code, gap, end, tree.end(call) - 1, comma=isinstance(last.comma, cst.Comma), text=text)


def append_item(code: bytes, gap: bytes, end: int, close: int, *, comma: bool, text: str) -> list[Splice]:
    """Returns the changes that append `text` to arguments or parameters, formatted like the last one.

    Args:
        gap: what is between the last item and the one before it, or the opening parenthesis.
        end: the offset at which the last item ends.
        close: that of the closing parenthesis.
        comma: whether a comma follows the last item.
    """
    newlines = list(NEWLINE.finditer(gap))
    if not newlines:  # on the line of the last item; a trailing comma then follows the new one
        return [Splice(end, end, b", " + text.encode())]
    line_break = gap[newlines[-1].start() :]  # newline and indentation of the last item
    tail = code[end:close]
    in_tail = list(NEWLINE.finditer(tail))
    # After the comments behind and below the last item, or directly after its comma.
    place = end + (in_tail[-1].start() if in_tail else tail.find(b",") + 1)
    new_line = Splice(place, place, line_break + text.encode() + (b"," if comma else b""))
    return [new_line] if comma else [Splice(end, end, b","), new_line]


def _remove_argument(tree: SyntaxTree, call: cst.Call, position: int) -> Splice:
    argument = call.args[position]
    start, end = tree.start(argument), tree.end(argument)
    after = tree.end(argument.comma) if isinstance(argument.comma, cst.Comma) else end
    gap = _gap_before(tree, call, position)
    newlines = list(NEWLINE.finditer(gap))
    if newlines:
        rest = tree.code[after : line_end(tree.code, after)]
        if not rest.strip() or rest.lstrip().startswith(b"#"):
            # Alone on its line: the whole line is removed, including its comment.
            return Splice(start - len(gap) + newlines[-1].start(), after + len(rest), b"")
    if position + 1 == len(call.args):
        return Splice(start - len(gap), end, b"") if position else Splice(start, after, b"")
    following = tree.start(call.args[position + 1])
    return Splice(start, after if NEWLINE.search(tree.code, after, following) else following, b"")


def _gap_before(tree: SyntaxTree, call: cst.Call, position: int) -> bytes:
    """Returns the bytes between the previous argument (or the opening parenthesis) and an argument, with the comma."""
    start = tree.start(call.args[position])
    if position:
        return tree.code[tree.end(call.args[position - 1]) : start]
    return tree.code[tree.start(call.whitespace_before_args) : start]
