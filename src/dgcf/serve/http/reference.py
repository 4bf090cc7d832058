"""The OpenAPI document as a page for readers: HTML without scripts, styled by ``page/docs.css``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from dgcf.serve.errors import KINDS
from dgcf.serve.http.bodies import JSON

Schema = Mapping[str, Any]
_RANGES = (
    ("{}", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    ("{} characters", ("minLength", "maxLength", "", "")),
    ("{} entries", ("minItems", "maxItems", "", "")),
    ("{} entries", ("", "maxProperties", "", "")),
)
"""How the bounds of a schema are shown: least and greatest value, and the same without the bound itself."""
_FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}: HTTP interface</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<link rel="stylesheet" href="page/docs.css">
</head>
<body>
<header>
<h1>{title}: HTTP interface</h1>
<p>{description} Version {version}. <a href="openapi.json">OpenAPI document</a>, <a href="./">page</a>.</p>
</header>
<nav aria-label="Operations">{contents}</nav>
<main>{operations}<h2 id="problems">Problems</h2>{problems}<h2 id="schemas">Schemas</h2>{schemas}</main>
</body>
</html>
"""


def reference(document: Mapping[str, Any]) -> bytes:
    """Return the page of an OpenAPI document."""
    by_tag: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    about, schemas = document["info"], document["components"]["schemas"]
    page = _FRAME.format(
        title=escape(about["title"]),
        description=escape(about["description"]),
        version=escape(about["version"]),
        contents="".join(_contents(tag, operations) for tag, operations in by_tag.items()),
        operations="".join(
            f"<h2>{escape(tag.capitalize())}</h2>" + "".join(_operation(*operation) for operation in operations)
            for tag, operations in by_tag.items()
        ),
        problems=_table(("Status", "Meaning"), ((str(status), f"{title}.") for status, (_, title) in KINDS.items())),
        schemas="".join(_component(name, schema) for name, schema in schemas.items()),
    )
    return page.encode()


def _contents(tag: str, operations: Iterable[tuple[str, str, Mapping[str, Any]]]) -> str:
    entries = (
        f'<li><a href="#{escape(operation["operationId"])}">{_line(method, path)}</a></li>'
        for method, path, operation in operations
    )
    return f"<h2>{escape(tag.capitalize())}</h2><ul>{''.join(entries)}</ul>"


def _line(method: str, path: str) -> str:
    return f'<span class="method {method.lower()}">{method}</span> <code>{escape(path)}</code>'


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    name = escape(operation["operationId"])
    parts = [
        f'<h3 id="{name}"><a href="#{name}">{_line(method, path)}</a></h3>',
        f"<p>{_text(operation['summary'])}. {_text(operation.get('description', ''))}</p>",
        _parameters(operation.get("parameters", ())),
        _body(operation.get("requestBody")),
        _responses(operation["responses"]),
    ]
    return f"<section>{''.join(parts)}</section>"


def _parameters(parameters: Sequence[Mapping[str, Any]]) -> str:
    rows = (
        (part["name"], part["in"], _type(part["schema"]), _text(part["description"]) + _default(part["schema"]))
        for part in parameters
    )
    return _table(("Parameter", "In", "Type", "Meaning"), rows)


def _body(body: Mapping[str, Any] | None) -> str:
    if body is None:
        return ""
    content = body["content"][JSON]
    examples = "".join(
        f"<figure><figcaption>{escape(name)}</figcaption><pre>{_json(example['value'])}</pre></figure>"
        for name, example in content["examples"].items()
    )
    return f"<p>Body: {_type(content['schema'])}. {_text(body['description'])}</p>{examples}"


def _responses(responses: Mapping[str, Mapping[str, Any]]) -> str:
    rows, problems = [], []
    for status, response in responses.items():
        content: Mapping[str, Any] = response.get("content", {})
        if status >= "4":
            problems.append(status)
            continue
        types = ", ".join(
            _type(of["schema"]) if media_type == JSON else f"<code>{escape(media_type)}</code>"
            for media_type, of in content.items()
        )
        headers = ", ".join(response.get("headers", {}))
        rows.append(
            (status, "", types or "–", _text(response["description"]) + (f" Headers: {headers}." if headers else ""))
        )
    table = _table(("Status", "", "Content", "Meaning"), rows)
    return f'{table}<p class="problems"><a href="#problems">Problems</a>: {", ".join(problems)}.</p>'


def _component(name: str, schema: Schema) -> str:
    required = schema.get("required", ())
    rows = (
        (field, "" if field in required else "optional", _type(of), _text(of.get("description", "")) + _default(of))
        for field, of in schema.get("properties", {}).items()
    )
    about = f"<p>{_text(schema['description'])}</p>" if "description" in schema else ""
    examples = "".join(f"<pre>{_json(example)}</pre>" for example in schema.get("examples", ()))
    table = _table(("Field", "", "Type", "Meaning"), rows)
    return f'<section><h3 id="schema-{escape(name)}">{escape(name)}</h3>{about}{table}{examples}</section>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the first column is escaped here, the others are HTML."""
    body = "".join(
        f'<tr><th scope="row"><code>{escape(name)}</code></th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for name, *cells in rows
    )
    if not body:
        return ""
    head = "".join(f'<th scope="col">{text}</th>' if text else "<td></td>" for text in heads)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _type(schema: Schema) -> str:
    """Return what values a schema allows."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    several = schema.get("anyOf") or schema.get("oneOf")
    if several:
        return " or ".join(_type(one) for one in several)
    if "const" in schema:
        return f"<code>{_json(schema['const'])}</code>"
    if "enum" in schema:
        return ", ".join(f"<code>{_json(value)}</code>" for value in schema["enum"])
    kind = str(schema.get("type", "any value"))
    more = [of.format(bounds) for of, names in _RANGES if (bounds := _bounds(schema, names))]
    more += [str(schema["format"])] if "format" in schema else []
    inner = ""
    if kind == "array":
        inner = f" of {_type(schema.get('items', {}))}"
    elif isinstance(schema.get("additionalProperties"), Mapping):
        inner = f" of {_type(schema['additionalProperties'])}"
    return f"{escape(kind)}{inner}" + (f" ({escape(', '.join(more))})" if more else "")


def _bounds(schema: Schema, names: Sequence[str]) -> str:
    """Return the range between two bounds of a schema, empty if there is none."""
    low, high, above, below = (schema.get(name) for name in names)
    if low is not None and high is not None:
        return f"{low:,} to {high:,}"
    words = (("at least", low), ("above", above), ("at most", high), ("below", below))
    return " and ".join(f"{word} {value:,}" for word, value in words if value is not None)


def _default(schema: Schema) -> str:
    default = schema.get("default")
    return "" if default in (None, "", [], {}) else f" Default: <code>{_json(default)}</code>."


def _text(text: str) -> str:
    """Return text as HTML; what is between backticks is code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))


def _json(value: Any) -> str:
    return escape(json.dumps(value, ensure_ascii=False))
