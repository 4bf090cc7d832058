"""Schemas of the bodies of requests; their limits are those of the settings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetPydanticSchema,
    StrictBool,
    StrictInt,
    StrictStr,
    TypeAdapter,
    create_model,
)
from pydantic_core import core_schema

from dgcf.serve.events import records
from dgcf.serve.http.bodies import Body
from dgcf.serve.settings import Limits

INT64 = 2**63


class Form(BaseModel):
    """A body: unknown fields are refused, and no type is converted into another one."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Time = Annotated[StrictStr, Field(max_length=64, json_schema_extra={"format": "date-time"})]


def raw_id(limit: int) -> Any:
    """Return the type of a raw id: text of 1 to ``limit`` bytes of UTF-8, or an integer of 64 bits."""

    def check(value: Any) -> Any:
        if isinstance(value, str) and len(value) * 4 > limit and len(value.encode()) > limit:
            raise ValueError(f"the id has {len(value.encode()):,} bytes, expected at most {limit:,}")
        return value

    text = core_schema.str_schema(strict=True, min_length=1, max_length=limit)
    union = core_schema.union_schema(
        [core_schema.int_schema(strict=True, ge=-INT64, lt=INT64), text],
        custom_error_type="raw_id",
        custom_error_message=f"Input should be an id: text of 1 to {limit} bytes, or an integer of 64 bits",
    )
    schema = core_schema.no_info_after_validator_function(check, union)
    return Annotated[int | str, GetPydanticSchema(lambda _source, _handler: schema)]


def one_of(what: str, *types: Any) -> Any:
    """Return the type of values of one of several types, with one error for all of them."""
    schemas: list[Any] = [TypeAdapter(type_).core_schema for type_ in types]
    message = f"Input should be {what}"
    union = core_schema.union_schema(schemas, custom_error_type="one_of", custom_error_message=message)
    return Annotated[Any, GetPydanticSchema(lambda _source, _handler: union)]


ATTRIBUTE = one_of("text, a finite number, true or false", StrictBool, StrictStr, StrictInt, _Number)
TIME = one_of("seconds since 1970, or ISO 8601 with a zone", _Number, _Time)


class Bodies:
    """The bodies of all operations, by limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._id = limits, raw_id(limits.id_bytes)
        self._ids = Annotated[list[self._id], Field(max_length=limits.items)]  # type: ignore[name-defined]
        self.recommend = self._recommend()
        self.explain = self._explain()
        self.item = self._item()
        self.events = self._events()
        self.rollback = self._rollback()

    def _recommend(self) -> Body:
        limits, ids = self._limits, self._ids
        rules: dict[str, Any] = {
            "k": (int, Field(10, ge=1, le=limits.k, description="The length of a list.")),
            "seen": (bool, Field(False, description="Whether items that the user has may be in the list.")),
            "why": (bool, Field(False, description="Whether each item comes with its reasons.")),
            "only": (ids | None, Field(None, description="Recommend these items only.")),
            "exclude": (ids, Field([], description="Never recommend these items.")),
            "max_per": (_LIMITS, Field({}, description="How many items may share a value of an attribute.")),
        }
        users = (list[self._id], Field(max_length=limits.users, description="Users, known or not."))  # type: ignore[name-defined]
        several = _model("RecommendUsers", "Lists of several users.", users=users, **rules)
        one = _model(
            "RecommendFor",
            "The list of a new user who likes `items`, or of a user who has them besides.",
            items=(ids, Field(description="Items that the user likes.")),
            negative=(ids, Field([], description="Items to avoid, and what resembles them.")),
            user=(self._id | None, Field(None, description="A user who has the items besides those of training.")),
            visitor=(self._id | None, Field(None, description="Who a new user is to an experiment; chooses the arm.")),
            **rules,
        )
        examples = {
            "a new user": {"items": [50, 181], "negative": [7], "k": 5, "why": True},
            "several users": {"users": [1, 2], "k": 5},
        }
        return Body({"users": several, "items": one}, "Users, or the items of a new user; and rules.", examples)

    def _explain(self) -> Body:
        form = _model(
            "ExplainFor",
            "The score of an item for a new user who likes `items`, or for a user who has them besides.",
            items=(self._ids, Field(description="Items that the user likes.")),
            item=(self._id, Field(description="The item whose score is explained.")),
            negative=(self._ids, Field([], description="Items to avoid.")),
            user=(self._id | None, Field(None, description="A user who has the items besides those of training.")),
            visitor=(self._id | None, Field(None, description="Who a new user is to an experiment; chooses the arm.")),
            top=(int, Field(5, ge=0, le=self._limits.k, description="The number of parts of each kind, 0 for all.")),
        )
        return Body(
            {"": form}, "The items of a user, and the item to explain.", {"a score": {"items": [50], "item": 181}}
        )

    def _item(self) -> Body:
        attribute = Annotated[str, Field(min_length=1, max_length=records.ATTRIBUTE_NAME_LENGTH)]
        title = Field(None, min_length=1, max_length=records.TITLE_LENGTH, description="The title that is shown.")
        attributes: Any = Field({}, max_length=records.ATTRIBUTES, description="Values by name, for `max_per`.")
        form = _model(
            "ItemRecord",
            "What is known of an item, in place of what was set before.",
            title=(str | None, title),
            attributes=(dict[attribute, ATTRIBUTE], attributes),  # type: ignore[valid-type]
            hidden=(bool, Field(False, description="Whether the item is never recommended.")),
        )
        example = {"title": "The Third Man (1949)", "attributes": {"genre": "Noir", "year": 1949}, "hidden": False}
        return Body({"": form}, "Title, attributes and visibility.", {"a film": example})

    def _events(self) -> Body:
        key = Field(None, min_length=1, max_length=records.KEY_LENGTH, description="The idempotency key; made if null.")
        time = Field(None, description="Seconds since 1970, or ISO 8601 with a zone; now if null.")
        event = _record(
            "Event",
            "What a user did with an item.",
            user=(self._id, Field(description="The raw id of the user, known or not.")),
            item=(self._id, Field(description="The raw id of the item, known or not.")),
            kind=(Literal[records.KINDS], Field("like", description="`dislike` and `hide` exclude the item.")),
            weight=(float, Field(1.0, gt=0, le=records.MAX_WEIGHT, description="Stored, and exported.")),
            time=(TIME | None, time),
            key=(str | None, key),
        )
        several = Field(min_length=1, max_length=self._limits.events, description="All are stored, or none.")
        batch = _model("Events", "Several events.", events=(list[event], several))  # type: ignore[valid-type]
        one = {"user": "anna", "item": 50, "kind": "like", "key": "3d2c9a52"}
        examples = {"one event": one, "several events": {"events": [one, {"user": 7, "item": 181, "kind": "hide"}]}}
        return Body({"events": batch, "user": TypeAdapter(event)}, "One event, or several.", examples)

    def _rollback(self) -> Body:
        version = Field(None, ge=1, lt=INT64, description="A version of GET /v1/models; the one before if null.")
        form = _model("Rollback", "The model to return to.", version=(int | None, version))
        return Body({"": form}, "A version; may be left out.", {"a version": {"version": 3}}, optional=True)


_LIMITS = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=128)], Annotated[int, Field(ge=1, lt=INT64)]],
    Field(max_length=16),
]


def _record(name: str, description: str, **fields: Any) -> type[BaseModel]:
    return create_model(name, __base__=Form, __doc__=description, **fields)


def _model(name: str, description: str, **fields: Any) -> TypeAdapter[Any]:
    return TypeAdapter(_record(name, description, **fields))
