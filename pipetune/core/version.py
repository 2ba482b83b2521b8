"""The version of pipetune; defined only here."""

from __future__ import annotations

VERSION = "0.1.0"
