"""Requests drawn from the service's own description: no fault, and every answer is one that is described."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from rlwb.serving.app import Api, Front
from rlwb.serving.bundle import open_bundle
from rlwb.serving.policy import BundlePolicy
from rlwb.serving.service import Service
from tests.serving.desk import Desk

HOW = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
OPERATIONS = [
    *("POST /v1/decisions", "POST /v1/bars", "POST /v1/fills", "POST /v1/orders", "GET /v1/orders"),
    *("GET /v1/orders/{order_id}", "DELETE /v1/orders/{order_id}", "GET /v1/summary", "POST /predict"),
    *("POST /v1/bundle", "GET /health", "GET /info", "GET /metrics"),
]
#: Operations that take nothing, of which nothing can be wrong.
ASK_NOTHING = ("GET /v1/summary", "GET /health", "GET /info", "GET /metrics")


@pytest.fixture(scope="module")
def front(bundle_path: Path) -> Iterator[Front]:
    """Yield the application of a service that has orders and bars."""
    bundle = open_bundle(bundle_path)
    service = Service(BundlePolicy(bundle, capacity=32))
    desk = Desk(bundle.calendar)
    service.register([desk.order("one"), desk.order("two", instrument="BBB", amount=5.0)])
    service.bars(desk.bars("AAA", 0, 12))
    bundles = dict.fromkeys(("main", "second"), lambda: BundlePolicy(bundle, capacity=32))
    yield Front(Api(service, bundles=bundles))
    service.close()


@pytest.fixture(scope="module")
def described(front: Front) -> dict[str, schemathesis.schemas.APIOperation]:
    schema = schemathesis.openapi.from_dict(front.pages.openapi())
    return {one.label: one for one in (found.ok() for found in schema.get_all_operations())}


def test_every_operation_is_tried(described: dict[str, schemathesis.schemas.APIOperation]) -> None:
    assert sorted(described) == sorted(OPERATIONS)


@pytest.mark.parametrize(
    ("label", "mode"),
    [
        *((label, GenerationMode.POSITIVE) for label in OPERATIONS),
        *((label, GenerationMode.NEGATIVE) for label in OPERATIONS if label not in ASK_NOTHING),
    ],
)
def test_any_request_has_an_answer_that_is_described(
    label: str, mode: GenerationMode, front: Front, described: dict[str, schemathesis.schemas.APIOperation]
) -> None:
    transport = httpx.ASGITransport(front)

    async def ask(case: schemathesis.Case) -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            told = case.as_transport_kwargs(base_url="http://127.0.0.1")
            told = {name: told.get(name) for name in ("method", "url", "headers", "params", "json")} | {
                "content": told.get("data")
            }
            return await client.request(**told)

    @HOW
    @given(case=described[label].as_strategy(generation_mode=mode))
    def check(case: schemathesis.Case) -> None:
        # An order's window, a date that the calendar has: what a schema cannot say is refused by 422.
        case.validate_response(runner.run(ask(case)), excluded_checks=[positive_data_acceptance])

    with asyncio.Runner() as runner:
        check()
