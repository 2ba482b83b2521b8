"""A process that runs cases: requests on standard input, answers on the original standard output, a line each.

TensorFlow keeps everything it has traced, so workers are ended after some hundred cases; and a hanging case is ended
with its worker. The output of user functions is kept out of the answers.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
import tempfile
import warnings
from typing import Any

_PR_SET_PDEATHSIG = 1


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # ends with the supervisor, even if that is killed
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.get_logger().setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="soundness-") as folder:
        os.chdir(folder)
        for line in sys.stdin:
            print(json.dumps(_answered(json.loads(line), folder), default=str), file=answers, flush=True)


def _answered(request: dict[str, Any], folder: str) -> dict[str, Any]:
    from tests.soundness import adapter, families

    with adapter.without(request.get("without", "none")) as switched:
        match request["do"]:
            case "case":
                given = request.get("given", {})
                case = families.run(request["family"], request["seed"], request["index"], folder=folder, **given)
                found = case.packed()
            case "reduce":
                found = families.reduced(request["case"], request["rules"], request["kind"], folder=folder)
            case other:
                raise ValueError(other)
    return {**found, "switched": switched}


if __name__ == "__main__":
    main()
