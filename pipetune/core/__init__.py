"""Immutable values that all parts of pipetune exchange, and their JSON representation. Standard library only."""
