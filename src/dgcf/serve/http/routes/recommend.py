"""Lists of recommendations: of one user, of several, and of a new user's items."""

from __future__ import annotations

from starlette.responses import Response

from dgcf.serve.errors import RequestError
from dgcf.serve.http import answers
from dgcf.serve.http.call import Call
from dgcf.serve.http.encoding import answer, tagged
from dgcf.serve.http.operation import Content, Operation, Service
from dgcf.serve.http.parameters import Segment, boolean, integer
from dgcf.serve.http.requests import Bodies
from dgcf.serve.settings import Limits

TAG = "recommendations"


def operations(limits: Limits, bodies: Bodies) -> list[Operation]:
    return [
        Operation(
            "GET",
            "/v1/recommend/{user}",
            "recommend",
            "Recommend items to a user",
            _recommend,
            {200: Content("The list of the user.", answers.Recommendation)},
            f"An unknown user gets popular items; `source` says so. With `why`, `k` is at most {limits.reasons:,}.",
            ids=(Segment("user", "The raw id of a user, percent-encoded.", limits.id_bytes, "196"),),
            parameters=(
                integer("k", "The length of the list.", 1, limits.k, 10),
                boolean("seen", "Whether items that the user has may be in the list."),
                boolean("why", "Whether each item comes with its reasons."),
            ),
            tagged=True,
            tag=TAG,
        ),
        Operation(
            "POST",
            "/v1/recommend",
            "recommend_for",
            "Recommend items to several users, or for the items of a new user",
            _recommend_for,
            {200: Content("The list, or with `users` the lists.", (answers.Recommendation, answers.Recommendations))},
            f"All lists together may have {limits.rows:,} items, with reasons {limits.reasons:,}.",
            body=bodies.recommend,
            tag=TAG,
        ),
    ]


async def _recommend(service: Service, call: Call) -> Response:
    query = call.query
    _check_rows(service.settings.limits, query["k"], 1, query["why"])
    result = await service.engine.recommend(call.ids["user"], k=query["k"], seen=query["seen"], why=query["why"])
    return tagged(call, result)


async def _recommend_for(service: Service, call: Call) -> Response:
    body = call.body
    rules = {name: getattr(body, name) for name in ("k", "seen", "why", "only", "exclude", "max_per")}
    if hasattr(body, "users"):
        _check_rows(service.settings.limits, body.k, len(body.users), body.why)
        return answer(await service.engine.recommend_users(body.users, **rules))
    _check_rows(service.settings.limits, body.k, 1, body.why)
    who = {"user": body.user, "visitor": body.visitor}
    return answer(await service.engine.recommend_for(body.items, body.negative, **who, **rules))


def _check_rows(limits: Limits, k: int, users: int, why: bool) -> None:
    """Refuse lists that would keep other requests waiting."""
    most = limits.reasons if why else limits.rows
    if k * users > most:
        what, fewer = "items with reasons" if why else "items", "fewer users, or " if users > 1 else ""
        raise RequestError(f"{k * users:,} {what} were requested, expected at most {most:,}; give {fewer}a smaller k.")
