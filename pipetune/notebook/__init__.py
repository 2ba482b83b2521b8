"""The IPython extension: `%load_ext pipetune` registers the magic `%%pipetune`, and records from then on which calls in
cells create datasets.

TensorFlow is not imported here; recording begins once the notebook imports it.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from types import ModuleType
from typing import Any

from pipetune.capture.patches import ImportWatcher
from pipetune.core import requirements

_installed: contextlib.ExitStack | None = None
"""Takes out of the shell what is installed there."""


def load(shell: Any) -> None:
    """Loads the extension; once, however often it is called."""
    global _installed
    if _installed is None:
        _installed = contextlib.ExitStack()
        _install(shell, _installed)
    if "tensorflow" in sys.modules:
        print("Cells that build datasets are recorded from now on. Run those that have run already again.")


def unload(_shell: Any) -> None:
    global _installed
    if _installed is not None:
        _installed.close()
        _installed = None


def _install(shell: Any, installed: contextlib.ExitStack) -> None:
    recording = False

    def record(_tensorflow: ModuleType) -> None:
        nonlocal recording
        from pipetune.pipelines.call_sites import Recorder

        installed.enter_context(Recorder())
        recording = True

    def on_cell(info: Any) -> None:
        """Called before a cell runs: what it created when it ran before does not count any more.

        A notebook names cells by their text alone; the name in a terminal also has a number, and is never used again.
        """
        if recording:
            from pipetune.pipelines import call_sites

            call_sites.forget(shell.compile.get_code_name(info.raw_cell, info.raw_cell, 0))

    shell.register_magic_function(pipetune, magic_kind="cell", magic_name="pipetune")
    installed.callback(shell.magics_manager.magics["cell"].pop, "pipetune", None)
    shell.events.register("pre_run_cell", on_cell)
    installed.callback(shell.events.unregister, "pre_run_cell", on_cell)
    installed.enter_context(ImportWatcher(["tensorflow"], record))


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
