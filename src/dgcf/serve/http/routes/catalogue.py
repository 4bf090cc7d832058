"""Items and users: search, records and histories."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from dgcf.serve.errors import UnknownError
from dgcf.serve.events.records import ItemRecord
from dgcf.serve.http import answers
from dgcf.serve.http.call import Call
from dgcf.serve.http.encoding import answer, tagged
from dgcf.serve.http.operation import Content, Operation, Service
from dgcf.serve.http.parameters import Segment, integer, text
from dgcf.serve.http.requests import Bodies
from dgcf.serve.settings import Limits

PAGE = 20
HISTORY = 100
CURSOR_LENGTH = 64


def operations(limits: Limits, bodies: Bodies) -> list[Operation]:
    item = Segment("item", "The raw id of an item, percent-encoded.", limits.id_bytes, "50")
    return [*_items(limits, item), *_records(bodies, item), *_users(limits)]


def _items(limits: Limits, item: Segment) -> list[Operation]:
    return [
        Operation(
            "GET",
            "/v1/items",
            "items",
            "Search items by title or id",
            _search,
            {200: Content("A page of items.", answers.Items)},
            "Returns items whose title has the words of `q`, or whose id begins with it, the most popular first.",
            parameters=(
                text(
                    "q",
                    "Beginnings of words of the title, or the beginning of the id; all items without it.",
                    limits.id_bytes,
                    "",
                ),
                text("cursor", "`next` of the page before.", CURSOR_LENGTH),
                integer("limit", "The length of the page.", 1, limits.page, min(PAGE, limits.page)),
            ),
            tagged=True,
            tag="items",
        ),
        Operation(
            "GET",
            "/v1/items/{item}",
            "item",
            "Return an item",
            _item,
            {200: Content("The item.", answers.Item)},
            ids=(item,),
            problems=(404,),
            tagged=True,
            tag="items",
        ),
    ]


def _records(bodies: Bodies, item: Segment) -> list[Operation]:
    record = Content("The item.", answers.Item)
    return [
        Operation(
            "PUT",
            "/v1/items/{item}",
            "put_item",
            "Set title, attributes and visibility of an item",
            _put,
            {200: record, 201: Content("The item, of which nothing was set before.", answers.Item)},
            "What was set before is replaced. An item that the model does not have is recommended once it has events.",
            ids=(item,),
            body=bodies.item,
            tag="items",
        ),
        Operation(
            "DELETE",
            "/v1/items/{item}",
            "delete_item",
            "Delete what was set for an item",
            _delete,
            {204: Content("The record is deleted.")},
            "The item itself stays in the model.",
            ids=(item,),
            problems=(404,),
            tag="items",
        ),
    ]


def _users(limits: Limits) -> list[Operation]:
    user = Segment("user", "The raw id of a user, percent-encoded.", limits.id_bytes, "196")
    return [
        Operation(
            "GET",
            "/v1/users/{user}",
            "user",
            "Return the history of a user",
            _user,
            {200: Content("The history.", answers.User)},
            ids=(user,),
            parameters=(
                integer(
                    "limit", "The greatest number of items and of events.", 1, limits.items, min(HISTORY, limits.items)
                ),
            ),
            problems=(404,),
            tagged=True,
            tag="users",
        ),
        Operation(
            "DELETE",
            "/v1/users/{user}",
            "forget_user",
            "Forget a user",
            _forget,
            {200: Content("The user is forgotten.", answers.Forgotten)},
            "Deletes the events of the user, who is unknown from now on. The artefact keeps the user.",
            ids=(user,),
            problems=(404,),
            tag="users",
        ),
    ]


async def _search(service: Service, call: Call) -> Response:
    query = call.query
    return tagged(call, await service.engine.items(query["q"], query["cursor"], query["limit"]))


async def _item(service: Service, call: Call) -> Response:
    return tagged(call, await service.engine.item(call.ids["item"]))


async def _put(service: Service, call: Call) -> Response:
    item, body = call.ids["item"], call.body
    record = ItemRecord(item, body.title, body.attributes, body.hidden)
    created = await asyncio.wrap_future(service.store.put_item(record))
    return answer(await service.engine.item(item), 201 if created else 200)


async def _delete(service: Service, call: Call) -> Response:
    item = call.ids["item"]
    if not await asyncio.wrap_future(service.store.delete_item(item)):
        raise UnknownError(f"nothing is set for the item {item!r}, so nothing can be deleted; check the id.")
    return Response(None, 204)


async def _user(service: Service, call: Call) -> Response:
    return tagged(call, await service.engine.user(call.ids["user"], call.query["limit"]))


async def _forget(service: Service, call: Call) -> Response:
    return answer(await service.engine.forget(call.ids["user"]))
