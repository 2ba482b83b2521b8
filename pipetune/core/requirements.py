"""What pipetune needs and pip does not install with it: a TensorFlow, whichever build the user trains with.

Read before anything else is imported, also by a Python that is too old for the rest.
"""

from __future__ import annotations

import re
import sys

from pipetune.core.errors import PipetuneError

OLDEST_PYTHON = (3, 11)
OLDEST_TENSORFLOW = (2, 18)
NEWEST_TESTED_TENSORFLOW = (2, 21)
"""By `make test-versions`; what it saw is in docs/versions.md."""


def require_python() -> None:
    """Raises a PipetuneError if this Python is too old."""
    if sys.version_info < OLDEST_PYTHON:
        raise PipetuneError(
            f"pipetune needs Python {_text(OLDEST_PYTHON)} or later; this is Python {_text(sys.version_info[:3])}.",
            hint="Install pipetune and TensorFlow into an environment with a newer Python.",
        )


def require_tensorflow() -> str:
    """Looks for TensorFlow without importing it.

    Returns:
        What to warn of, in one line; "" if pipetune was tested with this version.

    Raises:
        PipetuneError: there is none, or it is too old.
    """
    build, version = _tensorflow()
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:  # built from source, without metadata: what is wrong with it shows when it is imported
        return ""
    release = (int(found[1]), int(found[2]))
    if release < OLDEST_TENSORFLOW:
        raise PipetuneError(
            f"pipetune needs TensorFlow {_text(OLDEST_TENSORFLOW)} or later; {build} {version} is installed.",
            hint=f'pip install --upgrade "{build}>={_text(OLDEST_TENSORFLOW)}"',
        )
    if release > NEWEST_TESTED_TENSORFLOW:
        newest = _text(NEWEST_TESTED_TENSORFLOW)
        return f"{build} {version} is newer than TensorFlow {newest}, the newest that pipetune was tested with."
    return ""


def _tensorflow() -> tuple[str, str]:
    """Returns the TensorFlow that is imported or would be; raises without one.

    That is the name by which pip knows it (tensorflow, tensorflow-cpu, tf-nightly, ...), and its version, "" if it
    does not say.
    """
    from importlib import metadata, util  # here, because --help needs none of it

    builds = metadata.packages_distributions().get("tensorflow", ())
    build = next(iter(builds), "tensorflow").replace("_", "-")  # wheels of tensorflow-cpu say tensorflow_cpu
    if imported := sys.modules.get("tensorflow"):
        return build, str(getattr(imported, "__version__", ""))
    spec = util.find_spec("tensorflow")
    if spec is None or spec.origin is None:  # without an origin it is some folder of that name
        raise PipetuneError(
            f"There is no TensorFlow in the environment of pipetune, {sys.prefix}.",
            hint='pip install "pipetune[tensorflow]", or install pipetune where the TensorFlow is that you train with.',
        )
    return build, metadata.version(build) if builds else ""


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
