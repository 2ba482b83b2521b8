"""A stand-in for Horovod, which the tests do not require; see `tensorflow.py`."""
