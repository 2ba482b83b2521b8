"""`pipetune` and `python -m pipetune`."""

from __future__ import annotations

import sys

from pipetune.core.errors import PipetuneError
from pipetune.core.requirements import require_python


def main() -> int:
    """Runs one command and returns its exit code; says so where Python is too old for the rest to be imported."""
    try:
        require_python()
    except PipetuneError as error:
        print(f"pipetune: {error}", file=sys.stderr)
        return error.exit_code
    from pipetune.cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
