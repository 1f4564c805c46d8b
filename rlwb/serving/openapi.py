"""The operations of the service, and their description for OpenAPI."""

from __future__ import annotations

import http
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

import rlwb
from rlwb.serving.wire import Problem

#: Idempotency keys.
KEY_PATTERN = "^[!-~]{1,128}$"
_ABOUT = "Orders and bars in, amounts to trade out: a trained execution policy in service."


class Request(NamedTuple):
    """What an operation gets of a request."""

    body: bytes
    query: bytes
    name: str  # what stands in the path in the place of its parameter


@dataclass(frozen=True)
class Operation:
    """One operation of the interface: what it takes and returns, and what it may answer with.

    `gives` is a type; or a list of types, of the first of which there is one, or an array of any of them.
    """

    method: str
    path: str
    summary: str
    run: Callable[[Request], Awaitable[Any]]
    takes: Any = None
    gives: Any = None
    refusals: tuple[int, ...] = ()
    parameters: tuple[tuple[str, str, dict[str, Any]], ...] = ()


def describe(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI description of the operations."""
    kinds = [kind for each in operations for kind in (each.takes, *_types(each.gives)) if kind is not None]
    kinds.append(Problem)
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(map(repr, kinds), schemas, strict=True))

    def answer(gives: Any) -> dict[str, Any]:
        if not isinstance(gives, list):
            return schema_of[repr(gives)]
        parts = [schema_of[repr(kind)] for kind in gives]
        return {"anyOf": [parts[0], {"type": "array", "items": {"anyOf": parts}}]}

    problem = {"application/json": {"schema": schema_of[repr(Problem)]}}
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        kind = "text/plain" if each.gives is str else "application/json"
        # 409 is a key that was used for another request.
        refusals = sorted({*each.refusals, 400, 401, 403, 503, *((409,) if each.method == "POST" else ())})
        described: dict[str, Any] = {
            "summary": each.summary,
            "operationId": f"{each.method.lower()}{each.path.replace('/', '_').replace('{', '').replace('}', '')}",
            "responses": {
                "200": {"description": "Done", "content": {kind: {"schema": answer(each.gives)}}},
                **{str(code): {"description": http.HTTPStatus(code).phrase, "content": problem} for code in refusals},
            },
            "parameters": [
                {"name": name, "in": where, "required": where == "path", "schema": schema}
                for name, where, schema in each.parameters
            ],
        }
        if each.path == "/health":
            described["responses"]["503"]["content"] = described["responses"]["200"]["content"]
        elif each.method == "POST":
            described["parameters"].append(
                {
                    "name": "Idempotency-Key",
                    "in": "header",
                    "required": False,
                    "description": "Repeating a request under its key gives the same answer, and does nothing.",
                    "schema": {"type": "string", "pattern": KEY_PATTERN},
                }
            )
        if each.takes is not None:
            content = {"application/json": {"schema": schema_of[repr(each.takes)]}}
            described["requestBody"] = {"required": True, "content": content}
        paths.setdefault(each.path, {})[each.method.lower()] = described
    security = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "rlwb", "version": rlwb.__version__, "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": components, **security},
        "security": [{}, {"token": []}],
    }


def _types(gives: Any) -> list[Any]:
    return gives if isinstance(gives, list) else [gives]
