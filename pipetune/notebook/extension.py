"""`%load_ext pipetune`: registers the magic, and records from then on which calls in cells create datasets.

TensorFlow is not imported here; recording begins once the notebook imports it.
"""

from __future__ import annotations

import sys
import warnings
from types import ModuleType
from typing import Any

from pipetune.capture.patches import ImportWatcher
from pipetune.core import requirements


class Extension:
    """What is installed in a shell, and how to take it out again."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._watcher = ImportWatcher(["tensorflow"], self._record)
        self._recorder: Any = None

    def load(self) -> None:
        """Installs everything."""
        self._shell.register_magic_function(pipetune, magic_kind="cell", magic_name="pipetune")
        self._shell.events.register("pre_run_cell", self._on_cell)
        self._watcher.__enter__()

    def unload(self) -> None:
        """Takes everything out."""
        self._watcher.__exit__()
        self._shell.events.unregister("pre_run_cell", self._on_cell)
        self._shell.magics_manager.magics["cell"].pop("pipetune", None)
        if self._recorder is not None:
            self._recorder.__exit__(None, None, None)

    def _record(self, _tensorflow: ModuleType) -> None:
        from pipetune.pipelines.call_sites import Recorder

        self._recorder = Recorder().__enter__()

    def _on_cell(self, info: Any) -> None:
        """Called before a cell runs: what it created when it ran before does not count any more.

        A notebook names cells by their text alone; the name in a terminal also has a number, and is never used again.
        """
        if self._recorder is not None:
            from pipetune.pipelines import call_sites

            call_sites.forget(self._shell.compile.get_code_name(info.raw_cell, info.raw_cell, 0))


_loaded: Extension | None = None


def load(shell: Any) -> None:
    """Loads the extension; once, however often it is called."""
    global _loaded
    if _loaded is None:
        _loaded = Extension(shell)
        _loaded.load()
    if "tensorflow" in sys.modules:
        print("Cells that build datasets are recorded from now on. Run those that have run already again.")


def unload(_shell: Any) -> None:
    """Takes the extension out."""
    global _loaded
    if _loaded is not None:
        _loaded.unload()
        _loaded = None


def pipetune(line: str, cell: str) -> object:
    """Finds what holds the input of a training cell back, and proves what makes it faster.

    %%pipetune [--budget SECONDS] [--allow CONSENT] [NAME]

    The cell runs until its first training step: `fit` of Keras, or a loop over a tf.data.Dataset. The rest of it does
    not run. What the measured steps change is put back. The session is shown, and bound to NAME (`_pipetune`).

    --budget SECONDS  what the measurements may take, from the first training step on (60)
    --allow CONSENT   consent beyond the default: statistical, reorder, approximate, python-parallel, python-cache,
                      file-cache; several with commas
    """
    warning = requirements.require_tensorflow()
    if warning:
        warnings.warn(warning, stacklevel=2)
    from pipetune.notebook import magic

    return magic.run(line, cell)
