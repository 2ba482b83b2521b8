"""Hangs for an hour before it trains."""

import time

print("hanging", flush=True)
time.sleep(3600)
