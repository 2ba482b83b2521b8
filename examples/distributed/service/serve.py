"""The processes of a tf.data service: one dispatcher, and as many workers as the input needs.

python examples/distributed/service/serve.py dispatcher --port 5050
python examples/distributed/service/serve.py worker --dispatcher localhost:5050
"""

from __future__ import annotations

import argparse

import tensorflow as tf


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["dispatcher", "worker"])
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--host", default="localhost", help="name under which the others reach a worker")
    parser.add_argument("--dispatcher", metavar="HOST:PORT", help="where a worker finds it")
    arguments = parser.parse_args()

    service = tf.data.experimental.service
    if arguments.role == "dispatcher":
        server = service.DispatchServer(service.DispatcherConfig(port=arguments.port))
        print(f"dispatcher at {server.target}", flush=True)
    else:
        config = service.WorkerConfig(
            arguments.dispatcher, worker_address=f"{arguments.host}:%port%", port=arguments.port
        )
        server = service.WorkerServer(config)
        print(f"worker of {arguments.dispatcher}", flush=True)
    server.join()


if __name__ == "__main__":
    main()
