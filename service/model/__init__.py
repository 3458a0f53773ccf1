"""The nouns that every other module speaks in. Nothing here does anything.

A *route* is one way to reach one model. A *contract* asks it questions (`Ask`); each question becomes one
request (`WireRequest`) and one `Exchange`: the facts of what came back, without the model's words and
without any credential. The facts are judged into a `Verdict`.
"""

from __future__ import annotations

from service.model.answers import SAID, Body, Call, End, Exchange, Reading, Refusal, Refused
from service.model.asking import Ask, Choice, Message, PastCall, Replay, Role, Tool, WireRequest
from service.model.cells import (
    LATENCY_BOUNDS_S,
    AskedNow,
    Cell,
    CellRow,
    Claim,
    Hour,
    ProberRow,
    RouteRow,
    Snapshot,
    Span,
    Spend,
    Standing,
    StoredVerdict,
    Transition,
)
from service.model.confirmed import Change, ChangeKind, Confirmed, Mark
from service.model.pauses import Pause, PauseScope
from service.model.routes import (
    Auth,
    Budget,
    ContractUse,
    Credentials,
    Limit,
    Price,
    Route,
    Secret,
    SecretRef,
    TokenCap,
)
from service.model.verdicts import Rung, Verdict
from service.model.words import Outcome, Status

__all__ = [
    "LATENCY_BOUNDS_S",
    "SAID",
    "Ask",
    "AskedNow",
    "Auth",
    "Body",
    "Budget",
    "Call",
    "Cell",
    "CellRow",
    "Change",
    "ChangeKind",
    "Choice",
    "Claim",
    "Confirmed",
    "ContractUse",
    "Credentials",
    "End",
    "Exchange",
    "Hour",
    "Limit",
    "Mark",
    "Message",
    "Outcome",
    "PastCall",
    "Pause",
    "PauseScope",
    "Price",
    "ProberRow",
    "Reading",
    "Refusal",
    "Refused",
    "Replay",
    "Role",
    "Route",
    "RouteRow",
    "Rung",
    "Secret",
    "SecretRef",
    "Snapshot",
    "Span",
    "Spend",
    "Standing",
    "Status",
    "StoredVerdict",
    "TokenCap",
    "Tool",
    "Transition",
    "Verdict",
    "WireRequest",
]
