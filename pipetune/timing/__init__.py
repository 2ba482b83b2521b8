"""Timing: windows of input and training steps, and the load of the cores during them."""
