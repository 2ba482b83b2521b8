"""Measurement of tf.data pipelines: timed windows, cost per operator, the machine, and the runner of the search."""
