"""Proves by running it that a stand-alone module delivers every element of a live pipeline once per epoch."""
