"""Scripts of `tests/scripts` that go through a worker alone, and their arguments."""

from __future__ import annotations

from pipetune.core.settings import Settings

WORKED: dict[str, tuple[str, ...]] = {
    "strings": (),
    "varying_shape": (),
    "ragged_sparse": (),
    "nested_namedtuple": (),
    "unbatched": (),
    "py_function": (),
    "stateful_table": (),
    "variable_in_map": (),
    "one_batch": (),
    "runs_out": (),
    "infinite": (),
    "run_eagerly": (),
    "raises_within_map-python": ("python",),
    "corrupt_tfrecord": ("{folder}",),
    "unreadable_file": ("{folder}",),
    "sys_exit": (),
    "raises_after": (),
    "tf_keras_fit": (),
    "keras_utils": ("{folder}",),
    "class_method": (),
    "adapt_preview": (),
    "fit_validation_leak": (),
    "cached_augmentation": (),
    "runs_out_of_data_fit": (),
    "enumerate_take": (),
    "get_next_as_optional": (),
    "next_iter_loop": (),
    "as_numpy_iterator": (),
    "reduce_consumer": (),
    "tf_function_dataset": (),
    "tf_function_iterator": (),
    "mirrored-loop": ("loop",),
    "mirrored-fit": ("fit",),
    "mirrored-dataset_fn": ("dataset_fn",),
    "mirrored-function": ("function",),
    "mirrored-chosen": ("fit",),
    "parameter_server": (),
    "parameter_server-fit": ("fit",),
}

SETTINGS = {"mirrored-chosen": Settings(quick=True, budget_seconds=1.0)}
"""Where it is not a profile alone."""
