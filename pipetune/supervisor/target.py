"""The program to run: a script or a module, with its arguments."""

from __future__ import annotations

import os
import re
import shlex
import tokenize
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pipetune.core.errors import PipetuneError, invalid_source

_HOROVOD = re.compile(r"^\s*(import|from)\s+horovod\b", re.MULTILINE)


@dataclass(frozen=True)
class Target:
    """A script (absolute path) or a module (as after `python -m`), its arguments and its working directory."""

    script: str = ""
    module: str = ""
    arguments: tuple[str, ...] = ()
    directory: str = ""

    @property
    def name(self) -> str:
        """The name used for its results: "train" for train.py and for package.train."""
        return Path(self.script).stem if self.script else self.module.rpartition(".")[2]

    def imports_horovod(self) -> bool:
        """Whether the source of the script itself imports Horovod; False for a module, which is not searched."""
        return bool(_HOROVOD.search(self._source()))

    def misplaced(self, options: Collection[str]) -> tuple[str, ...]:
        """Returns which of `options` the script is passed although its source does not mention their names.

        `--help` is left out, as every parser knows it. Nothing is returned for a module, which is not searched.
        """
        words = dict.fromkeys(word.partition("=")[0] for word in self.arguments)
        given = [one for one in words if one in options and one.startswith("--") and one != "--help"]
        source = self._source().replace("-", "_") if given else ""
        return tuple(one for one in given if source and one[2:].replace("-", "_") not in source)

    def _source(self) -> str:
        try:
            return Path(self.script).read_text(errors="replace") if self.script else ""
        except OSError:
            return ""


def script_target(script: str, arguments: tuple[str, ...]) -> Target:
    """Returns the target for the script at `script`, run in the current directory.

    Raises:
        PipetuneError: there is no such script, or it is not valid Python.
    """
    path = Path(os.path.abspath(script))
    if path.is_dir() and (path / "__main__.py").is_file():
        path = path / "__main__.py"  # as `python FOLDER` does
    if path.is_dir():
        scripts = [os.path.normpath(os.path.join(script, file.name)) for file in sorted(path.glob("*.py"))]
        few = f", such as {', '.join(scripts[:3])}" if scripts else ""
        raise PipetuneError(f"{script} is a folder.", hint=f"Pass the training script in it{few}.")
    if not path.is_file():
        raise PipetuneError(f"There is no script {script}.", hint="Pass the training script, or a module with -m.")
    if path.suffix == ".ipynb":
        raise PipetuneError(
            f"{script} is a notebook.",
            hint="In it, %load_ext pipetune and put %%pipetune above the cell that trains. Or convert it to a script: "
            f"jupyter nbconvert --to script {shlex.quote(script)}",
        )
    try:
        with tokenize.open(path) as stream:
            text = stream.read()
    except OSError as error:
        raise PipetuneError(f"{script} cannot be read: {error.strerror}.") from error
    except (SyntaxError, UnicodeDecodeError):
        text = "\0"
    if "\0" in text:
        raise PipetuneError(f"{script} is not Python source.", hint="Pass the training script, or a module with -m.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python prints them when it runs the script
        try:
            compile(text, script, "exec", dont_inherit=True)  # errors are known at once, before TensorFlow is started
        except (SyntaxError, ValueError) as error:
            raise invalid_source(script, error) from error
    return Target(script=str(path), arguments=arguments, directory=os.getcwd())


def module_target(module: str, arguments: tuple[str, ...]) -> Target:
    """Returns the target for the module `module`, run in the current directory.

    Raises:
        PipetuneError: the name is not a valid module name.
    """
    if module.endswith(".py") or not all(part.isidentifier() for part in module.split(".")):
        raise PipetuneError(
            f"{module} is not the name of a module.", hint="Write it as after `python -m`: package.module, without .py."
        )
    return Target(module=module, arguments=arguments, directory=os.getcwd())
