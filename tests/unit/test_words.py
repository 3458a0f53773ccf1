"""Every reason and quirk that the judging code can say has words: read from the source, so that a new one can't go
without."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service import quirks, refusal_codes, remedies
from service.contracts import CONTRACTS
from service.dialects import leaks

SERVICE = Path(quirks.__file__).parent
JUDGING = [
    *(SERVICE / f"{name}.py" for name in ("answer", "probe", "refusal", "rules", "seen", "transport")),
    *sorted((SERVICE / "contracts").glob("*.py")),
    *sorted((SERVICE / "dialects").glob("*.py")),
]
NODES = [node for path in JUDGING for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
WORD = re.compile(r"[a-z]+(?:_[a-z]+)*")

# Functions that return reasons or quirks have names that say so.
RETURNS_REASON = re.compile(r"reason|problem|fault|early_end|^_settle$")
RETURNS_QUIRK = re.compile(r"quirk|^add_name$|^settle$")


def given(node: ast.AST | None) -> set[str]:
    """The words that an expression may give, not those that it asks about."""
    match node:
        case ast.Constant(value=str(text)) if WORD.fullmatch(text):
            return {text}
        case ast.IfExp():
            return given(node.body) | given(node.orelse)
        case ast.BoolOp():
            return set().union(*map(given, node.values))
        case ast.Tuple() | ast.Set():
            return set().union(*map(given, node.elts))
    return set()


def returned(named: re.Pattern[str]) -> Iterator[str]:
    for function in NODES:
        if isinstance(function, ast.FunctionDef) and named.search(function.name):
            for node in ast.walk(function):
                yield from given(node.value) if isinstance(node, ast.Return) else ()


def called(wanted: Callable[[ast.Call], bool]) -> Iterator[str]:
    for node in NODES:
        if isinstance(node, ast.Call) and wanted(node):
            yield from (word for argument in node.args[:1] for word in given(argument))


def assigned(names: set[str]) -> Iterator[str]:
    for node in NODES:
        if isinstance(node, ast.Assign):
            targets = {getattr(target, "attr", getattr(target, "id", "")) for target in node.targets}
            yield from given(node.value) if targets & names else ()


def name_of(function: ast.expr) -> str:
    return ast.unparse(function)


def the_reasons() -> set[str]:
    return {
        *returned(RETURNS_REASON),
        *called(lambda call: name_of(call.func).endswith("mark_broken") or name_of(call.func) == "Call"),
        *assigned({"broken", "conflict", "problem", "leak"}),
        *(word for node in NODES if isinstance(node, ast.Lambda) for word in given(node.body)),
        *(
            word
            for node in NODES
            if isinstance(node, ast.keyword) and node.arg == "unsent"
            for word in given(node.value)
        ),
        *(reason for codes in refusal_codes.CODES.values() for reason in codes.values() if reason),
        *(reason for _, reason, _ in refusal_codes.PHRASES if reason),
        *(family for family, _ in leaks._FAMILIES),
        *(f"{how}_{when}_event" for how in ("closed", "reset") for when in ("before", "after")),
    }


def the_quirks() -> set[str]:
    added = called(lambda call: re.search(r"(^|\.)quirks\.add$", name_of(call.func)) is not None)
    joined = (
        word
        for node in NODES
        if isinstance(node, (ast.BinOp, ast.AugAssign))
        for side in (getattr(node, "right", None), getattr(node, "value", None))
        if isinstance(side, ast.Set)
        for word in given(side)
    )
    chosen = (
        word
        for node in NODES
        if isinstance(node, ast.IfExp) and "quirks" in ast.unparse(node)
        for side in ast.walk(node.body)
        if isinstance(side, ast.Set)
        for word in given(side)
    )
    return {*added, *joined, *chosen, *returned(RETURNS_QUIRK)}


REASONS_WITH_WORDS = {reason for _, reason in [*remedies.REMEDIES, *remedies.HISTORY_REMEDIES]}
FAMILIES_WITH_WORDS = ("tls_",)


def test_the_source_is_read() -> None:
    """A search that finds nothing would agree with anything."""
    assert {
        "arguments_contradicted",
        "call_identity_unstable",
        "call_id_duplicated",
        "closed_after_event",
        "control_empty",
        "credential_missing",
        "delta_of_other_block",
        "dns",
        "error_in_stream",
        "event_loop_lag",
        "function_call",
        "hermes",
        "html_page",
        "http_framing",
        "no_route_for_model",
        "not_an_event_stream",
        "reasoning_replay_required",
        "redirect",
        "token_cap",
    } <= the_reasons()
    assert {
        "deltas_incomplete",
        "done_missing",
        "event_name_missing",
        "flaky",
        "forced_choice_ignored",
        "name_repeated",
        "parallel_flag_rejected",
        "usage_missing",
    } <= the_quirks()


@pytest.mark.parametrize("reason", sorted(the_reasons()))
def test_every_reason_has_a_remedy_of_its_own(reason: str) -> None:
    assert reason in REASONS_WITH_WORDS or reason.startswith(FAMILIES_WITH_WORDS)


@pytest.mark.parametrize("quirk", sorted(the_quirks()))
def test_every_quirk_is_explained(quirk: str) -> None:
    assert quirk in quirks.EXPLANATIONS


@pytest.mark.parametrize("name", [name for name, contract in CONTRACTS.items() if contract.example])
def test_every_history_that_can_be_put_right_has_a_remedy_of_its_own(name: str) -> None:
    assert (name, None) in remedies.HISTORY_REMEDIES
