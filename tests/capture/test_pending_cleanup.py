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

REST, OPEN = "its remaining code", "with open(__file__):\n"
CASES = {
    "a module": ("look()", REST),
    "one of each": (f"try:\n    {OPEN}        look()\nfinally:\n    pass", f"{REST}, 1 finally block and 1 with block"),
    "several": (f"with open(__file__), open(__file__):\n    {OPEN}        look()", f"{REST} and 2 with blocks"),
    "in a finally block itself": ("try:\n    pass\nfinally:\n    look()", REST),
    "in an except clause": ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    look()\nfinally:\n    pass",
        f"{REST} and 1 finally block"),
    "in a group of exceptions": ("try:\n    look()\nexcept* ValueError:\n    pass\nfinally:\n    pass",
        f"{REST} and 1 finally block"),
    "asynchronous": ("import asyncio\nasync def main():\n    async with asyncio.Lock():\n        look()\n"
        "asyncio.run(main())", f"{REST} and 1 with block"),
    "without finally": ("try:\n    look()\nexcept ValueError:\n    pass", REST),
    "in a comprehension": (f"def train():\n    {OPEN}        sum(len([look()]) for _ in 'a')\ntrain()",
        f"{REST} and 1 with block"),
    "behind a block": (f"{OPEN}    pass\nlook()", REST),
    "of the functions that it stands in, and no others": ("def train():\n    try:\n        look()\n    finally:\n"
        f"        pass\ndef other():\n    {OPEN}        return 1\n{OPEN}    other()\n    train()",
        f"{REST}, 1 finally block and 1 with block"),
    "defined in a block, called behind it": (f"{OPEN}    def train():\n        look()\ntrain()", REST),
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
    assert said == f"The script was ended at {place}, without its clean-up: {words} did not run."


def test_atexit_handlers_are_counted(tmp_path: Path) -> None:
    said, _ = run("look()", tmp_path, handlers=3)
    assert said.endswith("its remaining code and 3 atexit handlers did not run.")
    assert pending_cleanup.describe_pending(None, 1).endswith("without its clean-up: 1 atexit handler did not run.")
    assert pending_cleanup.describe_pending(None, 0) == ""


def test_atexit_handlers_of_libraries_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[Any] = []
    monkeypatch.setattr(atexit, "register", lambda function, *_args, **_kwargs: registered.append(function) or function)
    patches = Patches()
    handlers = pending_cleanup.ExitHandlers(patches)

    @atexit.register
    def save() -> None: ...

    library = compile("import atexit\natexit.register(print)", f"{Path(pytest.__file__).parent}/some.py", "exec")
    exec(library, {})
    patches.close()
    atexit.register(print)
    assert registered == [save, print, print] and handlers.count == 1
