"""Maps whose function is a conditional expression, `ds.map(f if training else g)`: only the one that ran is changed."""

from __future__ import annotations

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.branches import merged, path_of
from pipetune.source.callables import function_given, replace_function
from pipetune.source.conditions import all_of, negated
from pipetune.source.draft import Draft
from pipetune.source.functions import functions_of
from pipetune.source.purity import calls_something
from pipetune.source.statements import function_around, names_bound, names_read


def under_condition(before: Draft, after: Draft, node: str, *, called: str) -> Draft:
    """Returns `after`, changed only if the map `node` gets the function `called`; otherwise the code runs as before.

    Args:
        called: the name of the Python function, as captured.

    Raises:
        CannotExpress: it is unknown which of the functions ran, or the condition may change within the function
            around the map.
    """
    tree, call = before.find(node)
    argument = function_given(tree, call)
    choice = argument.value if argument is not None else None
    if not isinstance(choice, cst.IfExp):
        return after
    file = before.sites[node].file
    found = [functions_of(before, file, one, called=called)[1] for one in (choice.body, choice.orelse)]
    named = [[one.node.name.value for one in some if isinstance(one.node, cst.FunctionDef)] for some in found]
    if [called] not in named or named[0] == named[1]:
        raise CannotExpress("It is not seen which of two functions the map is given.")
    function = function_around(tree, call)
    if not isinstance(function, cst.FunctionDef):
        raise CannotExpress("The map is given one of two functions, of which one was seen on batches.")
    bound = set().union(*(names_bound(line) for line in function.body.body))
    if calls_something(choice.test) or bound & set(names_read(choice.test)):
        raise CannotExpress("What decides between two functions of the map may be another at another place.")
    first = named[0] == [called]
    test = tree.text(choice.test)
    test = all_of([test]) if first else negated(test)
    chosen = tree.text(choice.body if first else choice.orelse)
    after = replace_function(after, node, chosen)
    return merged(before, after, (file, path_of(tree, function)), condition=test)
