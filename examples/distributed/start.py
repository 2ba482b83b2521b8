"""Start a training script as several processes of this machine, each with the TF_CONFIG that a cluster would give it.

    python examples/distributed/start.py --workers 2 SCRIPT [ARGUMENTS...]
    python examples/distributed/start.py --workers 2 --parameter-servers 1 SCRIPT [ARGUMENTS...]

With parameter servers there is also a chief, and all is done once it has ended; else once every worker has. The first
process that fails ends the others.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time


def free_addresses(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def start(jobs, command):
    """A process for every task of every job, the first job's first task first."""
    free = free_addresses(sum(jobs.values()))
    cluster = {job: [free.pop() for _ in range(tasks)] for job, tasks in jobs.items()}
    for job, addresses in cluster.items():
        for index in range(len(addresses)):
            told = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
            yield subprocess.Popen(command, env={**os.environ, "TF_CONFIG": told})


def wait(processes, directed):
    """The exit code of all together; `directed`: the first is the chief, and the others serve until they are ended."""
    while True:
        codes = [process.poll() for process in processes]
        failed = next((code for code in codes if code), 0)
        done = codes[0] is not None if directed else None not in codes
        if failed or done:
            return 1 if failed else 0
        time.sleep(0.1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--parameter-servers", type=int, default=0)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    asked = parser.parse_args()

    jobs = {"worker": asked.workers}
    if asked.parameter_servers:
        jobs = {"chief": 1, **jobs, "ps": asked.parameter_servers}
    processes = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what follows `finally` is done then, too
    try:
        processes.extend(start(jobs, [sys.executable, asked.script, *asked.arguments]))
        code = wait(processes, directed="chief" in jobs)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
    sys.exit(code)


if __name__ == "__main__":
    main()
