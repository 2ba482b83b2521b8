"""The kinds of stand-alone modules: one file per kind, found by scanning this folder.

`parameter_server.py` is the kind `parameter-server` and holds it as `KIND`. There is no list to keep.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipetune.distributed.emit.kind import Kind


def names() -> tuple[str, ...]:
    """The names of all kinds; imports none of them."""
    return tuple(sorted(found.name.replace("_", "-") for found in pkgutil.iter_modules(__path__)))


def find(name: str) -> Kind:
    """The kind called `name`.

    Raises:
        CannotExpress: there is none; the hint lists those there are.
    """
    from pipetune.core.errors import CannotExpress

    if name not in names():
        raise CannotExpress(f"No stand-alone form is known for {name!r}.", hint=f"Known: {', '.join(names())}.")
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    kind: Kind = module.KIND
    return kind
