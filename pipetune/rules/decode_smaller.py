"""Advice to decode JPEGs that are only resized at 1/2, 1/4 or 1/8 of their scale. It makes no edit.

The decoder averages pixels before the resize samples them, so the model sees slightly different images, which is for
the author of the model to decide.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.functions import FunctionForm
from pipetune.core.pipeline import Node
from pipetune.core.profile import Finding
from pipetune.rules.base import RuleContext
from pipetune.rules.decode_and_crop import LEAST_SAVED
from pipetune.rules.legality import described, reaches_outside


def smaller_decoding(context: RuleContext) -> Iterator[Finding]:
    """Yields the measured saving of decoding at a smaller scale, with the call to write and the error of the images.

    Yields nothing if it was not measured, or saves less than a tenth of the function's cost.
    """
    for node in context.pipeline:
        measured = context.profile.operator(node.id) if context.profile is not None else None
        share = measured.shrinking_share if measured is not None else None
        if share is None or share > 1 - LEAST_SAVED or not _may_decode_smaller(node, context):
            continue
        assert node.function is not None and node.function.shrinking is not None
        found, place = node.function.shrinking, node.location
        yield Finding(
            code="decode-smaller",
            message=(
                f"{described(node)} decodes JPEGs at full scale and only resizes them. At 1/{found.ratio} of their "
                f"rows and columns it costs {1 - share:.0%} less."
            ),
            hint=(
                f"tf.io.decode_jpeg(contents, ratio={found.ratio}). It is another image: pixels of the resized ones "
                f"were {found.mean_apart:.1%} of the greatest value apart on average and {found.most_apart:.1%} at "
                f"most ({found.seen}), so that pipetune does not change it. Every image looked at is at least "
                f"{found.ratio} times as large as what it is resized to; a smaller one would lose more."
            ),
            file=place.file if place is not None else None,
            line=place.line if place is not None else None,
        )


def _may_decode_smaller(node: Node, context: RuleContext) -> bool:
    """Whether only the pixel values of the resized image would change."""
    function = node.function
    if node.op != "map" or function is None or function.shrinking is None or function.shrinking.why_not:
        return False
    if function.form is not FunctionForm.AS_TRACED or reaches_outside(node):
        return False
    # ignore_errors drops damaged images, and decoding at another scale may not detect the damage.
    return not any(other.op == "ignore_errors" for other in context.pipeline.downstream(node.id))
