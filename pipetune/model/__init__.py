"""The cost model: what bounds a pipeline, the effect of a change, its memory. Pure functions on values of `core`."""
