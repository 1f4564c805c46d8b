"""The service on Ray Serve: shards that hold orders, one replica each, and replicas that hold none."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from rlwb.errors import ConfigError

#: Requests that Ray Serve hands a replica at the same time. Above the service's own queue, which refuses what is too
#: much with 503 and Retry-After, where Ray Serve would let it wait.
_ONGOING = 4096
_PATHS = ("bundle", "state", "history", "shadow", "token_file")
#: What replicas without orders answer.
_STATELESS = ("/predict", "/health", "/info", "/docs", "/openapi.json")


def shard_of(instrument: str, shards: int) -> int:
    """Return the number of the shard, ``0..shards-1``, that has the orders and bars of an instrument.

    It is the same in every process and language: the first eight bytes of the SHA-256 of the name in UTF-8, the most
    significant first, modulo `shards`.

    Raises
    ------
    ConfigError
        When `shards` is below 1.
    """
    if shards < 1:
        raise ConfigError(f"shards is {shards}; there is at least 1.")
    return int.from_bytes(hashlib.sha256(instrument.encode()).digest()[:8], "big") % shards


class _Replica:
    """One process of Ray Serve's that runs the service."""

    def __init__(self, settings: Mapping[str, Any], is_stateless: bool) -> None:
        self.settings, self.is_stateless = dict(settings), is_stateless

    def __serve_build_asgi_app__(self) -> Any:
        from ray import serve

        from rlwb.serving.app import Security
        from rlwb.serving.process import LOOPBACK, make_front, token_of

        paths = {name: Path(value) for name, value in self.settings.items() if name in _PATHS and value is not None}
        settings = self.settings | paths
        token = token_of(settings.pop("token_file", None))
        security = Security(token, frozenset(settings.pop("hosts", LOOPBACK)))
        front = make_front(settings.pop("bundle"), security=security, **settings)
        name = serve.get_replica_context().replica_tag
        return _mounted(front, name, _STATELESS if self.is_stateless else None)


def _mounted(app: Any, name: str, paths: Collection[str] | None) -> Any:
    """Return an app that answers below a route prefix as `app` does at the root, of `paths` alone if they are given.

    Its answers have the header ``x-replica`` with the name of the replica.
    """

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        async def named(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (b"x-replica", name.encode())]}
            await send(message)

        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        if paths is None or path in paths:
            await app({**scope, "path": path, "root_path": "", "raw_path": path.encode()}, receive, named)
        else:
            await _refuse(path, scope, receive, named)

    return answer


async def _refuse(path: str, scope: Any, receive: Any, send: Any) -> None:
    from starlette.responses import JSONResponse

    words = f"{path} is answered by the shard of an instrument alone, below /shards; see docs/serving/cluster.md."
    await JSONResponse({"error": words, "reason": "no_shard"}, 404)(scope, receive, send)


def _application(settings: Mapping[str, Any], replicas: int, cpus: float, *, is_stateless: bool) -> Any:
    try:
        from ray import serve
    except ImportError as error:
        raise ConfigError(f"Ray Serve needs the package ray ({error}); pip install 'rlwb[ray,serve]'.") from error
    deployment = serve.deployment(
        serve.ingress()(_Replica),
        name="rlwb",
        num_replicas=replicas,
        max_ongoing_requests=_ONGOING,
        ray_actor_options={"num_cpus": cpus},
        logging_config={"enable_access_log": False},
    )
    return deployment.bind(settings, is_stateless)


def shard(args: Mapping[str, Any]) -> Any:
    """Return an application of Ray Serve that is one shard, to run or as the ``import_path`` of a Serve config.

    Parameters
    ----------
    args
        Parameters of `rlwb.serving.process.make_front`: the bundle, and as ``state`` a journal that no other shard
        has. Also ``token_file`` as for ``rlwb serve``, ``hosts``, the names by which the service may be called (this
        machine's own by default, none for any), and ``cpus``, which Ray sets aside for the process (1 by default).

    Raises
    ------
    ConfigError
        When the package ray is missing.
    """
    settings = dict(args)
    return _application(settings, 1, settings.pop("cpus", 1), is_stateless=False)


def stateless(args: Mapping[str, Any]) -> Any:
    """Return an application that answers ``POST /predict`` by any of its replicas, and knows no orders.

    Parameters
    ----------
    args
        As in `shard`, without ``state``; also ``replicas``, 2 by default.

    Raises
    ------
    ConfigError
        When the package ray is missing.
    """
    settings = dict(args)
    return _application(settings, settings.pop("replicas", 2), settings.pop("cpus", 1), is_stateless=True)


def deploy(bundle: str | Path, folder: str | Path, *, shards: int = 2, replicas: int = 2, **settings: Any) -> None:
    """Run a bundle on Ray Serve, started if need be: shards below ``/shards/0``, …, replicas without orders at ``/``.

    Parameters
    ----------
    bundle
        Its directory, on every machine where replicas run.
    folder
        Where the journals lie: ``shard-0.db``, …; on a local disk of the machine where the shard runs.
    shards
        Processes that hold orders, each those of the instruments of its number (`shard_of`).
    replicas
        Processes that answer ``/predict``; 0 for none.
    settings
        Further ones of `shard`.

    Raises
    ------
    ConfigError
        When the package ray is missing, or `shards` is below 1.
    """
    shard_of("", shards)
    plain = {"bundle": str(Path(bundle).resolve()), **settings}
    apps = {
        f"shard-{i}": (f"/shards/{i}", shard(plain | {"state": f"{Path(folder).resolve()}/shard-{i}.db"}))
        for i in range(shards)
    }
    if replicas:
        apps["stateless"] = ("/", stateless(plain | {"replicas": replicas}))
    from ray import serve

    for name, (prefix, application) in apps.items():
        serve.run(application, name=name, route_prefix=prefix)
