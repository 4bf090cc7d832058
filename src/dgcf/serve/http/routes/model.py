"""The model, its charts, its reload, and the operations of the service."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from dgcf.serve.errors import NotReadyError
from dgcf.serve.http import answers, reports
from dgcf.serve.http.call import Call
from dgcf.serve.http.encoding import answer, tagged
from dgcf.serve.http.operation import Content, Operation, Service
from dgcf.serve.http.parameters import text
from dgcf.serve.http.requests import Bodies
from dgcf.serve.settings import Limits

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
TAG = "model"
ARM = text("arm", "The arm or shadow, the main one by default; see GET /v1/experiments.", 32)


def operations(limits: Limits, bodies: Bodies) -> list[Operation]:
    return [*_of_model(), *_of_service()]


def _of_model() -> list[Operation]:
    model, arm = Content("What is loaded.", answers.Model), (ARM,)
    return [
        Operation(
            "GET",
            "/v1/model",
            "model",
            "Return what the service has loaded",
            _model,
            {200: model},
            parameters=arm,
            tagged=True,
            tag=TAG,
        ),
        Operation(
            "GET",
            "/v1/model/charts",
            "charts",
            "Return the data of the charts of the model",
            _charts,
            {200: Content("The data.", reports.Charts)},
            parameters=arm,
            tagged=True,
            tag=TAG,
        ),
        Operation(
            "POST",
            "/v1/admin/reload",
            "reload",
            "Load the model anew",
            _reload,
            {200: model},
            "Requests in flight are answered by the old model. It stays if the new one is refused.",
            parameters=arm,
            problems=(409,),
            tag=TAG,
        ),
    ]


def _of_service() -> list[Operation]:
    return [
        Operation(
            "GET",
            "/v1/operations",
            "operations",
            "Return what the service has done since it started",
            _operations,
            {200: Content("Figures of all workers together.", reports.Operations)},
        ),
        Operation(
            "GET",
            "/metrics",
            "metrics",
            "Return metrics for Prometheus",
            _metrics,
            {200: Content("Metrics in the text format of Prometheus.", media_type="text/plain")},
        ),
        Operation(
            "GET",
            "/healthz",
            "alive",
            "Return whether the process answers",
            _alive,
            {200: Content("It does.", answers.Alive)},
            open=True,
        ),
        Operation(
            "GET",
            "/readyz",
            "ready",
            "Return whether requests are answered",
            _ready,
            {200: Content("They are.", answers.Ready)},
            open=True,
        ),
    ]


async def _model(service: Service, call: Call) -> Response:
    return tagged(call, await service.engine.of(call.query["arm"]).model())


async def _charts(service: Service, call: Call) -> Response:
    return tagged(call, await service.engine.of(call.query["arm"]).charts())


async def _reload(service: Service, call: Call) -> Response:
    return answer(await service.engine.of(call.query["arm"]).reload())


async def _operations(service: Service, call: Call) -> Response:
    return answer(await asyncio.to_thread(service.figures))


async def _metrics(service: Service, call: Call) -> Response:
    return Response(
        await asyncio.to_thread(service.metrics), 200, {"cache-control": "no-store", "content-type": PROMETHEUS}
    )


async def _alive(service: Service, call: Call) -> Response:
    return answer({"alive": True})


async def _ready(service: Service, call: Call) -> Response:
    if not service.engine.ready:
        raise NotReadyError("the service is starting or stopping; repeat the request in a moment.")
    return answer({"ready": True})
