"""`python remote_task.py FOLDER SCENARIO`: the command of one task of the cluster in `TF_CONFIG`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pipetune.core.cluster import task_from_environment
from pipetune.core.settings import Settings
from pipetune.supervisor.analysis import analyze
from pipetune.supervisor.monitoring import Timeouts
from pipetune.supervisor.request import AnalysisRequest
from pipetune.supervisor.results_folder import Results
from pipetune.supervisor.target import Target
from tests.supervisor.test_analysis import Recorder

if __name__ == "__main__":
    folder, scenario = Path(sys.argv[1]), sys.argv[2]
    place = task_from_environment(os.environ)
    assert place is not None
    results = folder / "out" if place.is_coordinator else folder / "out" / f"{place.kind}-{place.index}"
    request = AnalysisRequest(
        Target(script="/somewhere/train.py", arguments=(scenario,), directory=str(folder)),
        Settings(),
        Results(results),
        limits=Timeouts(start=30, phases={}, other_phases=30, shutdown=5, grace=5, meeting=30),
        worker_command=(sys.executable, str(Path(__file__).with_name("fake_cluster.py"))),
        place=place,
    )
    screen = Recorder()
    analysis = analyze(request, screen=screen)
    patch = analysis.session.patch
    found = {
        "detail": analysis.session.status_detail,
        "last_lines": analysis.log_tail,
        "verified": patch is not None and patch.verified,
        "warned": screen.warned,
        "hint": analysis.failure.hint if analysis.failure else "",
        "notes": analysis.session.notes,
    }
    (folder / f"found-{place.worker_index}.json").write_text(json.dumps(found))
    sys.exit(analysis.exit_code)
