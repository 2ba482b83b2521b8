"""Raises before any dataset exists: the user's own traceback must be shown as theirs (exit 3)."""


def read_settings():
    return {"learning_rate": 0.1}["learning-rate"]


rate = read_settings()
