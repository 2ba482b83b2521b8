"""Proof that two pipelines yield the same data: values, randomness, epochs. `compare` is the entry point."""
