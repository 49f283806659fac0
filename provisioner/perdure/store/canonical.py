"""JSON as it stands in objects: one way to write a value, and a strict way to read it."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from .envelope import corrupt


def dump(value: Any) -> bytes:
    """Raises ValueError, TypeError, RecursionError for what JSON can't hold."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def load(name: str, data: memoryview) -> dict[str, Any]:
    """The JSON object in the body of `name`. Raises Corrupt."""
    try:
        value = json.loads(bytes(data).decode("ascii"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise corrupt(name, "it is not the JSON that it should be") from None
    if not isinstance(value, dict):
        raise corrupt(name, "it is not a JSON object")
    return value


def integer(name: str, data: dict[str, Any], key: str, *, low: int = 0, high: int = (1 << 63) - 1) -> int:
    value = data.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise corrupt(name, f"{key} is {_short(value)}")
    return value


def text(name: str, data: dict[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str):
        raise corrupt(name, f"{key} is {_short(value)}")
    return value


def items(name: str, data: dict[str, Any], key: str) -> list[Any]:
    value = data.get(key)
    if not isinstance(value, list):
        raise corrupt(name, f"{key} is {_short(value)}")
    return value


def _short(value: Any) -> str:
    found = repr(value)
    return found if len(found) <= 40 else f"{found[:40]}…"


def _no_constant(constant: str) -> NoReturn:
    raise ValueError(constant)
