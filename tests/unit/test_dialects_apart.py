"""What a dialect does differently stands in the dialect: nothing else asks which one it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import service
from service.demo.request import DIALECTS as ALL_DIALECTS

ROOT = Path(service.__file__).parent
# The demo's provider is the other side of the wire; it reads requests of every dialect by itself.
APART = ("dialects", "demo")


def asks_which(source: str) -> list[int]:
    """The lines that compare or match a dialect's name."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            sides = [part for side in (node.left, *node.comparators) for part in (side, *getattr(side, "elts", ()))]
            asked = not any(isinstance(side, ast.Constant) and side.value is None for side in sides)
        elif isinstance(node, ast.Match):
            values = [
                part for case in node.cases for part in ast.walk(case.pattern) if isinstance(part, ast.MatchValue)
            ]
            sides, asked = [node.subject, *(value.value for value in values)], True
        else:
            continue
        if asked and any(_is_dialect(side) for side in sides):
            lines.append(node.lineno)
    return lines


def _is_dialect(node: ast.expr) -> bool:
    return (
        (isinstance(node, ast.Name) and node.id == "dialect")
        or (isinstance(node, ast.Attribute) and node.attr == "dialect")
        or (isinstance(node, ast.Constant) and node.value in ALL_DIALECTS)
    )


SOURCES = [path for path in sorted(ROOT.rglob("*.py")) if path.relative_to(ROOT).parts[0] not in APART]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_asks_which_dialect_it_is(path: Path) -> None:
    assert not asks_which(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("route.dialect == 'x'", True),
        ("dialect in ('x', 'y')", True),
        ("'gemini' != name", True),
        ("match route.dialect:\n case 'x': pass", True),
        ("match name:\n case 'openai-chat': pass", True),
        ("name in ['openai-chat', 'x']", True),
        ("dialect is not None", False),
        ("len(dialect.cap_fields) > 1", False),
        ("DIALECTS[route.dialect].reader()", False),
        ("name == 'x'", False),
    ],
)
def test_the_search_finds_what_it_should(source: str, found: bool) -> None:
    assert bool(asks_which(source)) is found
