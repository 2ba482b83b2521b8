"""Edits the user's source: finds calls, applies edits, writes and applies patches. No other package imports LibCST."""
