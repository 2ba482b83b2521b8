"""`from-generator`: a generator that goes through lists, as a map over their entries."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import ReplaceGenerator, Rewrite, Safety, SetArgument, Silence
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.legality import described, order_asked_for
from pipetune.rules.parallel_map import candidate_numbers
from pipetune.rules.pricing import buffer_bytes
from pipetune.rules.python_ceiling import ceiling

NAME = "from-generator"


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for node in context.pipeline:
        if node.op != "from_generator":
            continue
        why = _obstacle(node, context)
        if why:
            yield Silence(NAME, node.id, f"Kept as it is: {why}. {ceiling(node, context)}")
        else:
            for number in candidate_numbers(context.cores):
                yield _rewrite(node, context, number)


def _obstacle(node: Node, context: RuleContext) -> str:
    """Why the generator cannot be a map, as the end of a sentence; empty where it can."""
    if node.function is None or node.function.entries is None:
        return "it is not known what its generator does"
    if node.function.entries.why_not:
        return node.function.entries.why_not
    if any(other.op == "ignore_errors" for other in context.pipeline.downstream(node.id)):
        return "ignore_errors below drops what fails, and behind an error a generator has ended while a map goes on"
    return ""


def _rewrite(node: Node, context: RuleContext, number: int) -> Rewrite:
    assert node.function is not None and node.function.entries is not None
    known = node.function.entries
    in_order = order_asked_for(context)
    notes = [
        "The lists are read once, when the dataset is made; the generator read them anew in each epoch. The file of "
        "the script was looked through, and nothing in it changes them later.",
        "TensorFlow then knows how many elements there are (`cardinality`), which it does not of a generator.",
    ]
    if not in_order:
        notes.append("`deterministic=False` is set: elements may overtake each other, which a generator's cannot.")
    calls = "as many calls as AUTOTUNE finds useful" if number == AUTOTUNE else f"{number} calls"
    return Rewrite(
        rule=NAME,
        node=node.id,
        safety=Safety.EXACT if in_order else Safety.STATISTICAL,
        edits=(
            ReplaceGenerator(node.id, known.digest, known.count, known.dtypes),
            SetArgument(node.id, "num_parallel_calls", number),
        ),
        summary=(
            f"Let {described(node)} be a map over the {known.count:,} entries of its lists, in {calls} at a time: "
            "the same ops, without Python."
        ),
        group=f"{NAME}@{node.id}",
        reproducible=in_order,
        notes=tuple(notes),
        predicted_bytes=buffer_bytes(context, node.id, context.cores if number == AUTOTUNE else number),
    )


RULE = Rule(
    name=NAME,
    summary="Makes of a generator that goes through lists and loads each entry with TensorFlow a map over the entries.",
    legality=(
        "The generator is a function without arguments that holds one loop, through a list or a zip of lists that "
        "have names and entries of one kind (texts or numbers), and yields once for each entry. Its loop holds "
        "plain assignments, keeps nothing from one entry to the next, and calls TensorFlow alone: NumPy, PIL, open, "
        "the script's own objects and everything whose value could change between calls rule it out, and so do "
        "random ops, variables and side effects. The text of the script must show that nothing changes the lists "
        "after the dataset is made. Elements must be declared as the generator declares them. Never above "
        "ignore_errors. Everything else is left alone, and the most its Python code can give is said: never more "
        "parallel calls of code that takes turns at the interpreter's lock."
    ),
    safety=(
        "EXACT: the same ops on the same entries in the same order, compared value by value on real elements. "
        "STATISTICAL where the script sets `deterministic=False`: elements may then overtake each other."
    ),
    propose=propose,
)
