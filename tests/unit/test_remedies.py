"""Every verdict says what to do next, in words that fit it."""

from __future__ import annotations

import pytest

from service import quirks, remedies
from service.contracts import CONTRACTS
from service.model import Outcome, Status
from service.remedies import first_step, in_words, remedy

UNKNOWN = "See the verdict's detail. This version doesn't know its status."


@pytest.mark.parametrize("status", Status)
def test_every_status_has_plain_words_and_a_remedy_of_its_own(status: Status) -> None:
    assert status in remedies.WORDS
    assert remedy(status, None) == remedies.REMEDIES[status, None]


@pytest.mark.parametrize("status", Status)
def test_a_reason_without_a_remedy_falls_back_to_the_status(status: Status) -> None:
    assert remedy(status, "never_heard_of") == remedy(status, None)


def test_a_remedy_for_a_reason_has_a_status_to_fall_back_to() -> None:
    assert {status for status, _ in remedies.REMEDIES} == {s for s, reason in remedies.REMEDIES if reason is None}


@pytest.mark.parametrize("outcome", Outcome)
def test_a_status_from_a_newer_version_gets_the_remedy_of_its_outcome(outcome: Outcome) -> None:
    assert remedy("word_of_tomorrow", None, outcome) not in (UNKNOWN, "")


def test_a_status_that_nothing_is_known_of_points_to_the_detail() -> None:
    assert remedy("word_of_tomorrow", "x") == UNKNOWN
    assert in_words("word_of_tomorrow") == "Word of tomorrow"


@pytest.mark.parametrize(
    ("status", "reason", "start"),
    [
        ("provider_error", "http_400", "Check the route's configuration: the request is refused in every form."),
        ("provider_error", "http_422", "Check the route's configuration: the request is refused in every form."),
        ("provider_error", "http_500", "Wait, or fail over"),
        ("provider_error", "http_408", "Wait, or fail over"),
        ("provider_error", None, "Wait, or fail over"),
        ("endpoint_auth_failed", "http_401", "Rotate or fix the key."),
        ("unreachable", "dns", "Check the host's name"),
        ("unreachable", "tls_certificate", "Fix the certificate"),
        ("unreachable", "tls_handshake", "Check TLS at the server"),
        ("not_sent", "credential_missing", "Set the key's variable or file"),
        ("tools_payload_rejected", "parallel_flag_rejected", "Remove parallel_tool_calls"),
        ("malformed_tool_call", "arguments_cumulative", "Tell the server's operator"),
        ("stream_early_eof", "closed_after_event", "Fail over, and check time limits"),
    ],
)
def test_the_finest_remedy_wins(status: str, reason: str | None, start: str) -> None:
    assert remedy(status, reason).startswith(start)


@pytest.mark.parametrize(
    ("contract", "reason", "start"),
    [
        ("undeclared_tool_history", "http_400", "Declare the tools again, or flatten calls and results to text."),
        ("displaced_tool_results", None, "Hoist the results"),
        ("missing_tool_results", "http_400", "Send a result for every call."),
        ("orphaned_tool_results", "http_400", "Drop a result whose call is gone"),
        ("duplicate_tool_results", "http_400", "Keep the last result of a call only."),
        ("tool_choice_none_history", "http_400", "Leave tool_choice out"),
        ("mixed_result_carrier", "http_400", "Send the user's words in a message of their own."),
        ("missing_tool_results", "reasoning_replay_required", "Replay the assistant's reasoning fields"),
        ("agent_turn", "http_400", "Tell the server's operator"),
        ("agent_turn", "reasoning_replay_required", "Look for a gateway on the way that drops reasoning."),
        ("contract_of_tomorrow", "http_400", "Change what the client sends."),
        (None, None, "Change what the client sends."),
    ],
)
def test_a_refused_history_is_put_right_by_its_contract(contract: str | None, reason: str | None, start: str) -> None:
    assert remedy("history_rejected", reason, contract=contract).startswith(start)


def test_other_statuses_have_one_remedy_for_all_contracts() -> None:
    for contract in CONTRACTS:
        assert remedy("timeout", "stalled", contract=contract) == remedy("timeout", "stalled")


@pytest.mark.parametrize("text", sorted({*remedies.REMEDIES.values(), *remedies.HISTORY_REMEDIES.values()}))
def test_the_first_sentence_stands_alone_in_a_table(text: str) -> None:
    step = first_step(text)
    assert step.endswith(".")
    assert len(step) <= 100
    assert text.startswith(step)


@pytest.mark.parametrize(
    "text", [*remedies.REMEDIES.values(), *remedies.HISTORY_REMEDIES.values(), *quirks.EXPLANATIONS.values()]
)
def test_texts_are_whole_sentences_with_single_spaces(text: str) -> None:
    assert text[0].isupper()
    assert text[-1] == "."
    assert "  " not in text


def test_a_quirk_without_an_explanation_says_so() -> None:
    assert quirks.explain("done_missing").startswith("The stream never sends the closing [DONE].")
    assert quirks.explain("quirk_of_tomorrow").startswith("No explanation is known")
