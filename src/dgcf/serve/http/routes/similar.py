"""Similar items and users, and explanations of scores."""

from __future__ import annotations

from starlette.responses import Response

from dgcf.serve.http import answers
from dgcf.serve.http.call import Call
from dgcf.serve.http.encoding import answer, tagged
from dgcf.serve.http.operation import Content, Operation, Service
from dgcf.serve.http.parameters import Parameter, Segment, integer
from dgcf.serve.http.requests import Bodies
from dgcf.serve.settings import Limits

TAG, SIMILAR = "explanations", "similar"


def operations(limits: Limits, bodies: Bodies) -> list[Operation]:
    user = Segment("user", "The raw id of a user, percent-encoded.", limits.id_bytes, "196")
    item = Segment("item", "The raw id of an item, percent-encoded.", limits.id_bytes, "50")
    k = integer("k", "The length of the list.", 1, limits.k, 10)
    top = integer("top", "The number of parts of each kind; 0 for all.", 0, limits.k, 5)
    explanation = {200: Content("The parts of the score.", answers.Explanation)}
    return [
        _similar("items", item, k, Content("The most similar items.", answers.SimilarItems)),
        _similar("users", user, k, Content("The most similar users.", answers.SimilarUsers)),
        Operation(
            "GET",
            "/v1/explain/{user}/{item}",
            "explain",
            "Explain the score of an item for a user",
            _explain,
            explanation,
            ids=(user, item),
            parameters=(top,),
            problems=(404,),
            tagged=True,
            tag=TAG,
        ),
        Operation(
            "POST",
            "/v1/explain",
            "explain_for",
            "Explain the score of an item for the items of a new user",
            _explain_for,
            explanation,
            body=bodies.explain,
            problems=(404,),
            tag=TAG,
        ),
    ]


def _similar(sides: str, segment: Segment, k: Parameter, content: Content) -> Operation:
    return Operation(
        "GET",
        f"/v1/similar/{sides}/{{{segment.name}}}",
        f"similar_{sides}",
        f"Return the {sides} that are most similar to {'an item' if sides == 'items' else 'a user'}",
        _similar_items if sides == "items" else _similar_users,
        {200: content},
        "Hidden items are left out." if sides == "items" else "Users who were forgotten are left out.",
        ids=(segment,),
        parameters=(k,),
        problems=(404,),
        tagged=True,
        tag=SIMILAR,
    )


async def _similar_items(service: Service, call: Call) -> Response:
    return tagged(call, await service.engine.similar("item", call.ids["item"], k=call.query["k"]))


async def _similar_users(service: Service, call: Call) -> Response:
    return tagged(call, await service.engine.similar("user", call.ids["user"], k=call.query["k"]))


async def _explain(service: Service, call: Call) -> Response:
    ids = call.ids
    return tagged(call, await service.engine.explain(ids["user"], ids["item"], top=call.query["top"]))


async def _explain_for(service: Service, call: Call) -> Response:
    body = call.body
    engine = service.engine
    who = {"user": body.user, "visitor": body.visitor}
    parts = await engine.explain_for(body.items, body.negative, body.item, **who, top=body.top)
    return answer(parts)
