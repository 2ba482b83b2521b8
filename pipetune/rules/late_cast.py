"""`late-cast`: keep elements small through shuffle, cache and batch; make them larger last."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Rewrite, Silence
from pipetune.core.functions import Cut
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.splitting import behind_batch, late_parts

NAME = "late-cast"


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for found in late_parts(context, rule=NAME, concerns=_widens):
        yield found if isinstance(found, Silence) else behind_batch(found, context, rule=NAME)


def _widens(cut: Cut, whole_bytes: float) -> bool:
    return not cut.why_not and cut.element_bytes is not None and cut.element_bytes < whole_bytes


RULE = Rule(
    name=NAME,
    summary="Casts late: elements go through shuffle, cache and batch as small as they are, bytes in place of floats.",
    legality=(
        "As the second half of split-map: the end of a map's function that treats every number by itself (a cast, a "
        "scale, a sum with a constant) stands behind the batch, and the rest stays. This rule's affair are the cuts "
        "at which an element is smaller than at the end, usually in front of a cast; split-map's are the others. Of "
        "the places where the function could be cut so, the one that hands on fewest bytes is taken. It passes "
        "shuffle, prefetch, take, skip, shard, repeat and a cache in memory, never one in a file, and stays in front "
        "of whatever stands behind the batch. Nothing is proposed where less than a tenth of the input's processor "
        "time is measured to be saved, unless 16 MiB and more of memory are; past a cache, behind which it runs in "
        "every epoch, memory alone counts. A function that can stand behind the batch whole is vectorize-map's."
    ),
    safety=(
        "EXACT where every op that moves gives the same bits on batches. APPROXIMATE with ops whose last bits depend "
        "on how many rows they get at once (exp, log, pow). REORDERS where the map ran unordered and "
        "the last batch may be short."
    ),
    propose=propose,
    turn=2,  # both parts then inherit the values that other rules set for the whole map
)
