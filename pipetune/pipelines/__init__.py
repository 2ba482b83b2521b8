"""Converts live datasets to `Pipeline` objects and back: reading, function facts, replay, findings, counting."""
