"""The promises of pipetune for each statement of its source documents; `test_mission` checks them.

A test that would fail if a promise were broken is marked with it: `@pytest.mark.mission("B3.idle")`.
"""

from __future__ import annotations

from collections.abc import Mapping

PROMISES: Mapping[str, str] = {
    # A: the tf.data performance guide
    "A1.sum-maximum": "a step costs the sum of its parts in turns, the maximum when they overlap; both are predicted",
    "A1.shown": "the report shows step, input and wait",
    "A2.inserted": "a final prefetch is inserted and sized, also between two stages that each bind",
    "A3.curve": "the number of parallel calls is picked from what was measured on this machine",
    "A4.fusion": "map-and-batch fusion is recognised, and made possible where it pays",
    "A5.sweep": "readers are swept against the storage; bytes per second reached and needed",
    "A6.vectorized": "a cheap map goes behind the batch, where it gives equal results there",
    "A7.cache": "a cache is put where it is legal, and priced in bytes",
    "A7.elsewhere": "what does not fit is priced as a file or a saved dataset",
    "A8.buffers": "maps that make elements larger go behind the buffers, priced in bytes",
    "A9.orders": "the order of shuffle and repeat is offered both ways, and what each does to epochs is said",
    # B: the distributed input guide
    "B1.reads": "what is handed to experimental_distribute_dataset is analysed, without what that adds",
    "B1.rewrites": "it is rewritten in the script's own source, and trains with the patch",
    "B1.prefetch": "what the strategy prefetches behind it is known",
    "B2.examples": "6/4 on 2, 4/4 on 5 and 8/4 on 3 replicas, as in the guide",
    "B2.said": "how a global batch is divided is said, and warned of where it is uneven",
    "B2.memory": "memory grows with the replicas, and is predicted so",
    "B3.examples": "twelve elements in two files and in one, by FILE, DATA and OFF, as in the guide",
    "B3.wrong": "the wrong policy is detected, and why TensorFlow chose it",
    "B3.waste": "what is read for what is used, in elements and bytes",
    "B3.idle": "workers that idle or run out early, and too few files, are named",
    "B3.right": "the emitted form divides by file where it can, else by element; TensorFlow's own sharding is off",
    "B4.function": "a dataset_fn(input_context) is emitted from a plain pipeline: sharded, per replica, prefetched",
    "B4.trains": "a strategy trains on it, and every element comes once",
    "B5.for": "a distributed dataset consumed by for",
    "B5.next": "by iter and next",
    "B5.optional": "by get_next_as_optional",
    "B5.function": "inside a tf.function",
    "B6.spec": "element_spec is kept, or what changes is said, and whether an input_signature takes it",
    "B7.empty": "replicas that get an empty batch, dummies and the messages they cost",
    "B7.lost": "short batches and samples that last batches cost, for each number of workers",
    "B7.offer": "drop_remainder is offered with what it leaves out, never set unasked where shapes may differ",
    "B8.stateful": "state that sharding ignores is warned of: unseeded orders, seeded draws, counters",
    "B8.index": "elements keep an index of the source, and predictions are put back in its order",
    "B9.under": "variants are measured under the strategy before anything is recommended",
    "B10.values": "experimental_distribute_values_from_function is said to be no pipeline",
    "B10.generator": "Python under TPUStrategy is warned of before it fails, and refused in its form",
    # C: parameter servers
    "C1.recognised": "a ParameterServerStrategy script is analysed: what its workers build is measured",
    "C1.cluster": "on a local cluster that the command starts",
    "C1.patched": "a plan that pays there is patched, and the patched script is run on a cluster",
    "C2.creator": "a DatasetCreator for fit of tf_keras is emitted, and a cluster trains on it",
    "C2.endless": "it shuffles and repeats, and says the steps of an epoch",
    "C3.per-worker": "create_per_worker_dataset is emitted, everything made inside, tables on every worker",
    "C3.captured": "what would be captured from the script's process is refused",
    "C3.own": "what the script's own function takes from outside is warned of, by name and line",
    "C4.pure": "the same call gives the same pipeline, or nothing is written",
    "C4.again": "a worker that comes back goes on with all of the data",
    "C4.window": "no window is measured across the death of a worker, and none waits for ever",
    "C5.fit": "steps_per_execution is measured under fit, and recommended with its gain",
    "C5.coordinator": "and under a coordinator",
    # D: determinism
    "D1.pipeline": "whether the order of a pipeline repeats from run to run, and why not",
    "D1.rewrites": "and of every rewrite",
    "D1.files": "files that tfds reads in a different order every time are said to be",
    "D2.orders": "16/16 and 3/2, as in the guide",
    "D2.silent": "an order that would change needs consent",
    "D3.analysed": "tfds.load scripts are analysed: what is read, and how",
    "D3.config": "a rewrite of the reading is a ReadConfig, the same elements in the same order",
    "D4.take": "take(x) is told from split[:x]",
    "D4.resuming": "a rewrite that breaks resuming is warned of",
    # E: Horovod
    "E1.recognised": "a rank of Horovod is recognised, from horovodrun or mpirun, and its input profiled",
    "E1.sharded": "a form sharded by rank and size is emitted, as early as is right",
    "E1.steps": "every rank takes steps // size, whatever its share",
    "E2.skew": "how far apart the inputs of ranks are is reported",
}

NOT_KEPT: Mapping[str, str] = {}
"""Promises without a test, and the reason; a promise that is kept does not belong here."""
