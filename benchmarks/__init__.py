"""Benchmarks of pipetune itself, run from a clone of the repository; no part of the package."""
