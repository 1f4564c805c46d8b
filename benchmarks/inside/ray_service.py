"""A bundle on Ray Serve until SIGTERM, with the journals in a folder; needs ray and rlwb."""

from __future__ import annotations

import signal
import sys

import ray
from ray import serve

from rlwb.serving.ray_serve import deploy


def main(bundle: str, folder: str, port: str, count: str) -> None:
    """Deploy N shards and N replicas without orders, say so, and wait."""
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(port)})
    deploy(bundle, folder, shards=int(count), replicas=int(count), cpus=0)
    print("ready", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
