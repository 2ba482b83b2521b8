"""Stands in for Horovod, which is not installed here; see `tensorflow.py`."""
