"""What the overview lists: filters, pages, folded providers, what is muted, how sure a state is, and the last day."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from service.model import CellRow, Confirmed, Mark, Outcome, Pause, PauseScope, Status
from service.web import views
from service.web.last_day import Day
from tests.samples import MINUTE, NOW, View, row, snapshot, standing

WORKS, DOWN, EXPIRED = standing(), standing(Status.UNREACHABLE), standing(ago=45 * MINUTE)
CUT = standing(Status.STREAM_EARLY_EOF)


def mark(outcome: Outcome, ago_min: int) -> Mark:
    return Mark(UUID(int=1), "any", outcome, None, NOW - ago_min * MINUTE, None, "f1", 1, None)


GOOD, BAD = mark(Outcome.PROVEN, 1), mark(Outcome.VIOLATED, 1)
WAS_GOOD, WAS_BAD = mark(Outcome.PROVEN, 9), mark(Outcome.VIOLATED, 9)


def page(*rows: CellRow, asked: views.Asked = views.Asked(), day: Day = Day(), **more: object) -> views.Overview:  # noqa: B008
    return views.overview(View(snapshot(*rows, **more)), asked, day)


def lines(shown: views.Overview) -> list[views.RouteLine]:
    return [line for _, group in shown.groups for line in group]


@pytest.mark.parametrize(
    ("state", "confirmed", "words"),
    [
        (WORKS, Confirmed(True, last_good=GOOD), None),
        (CUT, Confirmed(False, last_bad=BAD), None),
        (CUT, Confirmed(True, run=1, last_good=WAS_GOOD, last_bad=BAD), "failed once, being asked again"),
        (CUT, Confirmed(None, run=1, last_bad=BAD), "failed once, being asked again"),
        (CUT, Confirmed(True, run=2, last_good=WAS_GOOD, last_bad=BAD), "failed 2 times, being asked again"),
        (WORKS, Confirmed(False, run=1, last_good=GOOD, last_bad=WAS_BAD), "proven again, not confirmed yet"),
        (WORKS, Confirmed(False, last_good=GOOD, last_bad=WAS_BAD, flapping=True), "flapping"),
        (CUT, Confirmed(False, last_good=WAS_GOOD, last_bad=BAD, broken=True), "was flapping, fails again and again"),
        (standing(Status.RATE_LIMITED), Confirmed(True, last_good=WAS_GOOD), None),
        (EXPIRED, Confirmed(True, run=1, last_good=WAS_GOOD, last_bad=BAD), None),
        (CUT, Confirmed(), None),
    ],
)
def test_a_route_says_where_its_confirmed_state_differs(state: object, confirmed: Confirmed, words: str | None) -> None:
    (line,) = lines(page(replace(row(state=state), confirmed=confirmed)))  # type: ignore[arg-type]
    assert line.sure == words


def test_of_a_contract_that_is_not_required_nothing_is_confirmed_any_more() -> None:
    (line,) = lines(
        page(replace(row(state=CUT, required=False), confirmed=Confirmed(False, last_bad=BAD, flapping=True)))
    )
    assert line.sure is None


def test_what_failed_once_is_counted_and_told_apart() -> None:
    once = Confirmed(True, run=1, last_good=WAS_GOOD, last_bad=BAD)
    shown = page(replace(row("a", state=CUT), confirmed=once), row("b", state=CUT), row("c", state=WORKS))
    assert str(shown.headline) == "2 of 3 routes cannot carry a turn; 1 of them failed once and is being asked again."


PAUSE = Pause(UUID(int=1), PauseScope.ROUTE, "b", NOW - MINUTE, NOW + 48 * MINUTE)


def test_a_muted_route_is_no_alarm_and_is_still_told() -> None:
    shown = page(row("a", state=WORKS), row("b", state=CUT), row("c", state=EXPIRED), pauses=(PAUSE,))
    assert str(shown.headline) == "1 of 3 routes can carry a turn; 1 proof expired; 1 more is muted and not well."
    assert (shown.kind, shown.title) == ("unknown", "Routes")
    assert [(line.id, line.words, line.muted) for line in lines(shown)] == [
        ("c", "Unknown", None),
        ("b", "Broken", "muted until 04:00:07 UTC"),
        ("a", "Works", None),
    ]
    over = page(row("b", state=CUT), pauses=(replace(PAUSE, until=NOW),))
    assert str(over.headline) == "1 of 1 route cannot carry a turn."


def test_a_muted_route_that_works_counts_as_working() -> None:
    shown = page(row("a", state=WORKS), row("b", state=WORKS), pauses=(PAUSE,))
    assert (str(shown.headline), shown.kind) == ("All 2 routes can carry a turn.", "proven")


def test_shares_and_first_tokens_of_the_last_day_are_shown_where_there_are_any() -> None:
    day = Day({"a": (281, 287), "b": (0, 0)}, {"a": (0.5, None, 0.4), "c": (None, 0.4)})
    a, b, c = lines(page(row("a", state=WORKS), row("b", state=WORKS), row("c", state=WORKS), day=day))
    assert (a.share, a.first_tokens) == (views.Share("97.9 %", "281 of 287"), (0.5, None, 0.4))
    assert (b.share, b.first_tokens, b.first_token) == (None, (), "420 ms")
    assert (c.share, c.first_tokens, c.first_token) == (None, (), "420 ms")


ROUTES = (
    row("gpt", provider="openai", state=WORKS, tags=("prod",)),
    row("mini", provider="openai", state=CUT, tags=("prod", "eu")),
    row("kimi", provider="openrouter", state=DOWN),
)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["mini", "gpt", "kimi"]),
        ("q=MINI", ["mini"]),
        ("q=openai", ["mini", "gpt"]),
        ("provider=openrouter", ["kimi"]),
        ("outcome=violated", ["mini"]),
        ("tag=prod", ["mini", "gpt"]),
        ("tag=prod&outcome=proven", ["gpt"]),
        ("q=nothing", []),
        ("outcome=splendid", []),
        ("provider=nobody", []),
        ("tag=nobody", []),
        ("page=x&size=7&else=1", ["mini", "gpt", "kimi"]),
        ("page=0", ["mini", "gpt", "kimi"]),
        ("page=99999999999", ["mini", "gpt", "kimi"]),
    ],
)
def test_filters_are_read_from_the_url_and_what_is_unknown_finds_nothing(query: str, found: list[str]) -> None:
    asked = views.Asked.of(dict(part.split("=") for part in query.split("&") if part))
    shown = page(*ROUTES, asked=asked)
    assert [line.id for line in lines(shown)] == found
    assert str(shown.headline) == "2 of 3 routes cannot carry a turn."
    assert shown.found == len(found)


def test_what_is_chosen_stays_chosen_even_when_it_is_unknown() -> None:
    filters = page(*ROUTES, asked=views.Asked(outcome="splendid", tag="eu")).filters
    assert filters is not None
    provider, outcome, tag = filters.choices
    assert provider.options == (("", "All"), ("openai", "openai"), ("openrouter", "openrouter"))
    assert outcome.options[-1] == (outcome.chosen, "splendid")
    assert (tag.chosen, tag.options) == ("eu", (("", "Any"), ("eu", "eu"), ("prod", "prod")))


def test_links_keep_the_filters_and_say_only_what_differs() -> None:
    asked = views.Asked(q="a b&c", provider="öpen", page=3)
    assert asked.link(page=4) == "/?q=a+b%26c&provider=%C3%B6pen&page=4"
    assert asked.link(provider="") == "/?q=a+b%26c"
    assert views.Asked().link() == "/"


def fleet(number: int, providers: int = 2) -> list[CellRow]:
    return [
        row(f"r{n:03}", provider=f"p{n % providers}", state=(CUT if n % 100 == 1 else WORKS), name=f"r{n:03}")
        for n in range(number)
    ]


def test_pages_are_cut_on_the_server_and_a_page_after_the_last_is_the_last() -> None:
    shown = page(*fleet(150))
    assert shown.pages == views.Pages("routes 1 to 100 of 150", None, "/?page=2")
    assert len(lines(shown)) == 100
    assert not shown.providers
    last = page(*fleet(150), asked=views.Asked(page=7))
    assert last.pages == views.Pages("routes 101 to 150 of 150", "/", None)
    assert page(*fleet(100)).pages is None


def test_every_route_is_on_one_page_and_on_one_only() -> None:
    seen = [line.id for number in (1, 2, 3) for line in lines(page(*fleet(250), asked=views.Asked(page=number)))]
    assert sorted(seen) == [f"r{n:03}" for n in range(250)]


def test_with_many_routes_providers_are_a_line_each_and_routes_come_worst_first_whosever_they_are() -> None:
    pause = replace(PAUSE, target="r101")
    shown = page(*fleet(300, 3), pauses=(pause,))
    assert [(line.name, line.kind, line.routes, line.states, line.link) for line in shown.providers] == [
        ("p0", "violated", "100 routes", (("violated", "1 broken"), ("proven", "99 well")), "/?provider=p0"),
        ("p1", "violated", "100 routes", (("violated", "1 broken"), ("proven", "99 well")), "/?provider=p1"),
        ("p2", "proven", "100 routes", (("proven", "99 well"), ("muted", "1 muted")), "/?provider=p2"),
    ]
    ((name, first),) = shown.groups
    assert name == ""
    assert [(line.id, line.provider) for line in first[:4]] == [
        ("r001", "p1"),
        ("r201", "p0"),
        ("r101", "p2"),
        ("r000", "p0"),
    ]
    unfolded = page(*fleet(300, 3), asked=views.Asked(provider="p1"))
    assert (unfolded.providers, [name for name, _ in unfolded.groups]) == ((), ["p1"])


def test_of_very_many_providers_the_rest_is_counted() -> None:
    shown = page(*fleet(250, 250))
    assert (len(shown.providers), shown.more_providers) == (100, 150)


def test_the_matrix_holds_the_routes_of_the_page_only() -> None:
    rows = fleet(150)
    rows += [row(one.route.id, contract="displaced_tool_results", required=False, name=one.route.name) for one in rows]
    assert len(page(*rows, asked=views.Asked(page=2)).matrix.lines) == 50
