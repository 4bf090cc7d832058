"""Refreshes of the model, rollbacks, and the models that were published."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.responses import Response

from dgcf.serve.engine.publishing import Publishing
from dgcf.serve.errors import ModelRefusedError
from dgcf.serve.events.records import ModelRow
from dgcf.serve.http import answers
from dgcf.serve.http.call import Call
from dgcf.serve.http.encoding import answer
from dgcf.serve.http.operation import Content, Operation, Service
from dgcf.serve.http.requests import Bodies
from dgcf.serve.http.routes.model import ARM
from dgcf.serve.refresh.schedule import iso
from dgcf.serve.settings import Limits

TAG = "model"


def operations(limits: Limits, bodies: Bodies) -> list[Operation]:
    return [*_of_refresh(), *_of_models(bodies)]


def _of_refresh() -> list[Operation]:
    return [
        Operation(
            "POST",
            "/v1/admin/refresh",
            "begin_refresh",
            "Update the model with the events since",
            _begin,
            {202: Content("The refresh has begun.", answers.RefreshBegun)},
            "The update runs in a process of its own. It is published if it does not rank the newest events worse than "
            "the served model.",
            problems=(409,),
            tag=TAG,
        ),
        Operation(
            "GET",
            "/v1/admin/refresh",
            "refresh_state",
            "Return the state of the refresh",
            _state,
            {200: Content("The state, the same of all workers.", answers.RefreshState)},
            tag=TAG,
        ),
    ]


def _of_models(bodies: Bodies) -> list[Operation]:
    return [
        Operation(
            "POST",
            "/v1/admin/rollback",
            "rollback",
            "Publish an earlier model again",
            _rollback,
            {200: Content("What is loaded.", answers.Model)},
            "Without a version, the model before the present one. Scheduled refreshes pause until one is demanded, or "
            "another model is loaded.",
            body=bodies.rollback,
            parameters=(ARM,),
            problems=(404, 409),
            tag=TAG,
        ),
        Operation(
            "GET",
            "/v1/models",
            "models",
            "Return the published models, the newest first",
            _models,
            {200: Content("The last 50 models.", answers.Models)},
            tag=TAG,
        ),
    ]


async def _begin(service: Service, call: Call) -> Response:
    if service.refresher is None:
        raise ModelRefusedError("this process carries out no refreshes; start the service with dgcf serve.")
    return answer({"id": await service.refresher.demand(), "state": "running"}, 202)


async def _state(service: Service, call: Call) -> Response:
    return answer(await asyncio.to_thread(service.refresh_state))


async def _rollback(service: Service, call: Call) -> Response:
    return answer(await service.engine.of(call.query["arm"]).rollback(call.body.version))


async def _models(service: Service, call: Call) -> Response:
    return answer({"models": await asyncio.to_thread(_published, service)})


def _published(service: Service) -> list[dict[str, Any]]:
    rows = service.store.models()
    available = Publishing(service.settings, service.store).available()
    present = {arm: service.store.current_model(arm) for arm in {row.arm for row in rows}}
    return [_model(row, present[row.arm] == row, row.sha256 in available) for row in rows]


def _model(row: ModelRow, serving: bool, available: bool) -> dict[str, Any]:
    return {
        "version": row.version,
        "sha256": row.sha256,
        "published": iso(row.published),
        "origin": row.origin,
        "card": None if row.card is None else json.loads(row.card),
        "serving": serving,
        "available": available,
        "arm": row.arm,
    }
