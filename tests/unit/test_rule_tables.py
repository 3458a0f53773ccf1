"""The tables of all contracts: their rule ids are a public contract, and each ends in a rule that matches anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.contracts import CONTRACTS, Contract
from service.rules import Circumstances, Facts, judge
from tests.exchanges import R4, ROUTE

KNOWN = (Path(__file__).parent / "rule_ids.txt").read_text(encoding="utf-8").split()

# Every contract speaks of itself first; all history contracts share one table.
PREFIXES = {"native_tools", "agent_turn", "parallel_tool_calls"}


@pytest.fixture(params=CONTRACTS.values(), ids=CONTRACTS)
def contract(request: pytest.FixtureRequest) -> Contract:
    asked: Contract = request.param
    return asked


def test_ids_are_unique_within_a_table(contract: Contract) -> None:
    ids = [rule.id for rule in contract.rules]
    assert len(ids) == len(set(ids))


def test_ids_name_their_table(contract: Contract) -> None:
    prefix = contract.name if contract.name in PREFIXES else "history"
    assert {rule.id.partition(".")[0] for rule in contract.rules} == {"gate", prefix}


def test_no_id_is_lost_and_none_is_new_without_being_known() -> None:
    ids = {rule.id for contract in CONTRACTS.values() for rule in contract.rules}
    assert len(KNOWN) == len(set(KNOWN))
    assert set(KNOWN) == ids, "rule ids are permanent: add new ones to rule_ids.txt, never take one away"


def test_one_id_is_one_rule_wherever_it_stands() -> None:
    seen: dict[str, tuple[str, str]] = {}
    for contract in CONTRACTS.values():
        for rule in contract.rules:
            assert seen.setdefault(rule.id, (rule.status, rule.because)) == (rule.status, rule.because)


def test_the_last_rule_matches_anything(contract: Contract) -> None:
    last = contract.rules[-1]
    facts = Facts(Circumstances(), None, control=False, spent=False)
    assert last.id.endswith(".undecided")
    assert judge([last], facts).rule_id == last.id


def test_a_table_always_speaks(contract: Contract) -> None:
    for exchanges in ([], [R4]):
        conclusion, _ = contract.conclude(ROUTE, exchanges, Circumstances())
        assert conclusion.rule_id in KNOWN


def test_each_because_is_a_sentence(contract: Contract) -> None:
    for rule in contract.rules:
        assert rule.because.endswith(".")
        assert rule.because[0] in "`" or rule.because[0].isupper() or rule.because.startswith("stream:")
        assert len(rule.because) <= 160
