"""Page, API, badge, gate, metrics and feed say the same of a proof at every age."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service import gate, metrics
from service.metrics import ProcessMetrics
from service.model import CellRow, Confirmed, Mark, Standing, Status
from service.web import views
from service.web.api import said
from service.web.feed import feed
from service.web.views.badges import status_badge
from service.web.views.transitions import entries
from tests.samples import BECAUSE, MINUTE, NOW, SECOND, View, row, snapshot, standing
from tests.unit.test_feed import TRANSITION

FRESH, EXPIRES = 15 * MINUTE, 30 * MINUTE
TICK = timedelta(microseconds=1)
AGES = (
    (-5 * SECOND - TICK, "expired"),  # from the future
    (-5 * SECOND, "fresh"),
    (timedelta(0), "fresh"),
    (FRESH, "fresh"),
    (FRESH + TICK, "stale"),
    (EXPIRES, "stale"),
    (EXPIRES + TICK, "expired"),
    (timedelta(days=3), "expired"),
)
OBSERVED = NOW - MINUTE


@dataclass(frozen=True)
class Word:
    """What one of them says: an outcome, a freshness, and until when that holds; None where it says nothing of it."""

    outcome: str
    freshness: str | None
    valid_until: datetime | None = None


def cell(verdict: Standing) -> CellRow:
    mark = Mark(verdict.id, verdict.status, verdict.outcome, None, OBSERVED, None, "f1", 1, None)
    proven = verdict.outcome.value == "proven"
    confirmed = Confirmed(
        proven=proven, since=OBSERVED, last_good=mark if proven else None, last_bad=None if proven else mark
    )
    return replace(row(state=verdict), confirmed=confirmed)


def page_says(view: View) -> Word:
    state = views.state_of(view, "alpha")
    assert state is not None
    page = views.route_page(view, state, views.Known(), BECAUSE)
    (panel,) = page.panels
    assert (page.kind, page.stale) == (panel.mark.kind, panel.mark.stale)
    live = "stale" if page.stale else "fresh"
    valid_until = dict(panel.facts)["Valid until"]
    assert valid_until == views.moment(OBSERVED + EXPIRES, view.now).clock
    return Word(page.kind, "expired" if page.kind == "unknown" else live, OBSERVED + EXPIRES)


def overview_says(view: View) -> Word:
    ((_, (line,)),) = views.overview(view).groups
    live = "stale" if line.stale else "fresh"
    return Word(line.kind, "expired" if line.kind == "unknown" else live)


def api_says(view: View) -> Word:
    state = views.state_of(view, "alpha")
    assert state is not None
    told = said.route(state, view)
    (shown,) = told.contracts[0].cells
    assert told.outcome == told.contracts[0].outcome == shown.outcome
    assert told.stale == (shown.freshness == "stale")
    assert shown.fresh_until == OBSERVED + FRESH
    return Word(shown.outcome.value, shown.freshness.value, shown.valid_until)


def badge_says(view: View) -> Word:
    state = views.state_of(view, "alpha")
    assert state is not None
    shown = status_badge(state, view.now)
    stale = shown.message.endswith(", stale")
    names = {words.lower(): kind.value for kind, words in views.words.STATE_WORDS.items()}
    outcome = names[shown.message.removesuffix(", stale")]
    assert shown.kind == ("stale" if stale and outcome == "proven" else outcome)
    return Word(outcome, "stale" if stale else "expired" if outcome == "unknown" else "fresh")


def metrics_say(view: View) -> Word:
    text = metrics.exposition(ProcessMetrics("default", "0"), view)
    families = text_string_to_metric_families(text if isinstance(text, str) else text.decode())
    values = {sample.name: sample for family in families for sample in family.samples}
    status = values.get("routeproof_contract_status")
    proven = values.get("routeproof_contract_proven")
    assert (status is None) == (proven is None)
    if status is None or proven is None:
        outcome, fresh = "unknown", "expired"
    else:
        outcome = status.labels["outcome"]
        assert proven.value == (outcome == "proven")
        fresh = "fresh" if values["routeproof_contract_fresh"].value else "stale"
    expires = values.get("routeproof_contract_proof_expires_timestamp_seconds")
    until = datetime.fromtimestamp(expires.value, NOW.tzinfo) if expires else None
    return Word(outcome, fresh, until)


@pytest.mark.parametrize("status", [Status.TOOLS_SUPPORTED, Status.TIMEOUT, Status.STREAM_EARLY_EOF])
@pytest.mark.parametrize(("age", "freshness"), AGES, ids=[str(age) for age, _ in AGES])
def test_all_say_the_same_at_every_age(status: Status, age: timedelta, freshness: str) -> None:
    view = View(snapshot(cell(standing(status))), at=OBSERVED + age)
    outcome = "unknown" if freshness == "expired" else status.outcome.value
    for says in (page_says, overview_says, api_says, badge_says, metrics_say):
        word = says(view)
        assert (word.outcome, word.freshness) == (outcome, freshness), says.__name__
        if word.valid_until is not None and (status.outcome == "proven" or says is not metrics_say):
            assert word.valid_until == OBSERVED + EXPIRES, says.__name__


@pytest.mark.parametrize(("age", "freshness"), AGES, ids=[str(age) for age, _ in AGES])
def test_the_gate_lets_pass_what_all_call_proven_and_fresh_and_no_longer(age: timedelta, freshness: str) -> None:
    view = View(snapshot(cell(standing())), at=OBSERVED + age)
    state = views.state_of(view, "alpha")
    assert state is not None
    decided = gate.decide(state)
    assert decided.allowed is (freshness == "fresh")
    assert decided.valid_until == (OBSERVED + FRESH if decided.allowed else None)


def test_a_badge_is_asked_for_again_before_what_it_says_can_change() -> None:
    for age, _ in AGES:
        view = View(snapshot(cell(standing())), at=OBSERVED + age)
        state = views.state_of(view, "alpha")
        assert state is not None
        shown = status_badge(state, view.now)
        later = View(view.snapshot, at=view.at + shown.holds_s * SECOND)
        then = views.state_of(later, "alpha")
        assert then is not None
        if age >= timedelta(0):  # what came from the future becomes true by waiting
            assert status_badge(then, later.now).message == shown.message


def test_the_feed_tells_what_happened_and_not_what_is_so_that_no_age_changes_it() -> None:
    told = feed(entries([TRANSITION], {}), "https://x.example/feed", "https://x.example", TRANSITION.at)
    assert not re.search(rb"ago|stale|expired|valid", told)
