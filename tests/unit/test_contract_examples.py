"""The histories that pages show as put right really are: what refuses the broken ones would take them."""

from __future__ import annotations

import json

import pytest

from service.contracts import CONTRACTS
from service.demo import predicates
from service.demo.request import Request

EXAMPLES = {name: json.loads(contract.example) for name, contract in CONTRACTS.items() if contract.example}


def request(name: str) -> Request:
    dialect = "anthropic-messages" if name == "mixed_result_carrier" else "openai-chat"
    return Request(dialect, body=EXAMPLES[name])


def test_every_claim_about_a_history_has_an_example() -> None:
    histories = [name for name, contract in CONTRACTS.items() if "history.rejected" in {r.id for r in contract.rules}]
    assert list(EXAMPLES) == histories


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("undeclared_tool_history", "flattened_history"),
        ("displaced_tool_results", "clean_history"),
        ("missing_tool_results", "clean_history"),
        ("orphaned_tool_results", "flattened_history"),
        ("duplicate_tool_results", "clean_history"),
        ("tool_choice_none_history", "clean_history"),
        ("mixed_result_carrier", "clean_history"),
    ],
)
def test_an_example_is_the_history_put_right(name: str, form: str) -> None:
    assert predicates.holds(form, request(name))


def test_what_each_claim_is_about_is_not_in_its_example() -> None:
    assert EXAMPLES["undeclared_tool_history"].keys() == {"messages"}
    assert "tool_choice" not in EXAMPLES["tool_choice_none_history"]
    kinds = [[part["type"] for part in m["content"]] for m in EXAMPLES["mixed_result_carrier"]["messages"][1:3]]
    assert kinds == [["tool_use"], ["tool_result"]]
