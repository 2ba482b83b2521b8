"""The distributed examples: each runs in the processes it is written for, and `pipetune analyze` supports it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.rivals.workloads import find_workloads
from pipetune.core import restoration, session_file
from pipetune.core.edits import Edit, Insert, Plan, Rewrite, Safety, SetArgument
from pipetune.core.lockstep import MeasureTraining
from pipetune.core.messages import Job, Mode
from pipetune.core.session import PatchResult
from pipetune.core.settings import Settings
from pipetune.source.emit import emit
from pipetune.supervisor.held_scripts import ScriptStarter
from pipetune.supervisor.local_cluster import RunningWorkers, workers_with_servers
from pipetune.supervisor.monitoring import Interrupts, Timeouts
from tests.e2e.command import ROOT, Case, Done, analyze, pipetune
from tests.e2e.forked import Forked, Script
from tests.starting import search_path

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "distributed"
STAND_INS = Path(__file__).with_name("stand_ins")
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/train.py"))
ENVIRONMENT = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
LIMIT_SECONDS = 240

HAS_TFDS = importlib.util.find_spec("tensorflow_datasets") is not None
needs_tfds = pytest.mark.skipif(not HAS_TFDS, reason="tensorflow-datasets is not installed")


def run(*words: str | Path, **variables: str) -> str:
    """The output of a script; fails with its error output."""
    with started(*words, **variables) as process:
        out, errors = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0, errors
    return out


@contextmanager
def started(*words: str | Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A script in a separate process, which is terminated in the end."""
    with subprocess.Popen(
        [sys.executable, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, **variables},
    ) as process:
        try:
            yield process
        finally:
            process.terminate()  # `start.py` then ends its own processes


def losses(printed: str) -> Mapping[str, list[float]]:
    """The mean losses of the epochs, by the process that printed them."""
    found: dict[str, list[float]] = {}
    for who, loss in re.findall(r"(?:([a-z]+ \d), )?epoch \d: (?:\d+ steps, )?mean loss (\d+\.\d{4})", printed):
        found.setdefault(who, []).append(float(loss))
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits, each once."""
    folder = tmp_path_factory.mktemp("distributed") / "data"
    run(EXAMPLES / "make_data.py", "--out", folder, "--small")
    assert len(list(folder.glob("train-*.tfrecord"))) == 8
    return folder


@pytest.fixture(scope="module")
def tfds_data(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The digits, each once, in the format of TensorFlow Datasets; None where it is not installed."""
    if not HAS_TFDS:
        return None
    folder = tmp_path_factory.mktemp("tfds") / "data"
    run(EXAMPLES / "tfds" / "make_data.py", "--out", folder, "--small")
    return folder


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """The address of the dispatcher of a service with two workers."""
    with ExitStack() as servers:

        def serve(*arguments: str) -> subprocess.Popen[str]:
            return servers.enter_context(started(EXAMPLES / "service" / "serve.py", *arguments))

        def said(process: subprocess.Popen[str]) -> str:
            assert process.stdout is not None
            return process.stdout.readline().strip()

        address = said(serve("dispatcher")).removeprefix("dispatcher at ")
        workers = [serve("worker", "--dispatcher", address.rpartition("//")[2]) for _ in range(2)]
        assert all(said(worker).startswith("worker of") for worker in workers)
        yield address


@pytest.fixture(scope="module")
def worked(
    data: Path, tfds_data: Path | None, service: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Forked]:
    """Analyses of the examples without trials; call it with a name."""

    def script(name: str, *arguments: str, distribute: str | None = None, read: Path = data) -> Script:
        return Script(EXAMPLES / name / "train.py", ("--data", str(read), *arguments), distribute)

    scripts = {
        "multiworker": script("multiworker"),
        "service": script("service", "--service", service),
        "horovod": script("horovod", distribute="horovod"),
    }
    if tfds_data is not None:
        scripts["tfds"] = script("tfds", distribute="multiworker", read=tfds_data)
    rank = {"PYTHONPATH": search_path(ROOT, STAND_INS), "HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}
    forked = Forked(tmp_path_factory.mktemp("workers"), scripts, variables=rank)
    yield forked
    forked.close()


NUMBERS = {"map": ("num_parallel_calls", 2), "prefetch": ("buffer_size", 2)}


@pytest.fixture(scope="module")
def patched(worked: Forked, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """An example's script, patched by a plan as trials could find it; trials depend on noise."""

    def script(name: str) -> Path:
        pipeline = worked(name).saved.datasets[0].pipeline
        own = (node for node in pipeline if node.location is not None and not node.location.library)
        edits = [SetArgument(node.id, *NUMBERS[node.op]) for node in own if node.op in NUMBERS]
        ((_, (written, text)),) = emit(pipeline, planned("freeze-autotune", edits[0].node, *edits)).files.items()
        assert written.count("AUTOTUNE") - text.count("AUTOTUNE") == len(edits) > 0
        path = tmp_path_factory.mktemp(name) / "train.py"
        path.write_text(text)
        return path

    return script


def planned(rule: str, node: str, *edits: Edit) -> Plan:
    return Plan("tuned", (Rewrite(rule, node, Safety.EXACT, edits, "What was measured."),))


def test_distributed_examples_are_documented_and_not_in_the_benchmark_suite() -> None:
    assert len(NAMES) == 6 and not {"distributed", *NAMES} & find_workloads().keys()
    told = (EXAMPLES / "README.md").read_text()
    assert all(f"[`{name}`]({name})" in told for name in NAMES)


# -- training, with a patch


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["multiworker", pytest.param("tfds", marks=needs_tfds)])
def test_example_trains_in_lockstep(
    name: str, data: Path, tfds_data: Path | None, patched: Callable[[str], Path]
) -> None:
    folder = tfds_data if name == "tfds" and tfds_data else data
    found = losses(run(EXAMPLES / "start.py", patched(name), "--data", folder, "--steps", "20"))
    assert found["worker 0"] == found["worker 1"], "all replicas of all workers take part in a loss"
    assert found["worker 0"][1] < found["worker 0"][0]


@pytest.mark.exhaustive
def test_parameter_server_example_trains(data: Path) -> None:
    script = EXAMPLES / "parameter_server" / "train.py"
    start = (EXAMPLES / "start.py", "--workers", "1", "--parameter-servers", "1")
    ((first, second),) = losses(run(*start, script, "--data", data, "--steps", "20")).values()
    assert second < first


@pytest.mark.exhaustive
def test_service_example_trains_with_two_workers(data: Path, service: str, patched: Callable[[str], Path]) -> None:
    script = patched("service")
    printed = run(script, "--data", data, "--service", service, "--epochs", "1")
    (steps,) = re.findall(r"(\d+)/\d+ - ", printed)
    assert 28 < int(steps) <= 28 + 8, "1,797 digits in batches of 64; each worker ends with a smaller one"


@pytest.mark.exhaustive
def test_horovod_example_takes_equally_many_steps_in_each_rank(data: Path, patched: Callable[[str], Path]) -> None:
    arguments = (patched("horovod"), "--data", data, "--steps", "40")
    told = {"PYTHONPATH": search_path(STAND_INS), "HOROVOD_SIZE": "2"}
    with ExitStack() as ranks:
        both = [ranks.enter_context(started(*arguments, HOROVOD_RANK=rank, **told)) for rank in "01"]
        printed = [one.communicate(timeout=LIMIT_SECONDS) for one in both]
    for rank, (out, errors) in enumerate(printed):
        assert re.findall(r"rank (\d), epoch \d: (\d+) steps", out) == [(str(rank), "20")] * 2, errors
    assert losses(printed[0][0])["rank 0"] != losses(printed[1][0])["rank 1"], "each reads files of its own"


# -- analyses


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "strategy", "how", "workers"),
    [
        ("multiworker", "MultiWorkerMirroredStrategy", "experimental_distribute_dataset", 1),
        ("horovod", "Horovod", "a pipeline of each process", 2),
    ],
)
@pytest.mark.mission("E1.recognised")
def test_handover_of_each_example_is_recognized(
    worked: Forked, name: str, strategy: str, how: str, workers: int
) -> None:
    done = worked(name)
    assert (done.code, done.summary["status"]) == (0, "done"), done.log
    found = done.first["handover"]
    assert (found["strategy"], found["how"], found["workers"]) == (strategy, how, workers)
    emitted = done.session["distributed"]
    assert emitted is None or emitted["module"], emitted["notes"]


@pytest.mark.exhaustive
def test_service_input_is_recognized(worked: Forked) -> None:
    done = worked("service")
    assert (done.code, done.summary["status"]) == (0, "done"), done.log
    assert "tf.data service" in [node["label"] for node in done.first["pipeline"]["nodes"]]
    assert done.summary["datasets"][0]["rates"]["defaults"]["examples_per_second"] > 0


@pytest.mark.exhaustive
@needs_tfds
@pytest.mark.mission("D1.files", "D3.analysed")
def test_reading_of_tensorflow_datasets_is_reported(worked: Forked) -> None:
    done = worked("tfds")
    assert (done.code, done.summary["status"]) == (0, "done"), done.log
    assert done.first["handover"]["how"] == "distribute_datasets_from_function"
    (note,) = (note for note in done.session["notes"] if note.startswith("tfds.load"))
    assert "reads 8 files in a different order every time, 8 at a time in turns of 16 examples" in note
    refused = " ".join(done.session["distributed"]["notes"])
    assert not done.session["distributed"]["module"] and "input_context already" in refused


@pytest.mark.exhaustive
@pytest.mark.mission("B1.rewrites", "B9.under")
def test_mirrored_example_is_measured_under_its_strategy_and_trains_with_its_patch(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "train.py"
    shutil.copy(EXAMPLES / "mirrored" / "train.py", copy)
    options = ("--budget", "8", "--force", "--json")
    done = analyze(Case(str(copy), ("--data", str(data)), options=options), tmp_path / "run")
    assert (done.code, done.summary["status"]) == (0, "done"), done.err + done.log
    handed = done.first["handover"]
    assert (handed["strategy"], handed["how"]) == ("MirroredStrategy", "Model.fit")
    assert (handed["replicas"], handed["shares"]) == (2, [32, 32])
    assert done.summary["training"]["defaults_step_ms"], "measured through fit, on both replicas"
    if (done.results / "tuned.patch").read_text():  # a plan may not be found in this time
        assert pipetune("apply", done.results).returncode == 0
        assert copy.read_text() != (EXAMPLES / "mirrored" / "train.py").read_text()
    assert "2 replicas" in run(copy, "--data", data, "--epochs", "1")


@pytest.fixture(scope="module")
def served(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The parameter server example, analysed without trials on a cluster started for it."""
    script = str(EXAMPLES / "parameter_server" / "train.py")
    options = ("--no-trials", "--quick", "--json", "--parameter-servers", "1", "--workers", "2")
    return analyze(Case(script, ("--data", str(data)), options=options), tmp_path_factory.mktemp("served") / "run")


@pytest.mark.exhaustive
@pytest.mark.mission("C1.cluster", "C1.recognised")
def test_parameter_server_example_is_analysed_on_its_own_cluster(served: Done) -> None:
    assert (served.code, served.summary["status"]) == (0, "done"), served.err
    found, consumer = served.first["handover"], served.first["profile"]["consumer"]
    assert (found["strategy"], found["how"]) == ("ParameterServerStrategy", "create_per_worker_dataset")
    assert (consumer["kind"], found["workers"]) == ("coordinator", 2)
    assert consumer["real_seconds"] and consumer["bound_seconds"], consumer["why"]
    assert consumer["bound_cpu_seconds"] is None, "the workers' is not known to the chief"
    assert any(note.startswith("A chief, 2 workers and 1 parameter server share") for note in served.session["notes"])
    logs = {path.name for path in served.results.glob("*.log")}
    assert logs == {"chief.log", "worker-0.log", "worker-1.log", "ps-0.log"}


@pytest.mark.exhaustive
@pytest.mark.mission("C1.patched")
def test_patch_for_parameter_servers_is_verified_on_a_separate_cluster(
    served: Done, data: Path, tmp_path: Path
) -> None:
    """The verification after trials have accepted a plan, which in a real run depends on noise."""
    session = session_file.load(served.results / "session.json")
    (dataset,) = session.datasets
    *_, shuffle = (node.id for node in dataset.pipeline if node.op == "shuffle")
    prefetch = Insert(shuffle, "prefetch", f"prefetch@{shuffle}", {"buffer_size": -1})
    plan = planned("prefetch", shuffle, prefetch)
    emission = emit(dataset.pipeline, plan)
    ((script, (_, patched)),) = emission.files.items()
    assert ".shuffle(2048).prefetch(tf.data.AUTOTUNE).repeat()" in patched
    patch = PatchResult(diff="patched", files=tuple(emission.files), covered=emission.covered)
    saved = tmp_path / session_file.SESSION_FILE
    session_file.save(replace(session, datasets=(replace(dataset, plan=plan),), patch=patch), saved)
    job = Job(
        Mode.VERIFY,
        message_descriptor=-1,
        settings=Settings(workers=2, parameter_servers=1),
        script=script,
        arguments=("--data", str(data)),
        directory=str(tmp_path),
        out=str(tmp_path),
        session=str(saved),
    )
    logs = [tmp_path / f"{number}.log" for number in range(4)]

    def processes(job: Job) -> AbstractContextManager[RunningWorkers]:
        return workers_with_servers(job, workers=2, servers=1, logs=logs)

    with Interrupts() as interrupts:
        starter = ScriptStarter(
            job, processes, restoration.journal_folder, Timeouts(), interrupts, lambda _message: None
        )
        with starter.files() as undo, starter.held_script(patched=True, compare=True, undo=undo) as held:
            answer = held.run_to_first_step()
            assert (answer.why, answer.checked.startswith("same operators as the plan")) == ("", True)
            window = held.measure("defaults", MeasureTraining(6))
            assert window.steps >= 6 and window.step_seconds > 0
