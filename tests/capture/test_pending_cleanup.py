"""The sentence about code of the script that does not run when its process ends."""

from __future__ import annotations

import atexit
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture import pending_cleanup
from pipetune.capture.patches import Patches

CASES = {
    "a module": ("look()", "its remaining code did not run"),
    "one of each": ("try:\n    with open(__file__):\n        look()\nfinally:\n    pass",
        "its remaining code, 1 finally block and 1 with block did not run"),
    "several": ("with open(__file__), open(__file__):\n    with open(__file__):\n        look()",
        "its remaining code and 2 with blocks did not run"),
    "in a finally block itself": ("try:\n    pass\nfinally:\n    look()", "its remaining code did not run"),
    "in an except clause": ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    look()\nfinally:\n    pass",
        "its remaining code and 1 finally block did not run"),
    "in a group of exceptions": ("try:\n    look()\nexcept* ValueError:\n    pass\nfinally:\n    pass",
        "its remaining code and 1 finally block did not run"),
    "asynchronous": ("import asyncio\nasync def main():\n    async with asyncio.Lock():\n        look()\n"
        "asyncio.run(main())", "its remaining code and 1 with block did not run"),
    "without finally": ("try:\n    look()\nexcept ValueError:\n    pass", "its remaining code did not run"),
    "in a comprehension": ("def train():\n    with open(__file__):\n        sum(len([look()]) for _ in 'a')\ntrain()",
        "its remaining code and 1 with block did not run"),
    "behind a block": ("with open(__file__):\n    pass\nlook()", "its remaining code did not run"),
    "of the functions that it stands in, and no others": (
        "def train():\n    try:\n        look()\n    finally:\n        pass\n"
        "def other():\n    with open(__file__):\n        return 1\n"
        "with open(__file__):\n    other()\n    train()",
        "its remaining code, 1 finally block and 1 with block did not run",
    ),
    "defined in a block, called behind it": ("with open(__file__):\n    def train():\n        look()\ntrain()",
        "its remaining code did not run"),
}  # fmt: skip


def run(source: str, folder: Path, handlers: int = 0) -> tuple[str, str]:
    """The sentence at the script's call of `look`, and the file and line of that call."""
    path, said = folder / "train.py", list[str]()
    path.write_text(source)
    space = {
        "look": lambda: said.append(pending_cleanup.describe_pending(sys._getframe(1), handlers)),
        "__file__": str(path),
    }
    thread = threading.Thread(target=exec, args=(compile(source, str(path), "exec"), space))  # no frame of ours above
    thread.start()
    thread.join()
    return said[0], f"train.py:{source[: source.rindex('look()')].count(chr(10)) + 1}"


@pytest.mark.parametrize(("source", "words"), CASES.values(), ids=CASES)
def test_open_blocks_are_counted(source: str, words: str, tmp_path: Path) -> None:
    said, place = run(source, tmp_path)
    assert said == f"The script was ended at {place}, without its clean-up: {words}."


def test_atexit_handlers_are_counted(tmp_path: Path) -> None:
    said, _ = run("look()", tmp_path, handlers=3)
    assert said.endswith("its remaining code and 3 atexit handlers did not run.")
    assert pending_cleanup.describe_pending(None, 1).endswith("without its clean-up: 1 atexit handler did not run.")
    assert pending_cleanup.describe_pending(None, 0) == ""


def test_atexit_handlers_of_libraries_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[Any] = []
    monkeypatch.setattr(atexit, "register", lambda function, *_args, **_kwargs: registered.append(function) or function)
    handlers, patches = pending_cleanup.ExitHandlers(), Patches()
    handlers.watch(patches)

    @atexit.register
    def save() -> None: ...

    library = compile("import atexit\natexit.register(print)", f"{Path(pytest.__file__).parent}/some.py", "exec")
    exec(library, {})
    patches.undo_all()
    atexit.register(print)
    assert registered == [save, print, print] and handlers.count == 1
