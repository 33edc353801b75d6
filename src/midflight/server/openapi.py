"""The OpenAPI 3.1 document, made of the table of routes and of the types that they name.

Schemas come from the dataclasses and typed dictionaries themselves; what is written by hand here
is only how a type becomes JSON Schema.
"""

import dataclasses
import enum
import re
import types
import typing
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import midflight
from midflight.protocol.views import ErrorView

if TYPE_CHECKING:
    from midflight.server.application import Entry

_PLAIN = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    types.NoneType: {"type": "null"},
    Any: {},
}


def document(entries: Iterable["Entry"], prefix: str) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    paths: dict[str, dict[str, Any]] = {}
    for entry in entries:
        paths.setdefault(prefix + entry.path, {})[entry.method.lower()] = _operation(entry, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Midflight", "version": midflight.__version__},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(entry: "Entry", schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": entry.summary,
        "operationId": entry.work.__name__,
        "parameters": [*_in_path(entry.path), *_in_query(entry.query, schemas)],
        "responses": {
            str(entry.status): {"description": entry.summary, "content": _answer(entry, schemas)},
            "default": {"description": "an error", "content": _json(ErrorView, schemas)},
        },
    }
    if entry.body is not None:
        found["requestBody"] = {"required": True, "content": _json(entry.body, schemas)}
    return found


def _answer(entry: "Entry", schemas: dict[str, Any]) -> dict[str, Any]:
    if entry.answer is bytes:
        return {"text/plain": {"schema": {"type": "string"}}}
    return _json(types.NoneType if entry.answer is None else entry.answer, schemas)


def _json(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema(kind, schemas)}}


def _in_path(path: str) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", path)
    return [{"name": n, "in": "path", "required": True, "schema": _PLAIN[str]} for n in names]


def _in_query(kind: Any, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    if kind is None:
        return []
    required = _required(kind)
    return [
        {"name": n, "in": "query", "required": n in required, "schema": schema(hint, schemas)}
        for n, hint in typing.get_type_hints(kind).items()
    ]


def schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of a type; those with a name go to `schemas`, and are referred to."""
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema(argument, schemas) for argument in arguments]}
    if origin in (list, tuple):
        return {"type": "array", "items": schema(arguments[0], schemas)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": schema(arguments[1], schemas)}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"type": "string", "enum": [member.value for member in kind]}
    if kind.__name__ not in schemas:
        schemas[kind.__name__] = {}  # in case it holds itself
        schemas[kind.__name__] = _object(kind, schemas)
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _object(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    found: dict[str, Any] = {
        "type": "object",
        "properties": {name: schema(hint, schemas) for name, hint in hints.items()},
        "required": sorted(_required(kind)),
    }
    if dataclasses.is_dataclass(kind):
        found["additionalProperties"] = False
    return found


def _required(kind: Any) -> set[str]:
    if not dataclasses.is_dataclass(kind):
        return set(kind.__required_keys__)
    return {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
