"""docs/logs.md against the code: the words that machines look for, and the fields that come with them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEVELS = {name: name for name in ("debug", "info", "warning", "error")} | {"log": "by kind"}


def in_code() -> dict[str, tuple[str, set[str]]]:
    """Every action with its level and its fields, from the calls of the loggers."""
    found: dict[str, tuple[str, set[str]]] = {}
    for path in sorted((ROOT / "service").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS):
                continue
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            action = given.pop("action", None)
            if not isinstance(action, ast.Constant):
                continue
            level, fields = found.get(action.value, (LEVELS[node.func.attr], set()))
            assert level == LEVELS[node.func.attr], f"{action.value} has two levels"
            found[action.value] = (level, fields | {name for name in given if name is not None})
    return found


def told() -> set[str]:
    """The actions of people: each is told by one function, with who it was and to what."""
    tree = ast.parse((ROOT / "service" / "web" / "actions.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "_told"]
    return {ast.literal_eval(call.args[1]) for call in calls}


def in_docs() -> dict[str, tuple[str, set[str]]]:
    lines = (ROOT / "docs" / "logs.md").read_text().splitlines()
    rows = [line.split("|")[1:-1] for line in lines if line.startswith("| `")]
    return {
        action.strip(" `"): (level.strip(), set(re.findall(r"`(\w+)`", fields))) for action, level, fields, _ in rows
    }


def test_every_action_is_documented_with_its_level_and_fields() -> None:
    code, docs = in_code(), in_docs()
    people = told()
    assert len(code) > 20
    assert len(people) == 3
    assert (code.keys() | people) - docs.keys() == set(), "not in docs/logs.md"
    assert docs.keys() - code.keys() - people == set(), "logged no more"
    assert {action: docs[action] for action in code} == code


def test_every_line_of_ours_carries_an_action() -> None:
    loggers = re.compile(r"_?log\.(debug|info|warning|error|log)")
    bare = [
        f"{path.name}:{node.lineno}"
        for path in sorted((ROOT / "service").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and loggers.fullmatch(ast.unparse(node.func))
        if not any(keyword.arg == "action" for keyword in node.keywords)
    ]
    assert bare == []
