"""Probes: what a traced function does in another variant or at another place, found by tracing and running it."""
