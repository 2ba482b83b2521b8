"""Converts the parts of a live pipeline to values and text, from which a distributed module is written."""
