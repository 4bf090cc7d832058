"""The operations of the interface, by topic."""

from __future__ import annotations

from dgcf.serve.http.operation import Operation
from dgcf.serve.http.requests import Bodies
from dgcf.serve.http.routes import catalogue, events, experiments, model, recommend, refresh, similar
from dgcf.serve.settings import Limits


def operations(limits: Limits) -> list[Operation]:
    """Return all operations but those of the page and of the documentation."""
    bodies = Bodies(limits)
    topics = (recommend, similar, catalogue, events, model, refresh, experiments)
    return [operation for topic in topics for operation in topic.operations(limits, bodies)]
