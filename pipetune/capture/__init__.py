"""Observes the user's script: which calls create its datasets and who consumes them; leaves nothing of it changed."""
