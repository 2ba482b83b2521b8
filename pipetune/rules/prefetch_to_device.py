"""`prefetch-to-device`: copy elements to the accelerator before training requests them."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Insert, Rewrite, Safety, Silence
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.prefetch import forbidden_ahead

NAME = "prefetch-to-device"

COPY = "copy_to_device"

_BUFFERS = (1, 2)  # elements held on the device: its memory is scarce, and one is enough to hide the copy


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    if context.device == "cpu":
        return  # there is nowhere to copy to
    output = context.pipeline.output
    why = _forbidden(context)
    if why:
        yield Silence(NAME, output.id, f"Elements are not copied to the device ahead: {why}.")
        return
    copy = Insert(output.id, COPY, f"{COPY}@{output.id}", {"target_device": f"/{context.device.upper()}:0"})
    for size in _BUFFERS:
        buffer = Insert(copy.id, "prefetch", f"prefetch@{copy.id}", {"buffer_size": size})
        held = "1 element" if size == 1 else f"{size} elements"
        yield Rewrite(
            rule=NAME,
            node=output.id,
            safety=Safety.EXACT,
            edits=(copy, buffer),
            summary=f"Copy elements to the device while it works, {held} ahead.",
            group=f"{NAME}@{output.id}",
            notes=(f"It holds {held} in the memory of the device.",),
            only_training=True,
        )


def _forbidden(context: RuleContext) -> str:
    pipeline, output = context.pipeline, context.pipeline.output
    if context.device != "gpu":
        return f"a {context.device.upper()} takes its input through its distribution strategy"
    if any(node.op == COPY for node in pipeline):
        return "the script copies them itself"
    if not context.iterates_itself:
        return "the copy must be the last step, and Keras or a strategy puts steps of its own behind the dataset"
    if "tf.string" in output.spec:
        return "strings stay in host memory"
    if any(word in output.spec for word in ("RaggedTensor", "SparseTensor", "DatasetSpec", "OptionalSpec")):
        return "elements are not plain tensors"
    return forbidden_ahead((*pipeline.upstream(output.id), output), context)


RULE = Rule(
    name=NAME,
    summary="Copies elements to the accelerator ahead of training: copy_to_device, then a small prefetch there.",
    legality=(
        "Only where the target is a GPU and the script iterates the dataset itself: the copy must be the last "
        "step, and `fit` or a distribution strategy put steps of their own behind it. Not for strings, ragged or "
        "sparse elements, nor where the script does it already, nor where running ahead of training would give "
        "other data (see prefetch). What it gains shows in the training step only, and is measured there."
    ),
    safety="EXACT: the same bytes on the device. It costs device memory for the elements it holds.",
    propose=propose,
    turn=-2,  # what later rules append, mainly a prefetch on the host, is then placed before the copy
)
