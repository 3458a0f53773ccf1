"""Strict YAML: plain data and the line of each key, without the surprises of YAML 1.1.

Only `true` and `false` are booleans, only decimal digits are numbers, dates and the like stay text. Refused:
duplicate keys, merge keys, tags, keys that aren't text, and aliases that unfold into very much.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from service.config.mistakes import Loc

MAX_DEPTH = 64
MAX_REPEATED = 10_000
_MERGE_KEY = "<<"

_CORE_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "map", "seq")}
_PLAIN: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"|~|null|Null|NULL"), lambda _: None),
    (re.compile(r"true|false"), lambda text: text == "true"),
    (re.compile(r"[-+]?(0|[1-9][0-9]{0,999})"), int),
    (re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|(?=[1-9])[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?"), float),
)


@dataclass
class Document:
    """What was read. `faults` are mistakes of the YAML itself, by place; `unread` are places without a value."""

    data: Any = None
    lines: dict[Loc, int] = field(default_factory=dict)
    faults: list[tuple[Loc, int, str]] = field(default_factory=list)
    unread: set[Loc] = field(default_factory=set)


class _TooMuchError(Exception):
    """The document can't be walked to its end; the fault is already noted."""


def read(content: bytes) -> Document:
    """Read one YAML document. Never raises for what is in it: every fault is noted with its line."""
    document = Document()
    try:
        text = content.decode()
        if odd := yaml.reader.Reader.NON_PRINTABLE.search(text):
            document.faults.append(((), text.count("\n", 0, odd.start()) + 1, "holds a control character"))
            return document
        # libyaml: ten times faster, and its messages quote nothing from the file
        node = yaml.compose(text, Loader=yaml.CBaseLoader)
        if node is not None:
            document.data = _Walk(document).value(node, ())
    except UnicodeDecodeError as error:
        document.faults.append(((), content.count(b"\n", 0, error.start) + 1, "isn't UTF-8 text"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = (error.context, error.problem) if error.context and "while" not in error.context else (error.problem,)
        problem = ", ".join(filter(None, words))
        document.faults.append(((), mark.line + 1 if mark else 1, f"isn't valid YAML: {problem}"))
    except _TooMuchError:
        document.data = None
    return document


class _Walk:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.seen: set[int] = set()
        self.repeated = 0

    def value(self, node: yaml.Node, loc: Loc) -> Any:
        self._bound(node, loc)
        if node.tag not in _CORE_TAGS:
            return self._refuse(node, loc, "tags (a word after !) aren't taken")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, loc)
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.document.lines[(*loc, index)] = item.start_mark.line + 1
            return [self.value(item, (*loc, index)) for index, item in enumerate(node.value)]
        value = _scalar(node) if isinstance(node, yaml.ScalarNode) else None
        if isinstance(value, float) and not math.isfinite(value):
            return self._refuse(node, loc, "is too large a number")
        return value

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
        result: dict[str, Any] = {}
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = _scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                self.document.faults.append((loc, line, "a key must be text: put it in quotes"))
                continue
            if key == _MERGE_KEY:
                self.document.faults.append((loc, line, "merge keys (<<) aren't taken: write the keys out"))
                continue
            here = (*loc, key)
            if key in result:
                self.document.faults.append((here, line, f"given twice, first in line {first[key]}"))
            first.setdefault(key, line)
            self.document.lines[here] = line
            result[key] = self.value(value_node, here)
        return result

    def _bound(self, node: yaml.Node, loc: Loc) -> None:
        if id(node) in self.seen:
            self.repeated += 1
        self.seen.add(id(node))
        excess = ""
        if len(loc) > MAX_DEPTH:
            excess = f"is nested deeper than {MAX_DEPTH} levels"
        elif self.repeated > MAX_REPEATED:
            excess = f"has aliases that unfold into more than {MAX_REPEATED} values"
        if excess:
            self.document.faults.append(((), node.start_mark.line + 1, excess))
            raise _TooMuchError

    def _refuse(self, node: yaml.Node, loc: Loc, message: str) -> None:
        self.document.faults.append((loc, self.document.lines.get(loc, node.start_mark.line + 1), message))
        self.document.unread.add(loc)


def _scalar(node: yaml.ScalarNode) -> Any:
    text: str = node.value
    if not node.style:
        for pattern, convert in _PLAIN:
            if pattern.fullmatch(text):
                return convert(text)
    return text
