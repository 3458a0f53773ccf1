"""What was seen, as a stored verdict keeps it, and back: enough to conclude again, without a text in it.

What only a text or a message could tell stands beside it as a fact: what a refusal said of replayed reasoning, and how
many calls could be replayed. A fact that wasn't recorded isn't known: reading it back fails rather than guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, StrEnum
from typing import Any, TypeVar

from service.contracts.replays import replay_reason
from service.model import (
    Ask,
    Body,
    Call,
    Choice,
    End,
    Exchange,
    Message,
    PastCall,
    Reading,
    Refusal,
    Refused,
    Replay,
    Role,
    Route,
    TokenCap,
)
from service.rules import Circumstances

_SAID_LIMIT = 100
_NOT_STORED = frozenset({"text", "messages", "tools", "replay"})
_REPLAYED = "replayed_calls"

T = TypeVar("T")


class Lack(StrEnum):
    """Why nothing can be concluded from stored facts."""

    NO_FACTS = "no_facts"  # none were stored
    TOO_OLD = "too_old"  # recorded by a version that kept less than is needed now
    TOO_NEW = "too_new"  # in words of a version to come
    NAMES_REDACTED = "names_redacted"  # redaction changed a model's name, so that names can't be compared
    UNKNOWN_CONTRACT = "unknown_contract"  # nobody asks it now


class NotRecorded(Exception):  # noqa: N818 - a state of the world, not a mistake
    """Stored facts that don't say enough."""

    def __init__(self, lack: Lack) -> None:
        super().__init__(lack)
        self.lack = lack


@dataclass(frozen=True)
class Observed:
    """What a contract concludes from. The route holds what the ladder and the rules look at, and nothing else."""

    route: Route
    exchanges: tuple[Exchange, ...]
    circumstances: Circumstances


def record(
    route: Route, exchanges: Sequence[Exchange], circumstances: Circumstances, redact: Callable[[str, int], str]
) -> dict[str, Any]:
    """All of it as plain data for JSON. What a provider said is redacted."""
    pattern = route.served_model_pattern
    seen = [_plain(exchange, redact) for exchange in exchanges]
    asked = {
        "model": redact(route.model, _SAID_LIMIT),
        "served_model_pattern": redact(pattern, _SAID_LIMIT) if pattern is not None else None,
        "token_cap_field": route.token_cap.field,
        "parallel_tool_calls": route.parallel_tool_calls,
        "include_usage": route.include_usage,
    }
    served = [
        (exchange.reading.served_model, shown["reading"]["served_model"])
        for exchange, shown in zip(exchanges, seen, strict=True)
        if exchange.reading
    ]
    names = [(route.model, asked["model"]), (pattern, asked["served_model_pattern"]), *served]
    return {
        "exchanges": seen,
        "circumstances": _plain(circumstances, redact),
        "route": asked,
        "names_whole": all(shown == name for name, shown in names),
    }


def recall(facts: Mapping[str, Any]) -> Observed:
    """What `record` recorded. Raises `NotRecorded` when that was less than is needed, or in words not known here."""
    if not facts:
        raise NotRecorded(Lack.NO_FACTS)
    try:
        if not facts["names_whole"]:
            raise NotRecorded(Lack.NAMES_REDACTED)
        return Observed(
            route=_route(facts["route"]),
            exchanges=tuple(_exchange(stored) for stored in facts["exchanges"]),
            circumstances=Circumstances(**_known(Circumstances, facts["circumstances"])),
        )
    except KeyError:
        raise NotRecorded(Lack.TOO_OLD) from None
    except ValueError:
        raise NotRecorded(Lack.TOO_NEW) from None


def _plain(value: Any, redact: Callable[[str, int], str]) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        shown = {}
        for field in fields(value):
            if field.name not in _NOT_STORED:
                item = getattr(value, field.name)
                said = field.metadata.get("said") and isinstance(item, str)
                shown[field.name] = redact(item, _SAID_LIMIT) if said else _plain(item, redact)
        return shown | _instead_of_texts(value)
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_plain(item, redact) for item in value]
    return value.value if isinstance(value, Enum) else value


def _instead_of_texts(value: Any) -> dict[str, Any]:
    if isinstance(value, Exchange):
        return {_REPLAYED: len(value.replay.calls) if value.replay else None}
    if isinstance(value, Refusal):
        reason = replay_reason(value)
        return {"replay_reason": reason if reason != value.reason else None}
    return {}


def _known(kind: type[Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """The stored fields of a kind. What a newer release added is left out; what an older one lacked is a KeyError."""
    return {field.name: stored[field.name] for field in fields(kind) if field.name not in _NOT_STORED}


def _route(stored: Mapping[str, Any]) -> Route:
    return Route(
        id="",
        name="",
        provider="",
        dialect="",
        base_url="",
        model=stored["model"],
        served_model_pattern=stored["served_model_pattern"],
        token_cap=TokenCap(field=stored["token_cap_field"]),
        parallel_tool_calls=stored["parallel_tool_calls"],
        include_usage=stored["include_usage"],
    )


def _exchange(stored: Mapping[str, Any]) -> Exchange:
    calls = stored[_REPLAYED]
    return Exchange(
        **_known(Exchange, stored)
        | {
            "ask": _ask(stored["ask"]),
            "end": End(stored["end"]),
            "body": Body(stored["body"]),
            "refusal": _or_none(_refusal, stored["refusal"]),
            "reading": _or_none(_reading, stored["reading"]),
            "replay": None if calls is None else Replay((PastCall("", "", "{}"),) * calls, wire=None),
        }
    )


def _ask(stored: Mapping[str, Any]) -> Ask:
    """With one empty question for its messages: a ladder builds upon them, and asks nothing any more."""
    return Ask(**_known(Ask, stored) | {"choice": Choice(stored["choice"]), "messages": (Message(Role.USER),)})


def _refusal(stored: Mapping[str, Any]) -> Refusal:
    kinds = {name: _or_none(Refused, stored[name]) for name in ("kind", "hint")}
    return Refusal(**_known(Refusal, stored) | kinds)


def _reading(stored: Mapping[str, Any]) -> Reading:
    return Reading(
        **_known(Reading, stored)
        | {
            "calls": tuple(Call(**_known(Call, call)) for call in stored["calls"]),
            "error": _or_none(_refusal, stored["error"]),
            "quirks": frozenset(stored["quirks"]),
        }
    )


def _or_none(make: Callable[[Any], T], stored: Any) -> T | None:
    return None if stored is None else make(stored)
