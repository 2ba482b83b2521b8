"""Proof that two pipelines yield the same data: values, randomness, epochs. The entry point is `compare`."""
