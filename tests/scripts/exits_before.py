"""Exits with status 3 before any dataset exists."""

import sys

sys.exit(3)
