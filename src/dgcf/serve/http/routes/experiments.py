"""The results of an experiment, and what its shadows have done."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from dgcf.serve.events.records import POSITIVE
from dgcf.serve.experiments.results import results
from dgcf.serve.http import reports
from dgcf.serve.http.call import Call
from dgcf.serve.http.encoding import answer
from dgcf.serve.http.operation import Content, Operation, Service
from dgcf.serve.http.parameters import choices
from dgcf.serve.http.requests import Bodies
from dgcf.serve.settings import Limits


def operations(limits: Limits, bodies: Bodies) -> list[Operation]:
    return [
        Operation(
            "GET",
            "/v1/experiments",
            "experiments",
            "Return the results of the experiment",
            _experiments,
            {200: Content("Arms, comparisons and shadows.", reports.Experiments)},
            "A user of an arm converts by an event of `kinds` after the first list of the experiment. The interval of "
            "a difference holds however often one looks.",
            parameters=(choices("kinds", "Events that count, separated by commas.", POSITIVE, POSITIVE),),
            tag="experiments",
        )
    ]


async def _experiments(service: Service, call: Call) -> Response:
    kinds: Any = call.query["kinds"] or POSITIVE
    engine, arms = service.engine, service.settings.more
    counts = []
    if arms.experiment is not None:
        counts = await asyncio.to_thread(service.store.experiment_counts, arms.experiment, kinds)
    return answer(results(arms, counts, kinds, lambda arm: engine.of(arm).model_version, service.tally))
