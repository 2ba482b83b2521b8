"""`python far_task.py FOLDER SCENARIO`: the command of a task of a cluster that exists, the one `TF_CONFIG` names."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pipetune.core.cluster import place_in
from pipetune.core.settings import Settings
from pipetune.supervisor.analysis import analyze
from pipetune.supervisor.limits import Limits
from pipetune.supervisor.request import Request
from pipetune.supervisor.results import Results
from pipetune.supervisor.target import Target
from tests.supervisor.test_analysis import Recorder

if __name__ == "__main__":
    folder, scenario = Path(sys.argv[1]), sys.argv[2]
    place = place_in(os.environ)
    assert place is not None
    results = folder / "out" if place.first else folder / "out" / f"{place.kind}-{place.index}"
    request = Request(
        Target(script="/somewhere/train.py", arguments=(scenario,), directory=str(folder)),
        Settings(),
        Results(results),
        limits=Limits(start=30, phases={}, other=30, ending=5, grace=5, meeting=30),
        worker_command=(sys.executable, str(Path(__file__).with_name("fake_cluster.py"))),
        place=place,
    )
    screen = Recorder()
    analysis = analyze(request, screen=screen)
    patch = analysis.session.patch
    found = {
        "detail": analysis.session.status_detail,
        "last_lines": analysis.last_lines,
        "verified": patch is not None and patch.verified,
        "warned": screen.warned,
        "hint": analysis.failed.hint if analysis.failed else "",
        "notes": analysis.session.notes,
    }
    (folder / f"found-{place.number}.json").write_text(json.dumps(found))
    sys.exit(analysis.exit_code)
