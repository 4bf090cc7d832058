"""The OpenAPI document, its page for readers, and the files of the page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import jsonschema_rs
import pytest

from dgcf import serve
from dgcf.serve.errors import KINDS
from dgcf.serve.http.openapi import ALWAYS, GUARDED
from dgcf.serve.http.reference import reference
from dgcf.serve.http.routes.page import MEDIA_TYPES, files
from tests.serve.in_process import InProcess

PAGE = Path(serve.__file__).parent / "page"


class Elements(HTMLParser):
    """Collects elements with their attributes, and the ids that links lead to."""

    VOID = ("meta", "link")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_of_the_document_needs_no_script_and_nothing_from_elsewhere(service: InProcess) -> None:
    reply = service.get("/docs")
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    page = Elements(reply.body.decode())
    assert page.open == []
    assert "script" not in [tag for tag, _ in page.elements]
    for _, attributes in page.elements:
        assert "style" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        for name in ("href", "src"):
            assert "//" not in (attributes.get(name) or "")


def test_the_page_has_every_operation_and_schema_and_all_its_links_lead_somewhere(service: InProcess) -> None:
    page = Elements(service.get("/docs").body.decode())
    targets = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(targets)) == len(targets)
    document = service.get("/openapi.json").json
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert {operation["operationId"] for operation in operations} <= set(targets)
    assert {f"schema-{name}" for name in document["components"]["schemas"]} <= set(targets)
    links = {attributes["href"] or "" for tag, attributes in page.elements if tag == "a"}
    assert {link[1:] for link in links if link.startswith("#")} <= set(targets)
    assert {link for link in links if not link.startswith("#")} == {"openapi.json", "./"}
    assert [attributes["href"] for tag, attributes in page.elements if tag == "link"] == ["data:,", "page/docs.css"]


def test_texts_of_the_document_are_escaped(service: InProcess) -> None:
    document = service.get("/openapi.json").json
    hostile = "<script>alert('x')</script>`<b>`"
    document["info"]["title"] = hostile
    for methods in document["paths"].values():
        for operation in methods.values():
            operation["summary"] = hostile
    text = reference(document).decode()
    assert "<script" not in text
    assert "<b>" not in text


def test_every_operation_documents_what_it_and_the_server_can_answer(service: InProcess) -> None:
    for path, methods in service.document.openapi["paths"].items():
        for method, operation in methods.items():
            statuses = {int(status) for status in operation["responses"]}
            assert set(ALWAYS) <= statuses
            assert set(GUARDED) <= statuses or "security" not in operation
            assert ("requestBody" in operation) == (415 in statuses) == (413 in statuses)
            assert ("{" in path) == (404 in statuses) or method == "post"
            assert {status for status in statuses if status >= 400} <= KINDS.keys()
            for status, response in operation["responses"].items():
                if status >= "4":
                    assert list(response["content"]) == ["application/problem+json"]


def test_examples_follow_their_schemas(service: InProcess) -> None:
    examples = 0
    for methods in service.document.openapi["paths"].values():
        for operation in methods.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                names = [one["$ref"].rpartition("/")[2] for one in content["schema"].get("oneOf", [content["schema"]])]
                for example in content["examples"].values():
                    assert sum(service.document.validator(name).is_valid(example["value"]) for name in names) == 1
                    examples += 1
            for parameter in operation.get("parameters", ()):
                if "example" in parameter:
                    jsonschema_rs.validate(parameter["schema"], parameter["example"])
    for name, schema in service.document.openapi["components"]["schemas"].items():
        for example in schema.get("examples", ()):
            service.document.validator(name).validate(example)
            examples += 1
    assert examples >= 10


@pytest.mark.parametrize("name", sorted(path.name for path in PAGE.iterdir() if path.suffix in MEDIA_TYPES))
def test_every_file_of_the_page_is_served_as_it_is(service: InProcess, name: str) -> None:
    reply = service.get(f"/page/{name}")
    assert reply.body == (PAGE / name).read_bytes()
    assert reply.headers["content-type"] == MEDIA_TYPES[Path(name).suffix]


def test_files_that_the_page_names_are_there(service: InProcess) -> None:
    assert service.get("/").body == (PAGE / "index.html").read_bytes()
    named = set(re.findall(r'"page/([^"]+)"', service.get("/").body.decode()))
    for script in PAGE.glob("*.js"):
        named |= set(re.findall(r'from "\./([^"]+)"', script.read_text(encoding="utf-8")))
    assert {"app.js", "style.css"} <= named <= files().keys()
    assert "__init__.py" not in files()
