"""A JSON value with its place in the document, which error messages name."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from aotpack.errors import MalformedArchiveError

INT64_MAX = (1 << 63) - 1
# Deep enough for any model, shallow enough for every reader's stack.
MAX_DEPTH = 128
# A value takes many times its text in memory.
MAX_BYTES = 64 << 20
MAX_VALUES = 1 << 21
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"')
_SHA256 = re.compile(r"[0-9a-f]{64}")


def malformed(message: str) -> NoReturn:
    raise MalformedArchiveError(f"malformed archive: {message}")


def parse_json(data: bytes) -> Any:
    """Strict JSON: UTF-8, no byte order mark, no duplicate keys, no NaN; and only in its canonical encoding."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) != len(items):
            twice = next(key for key, count in Counter(key for key, _ in items).items() if count > 1)
            malformed(f"manifest: the key {twice!r} appears twice in one object")
        return result

    def constant(name: str) -> NoReturn:
        malformed(f"manifest: {name} is not a JSON number")

    def real(text: str) -> float:
        value = float(text)
        if abs(value) == float("inf"):
            malformed(f"manifest: the number {text} is out of range")
        return value

    if len(data) > MAX_BYTES:
        malformed(f"manifest: {len(data)} bytes; at most {MAX_BYTES} are allowed")
    if _values(data) > MAX_VALUES and _values(_STRING.sub(b"0", data)) > MAX_VALUES:
        malformed(f"manifest: more than {MAX_VALUES} values")
    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=constant, parse_float=real)
    except UnicodeDecodeError as error:
        malformed(f"manifest: not UTF-8 at byte {error.start}")
    except RecursionError:
        malformed("manifest: nested too deeply")
    except ValueError as error:
        malformed(f"manifest: not JSON: {error}")
    _check_depth(value)
    return value


def _values(data: bytes) -> int:
    """How many values there are in canonical JSON; where strings have brackets or commas, no fewer."""
    opened = data.count(b"[") + data.count(b"{")
    return 1 + data.count(b",") + opened - data.count(b"[]") - data.count(b"{}")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        containers = (item for item in level if isinstance(item, (dict, list)))
        level = [item for container in containers for item in _items(container)]
        if not level:
            return
    if any(isinstance(item, (dict, list)) for item in level):
        malformed(f"manifest: nested more than {MAX_DEPTH} deep")


def _items(container: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


class Node:
    """One value of the manifest and its place, such as `entries[0].inputs[1].shape`."""

    __slots__ = ("value", "where")
    document = "manifest"

    def __init__(self, value: Any, where: str) -> None:
        self.value = value
        self.where = where

    def fail(self, message: str) -> NoReturn:
        malformed(f"{self.document}: {self.where}: {message}")

    def _expect(self, kind: type, name: str) -> None:
        # bool is an int in Python, but not in JSON.
        if not isinstance(self.value, kind) or (kind is int and isinstance(self.value, bool)):
            self.fail(f"expected {name}, got {_describe(self.value)}")

    def object(self, *keys: str) -> dict[str, Node]:
        """The members of an object that has exactly these keys."""
        self._expect(dict, "an object")
        for key in keys:
            if key not in self.value:
                self.fail(f"the key {key!r} is missing")
        for key in self.value:
            if key not in keys:
                self.fail(f"unknown key {key!r}")
        inside = "" if self.where == "top" else f"{self.where}."
        return {key: type(self)(self.value[key], f"{inside}{key}") for key in keys}

    def list(self) -> Iterator[Node]:
        self._expect(list, "a list")
        return (type(self)(item, f"{self.where}[{i}]") for i, item in enumerate(self.value))

    def string(self, *, empty: bool = False) -> str:
        self._expect(str, "a string")
        if not empty and not self.value:
            self.fail("empty")
        return str(self.value)

    def integer(self, low: int = -INT64_MAX - 1, high: int = INT64_MAX) -> int:
        self._expect(int, "an integer")
        if not low <= self.value <= high:
            self.fail(f"{self.value} is not in [{low}, {high}]")
        return int(self.value)

    def index(self, size: int, what: str) -> int:
        self._expect(int, "an integer")
        if not 0 <= self.value < size:
            self.fail(f"index {self.value} is out of range: there are {size} {what}")
        return int(self.value)

    def boolean(self) -> bool:
        self._expect(bool, "true or false")
        return bool(self.value)

    def number(self) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            self.fail(f"expected a number, got {_describe(self.value)}")
        try:
            return float(self.value)
        except OverflowError:
            self.fail("too large a number")

    def sha256(self) -> str:
        text = self.string()
        if not _SHA256.fullmatch(text):
            self.fail("expected 64 lowercase hex digits")
        return text

    def choice(self, *names: str) -> str:
        text = self.string()
        if text not in names:
            self.fail(f"{text!r} is not one of {', '.join(names)}")
        return text


def _describe(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "true or false", int: "an integer", float: "a number", str: "a string", list: "a list"}.get(
        type(value), "an object"
    )


def unique(nodes_and_names: Sequence[tuple[Node, str | int]]) -> None:
    """Fails on the first name that came before."""
    seen: set[str | int] = set()
    for node, name in nodes_and_names:
        if name in seen:
            node.fail(f"the name {name!r} appears twice")
        seen.add(name)
