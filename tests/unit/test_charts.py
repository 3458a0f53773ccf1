"""Charts: what they say in words, what they draw for it, and that nothing in them needs a style or a script."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.model import Outcome
from service.web import charts
from service.web.charts import LatencyPoint, Quantile, Slot, latency, latency_table, percent, quantile, share, strip
from service.web.charts.axes import MOST_LOG_TICKS, MOST_TICKS, scale, span, times
from service.web.charts.markup import element
from service.web.charts.numbers import in_seconds

BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
START = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
SVG = "svg"
EMPTY = (0,) * 12


def parsed(markup: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<all>{markup}</all>")


def texts(root: ElementTree.Element, name: str) -> list[str]:
    return ["".join(found.itertext()) for found in root.iter(name)]


def counts(bucket: int, number: int = 10) -> tuple[int, ...]:
    return tuple(number if place == bucket else 0 for place in range(12))


def slots(*seen: dict[Outcome, int], each: timedelta = 20 * MINUTE) -> list[Slot]:
    return [Slot(START + each * n, START + each * (n + 1), counted) for n, counted in enumerate(seen)]


def points(*buckets: int | None, each: timedelta = HOUR) -> list[LatencyPoint]:
    """Points whose first tokens all fall into one bucket, and whose durations into the next."""
    return [
        LatencyPoint(
            START + each * n,
            START + each * (n + 1),
            EMPTY if bucket is None else counts(bucket),
            EMPTY if bucket is None else counts(min(bucket + 1, 11)),
        )
        for n, bucket in enumerate(buckets)
    ]


P, V, B, U, N = Outcome
ALL = {P: 5, V: 4, B: 3, U: 2, N: 1}
EVERYTHING = [
    strip(slots(*[{P: 4}] * 30, {}, {V: 1}, ALL, {B: 2, U: 1}, {N: 1})),
    charts.strip_table(slots({P: 4}, {}, ALL)),
    latency(points(2, None, 3, 11, 4), BOUNDS),
    latency(points(0, 9), BOUNDS),
    latency_table(points(2, None, 11), BOUNDS),
    charts.sparkline([0.4, None, 0.5, 0.6]),
    charts.sparkline([]),
    strip([]),
    latency([], BOUNDS),
]


# --- numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counted", "q", "expected"),
    [
        ((0, 0, 0), 0.5, None),
        ((4, 0, 0), 0.5, Quantile(0.5)),  # the first bucket begins at 0
        ((4, 0, 0), 1, Quantile(1.0)),
        ((0, 4, 0), 0.5, Quantile(2.0)),
        ((0, 4, 0), 0, Quantile(1.0)),
        ((2, 2, 0), 0.5, Quantile(1.0)),  # on the edge
        ((1, 3, 0), 0.95, Quantile(1 + 2 * (3.8 - 1) / 3)),
        ((0, 0, 7), 0.5, Quantile(3.0, beyond=True)),
        ((9, 0, 1), 0.5, Quantile(5 / 9)),
        ((9, 0, 1), 0.95, Quantile(3.0, beyond=True)),
    ],
)
def test_a_quantile_is_interpolated_within_its_bucket(
    counted: tuple[int, ...], q: float, expected: Quantile | None
) -> None:
    found = quantile((1.0, 3.0), counted, q)
    if expected is None or found is None:
        assert found is expected
    else:
        assert (found.seconds, found.beyond) == (pytest.approx(expected.seconds), expected.beyond)


@pytest.mark.parametrize(
    ("bounds", "counted", "q"),
    [
        ((1.0, 3.0), (1, 2), 0.5),
        ((1.0, 3.0), (1, -2, 0), 0.5),
        ((3.0, 1.0), (1, 2, 0), 0.5),
        ((1.0, 1.0), (1, 2, 0), 0.5),
        ((0.0, 1.0), (1, 2, 0), 0.5),
        ((), (1,), 0.5),
        ((1.0, 3.0), (1, 2, 0), 1.1),
        ((1.0, 3.0), (1, 2, 0), math.nan),
    ],
)
def test_what_is_no_histogram_is_refused(bounds: tuple[float, ...], counted: tuple[int, ...], q: float) -> None:
    with pytest.raises(ValueError):
        quantile(bounds, counted, q)


@given(st.lists(st.integers(0, 50), min_size=12, max_size=12).filter(any))
def test_quantiles_never_fall_as_q_grows_and_stay_where_something_was_counted(counted: list[int]) -> None:
    found = [quantile(BOUNDS, counted, q / 20) for q in range(21)]
    values = [(value.seconds, value.beyond) for value in found if value]
    assert len(values) == 21
    assert values == sorted(values)
    first = next(place for place, count in enumerate(counted) if count)
    last = max(place for place, count in enumerate(counted) if count)
    edges = (0.0, *BOUNDS, BOUNDS[-1])
    assert values[0][0] >= edges[first]
    assert values[-1] == (edges[last + 1], last == 11)


def test_a_quantile_in_the_open_bucket_says_that_it_is_more() -> None:
    assert str(quantile(BOUNDS, counts(11), 0.5)) == "> 120 s"
    assert str(quantile(BOUNDS, counts(2), 0.5)) == "375 ms"


@pytest.mark.parametrize(
    ("proven", "counted", "words"),
    [
        (281, 287, "97.9 % (281 of 287)"),
        (287, 287, "100 % (287 of 287)"),
        (0, 287, "0 % (0 of 287)"),
        (9999, 10000, "99.9 % (9999 of 10000)"),  # a failure isn't rounded away
        (1, 10000, "0.1 % (1 of 10000)"),
        (0, 0, None),
    ],
)
def test_a_share_says_of_how_many(proven: int, counted: int, words: str | None) -> None:
    assert share(proven, counted) == words
    assert percent(proven, counted) == (words and words.partition(" (")[0])


@pytest.mark.parametrize(("proven", "counted"), [(2, 1), (-1, 1), (0, -1)])
def test_an_impossible_share_is_refused(proven: int, counted: int) -> None:
    with pytest.raises(ValueError):
        share(proven, counted)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.0004, "< 1 ms"),
        (0.0123, "12 ms"),
        (0.412, "412 ms"),
        (0.9996, "1 s"),
        (2, "2 s"),
        (2.54, "2.5 s"),
        (9.96, "10 s"),
        (120, "120 s"),
    ],
)
def test_times_are_short(seconds: float, words: str) -> None:
    assert in_seconds(seconds) == words


# --- axes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "ticks", "log"),
    [
        ([], (0, 0.2, 0.4, 0.6, 0.8, 1), False),
        ([0.0], (0, 0.2, 0.4, 0.6, 0.8, 1), False),
        ([0.4, 0.9], (0, 0.2, 0.4, 0.6, 0.8, 1), False),
        ([0.3], (0, 0.1, 0.2, 0.3), False),
        ([2, 2.2], (0, 0.5, 1, 1.5, 2, 2.5), False),
        ([7, 95], (0, 20, 40, 60, 80, 100), False),
        ([0.4, 9], (0.2, 0.5, 1, 2, 5, 10), True),
        ([0.6, 60], (0.5, 1, 2, 5, 10, 20, 50, 100), True),
        ([0.1, 120], (0.1, 1, 10, 100), True),
    ],
)
def test_ticks_are_round(values: list[float], ticks: tuple[float, ...], log: bool) -> None:
    axis = scale(values)
    assert (axis.ticks, axis.log) == (ticks, log)


@given(st.lists(st.floats(1e-3, 1e4), min_size=1))
def test_every_value_stands_on_its_axis_and_greater_ones_higher(values: list[float]) -> None:
    axis = scale(values)
    assert axis.low <= min(values) * (1 + 1e-5)
    assert axis.high >= max(values) * (1 - 1e-5)
    heights = [axis.height(value) for value in sorted(values)]
    assert heights == sorted(heights)
    assert heights[0] >= 0
    assert heights[-1] <= 1
    assert 2 <= len(axis.ticks) <= (MOST_LOG_TICKS if axis.log else MOST_TICKS)
    round_ones = axis.ticks if axis.log else (axis.ticks[1],)
    assert all(f"{tick:e}"[:8] in ("1.000000", "2.000000", "5.000000") for tick in round_ones)


@pytest.mark.parametrize(
    ("start", "length", "labels"),
    [
        (START, HOUR, ["03:00", "03:15", "03:30", "03:45", "04:00"]),
        (START, 6 * HOUR, ["04:00", "06:00", "08:00"]),
        (START, DAY, ["06:00", "12:00", "18:00", "1 Dec"]),
        (START, 7 * DAY, ["2 Dec", "4 Dec", "6 Dec"]),
        (START, 30 * DAY, ["7 Dec", "14 Dec", "21 Dec", "28 Dec"]),
        (START, timedelta(0), ["03:00"]),
    ],
)
def test_times_on_the_axis_are_round_and_few(start: datetime, length: timedelta, labels: list[str]) -> None:
    assert [label for _, label in times(start, start + length)] == labels


@given(st.integers(1, 400 * 24 * 60), st.integers(0, 400 * 24 * 60))
def test_any_window_has_at_most_five_times_all_inside(minutes: int, later: int) -> None:
    start = START + later * MINUTE
    end = start + minutes * MINUTE
    found = [at for at, _ in times(start, end)]
    assert 1 <= len(found) <= 5
    assert all(start <= at <= end for at in found)


def test_spans_are_in_utc_and_name_both_days_where_they_differ() -> None:
    assert span(START, START + 20 * MINUTE) == "2026-11-30 03:00–03:20 UTC"
    assert span(START, START + DAY) == "2026-11-30 03:00 – 2026-12-01 03:00 UTC"
    elsewhere = START.astimezone(datetime.strptime("+0530", "%z").tzinfo)
    assert span(elsewhere, elsewhere + 20 * MINUTE) == "2026-11-30 03:00–03:20 UTC"


# --- strip ------------------------------------------------------------------------------------------------


def test_each_slot_says_what_was_seen_in_it() -> None:
    drawn = parsed(strip(slots({P: 4, V: 1}, {}, ALL)))
    titles = [title.text for slot in drawn.iter("g") for title in slot.iter("title")]
    assert titles == [
        "2026-11-30 03:00–03:20 UTC: 4 proven, 1 violated",
        "2026-11-30 03:20–03:40 UTC: no data",
        "2026-11-30 03:40–04:00 UTC: 5 proven, 4 violated, 3 blocked, 2 unavailable, 1 unproven",
    ]


def shape(slot: dict[Outcome, int], *, sign: bool) -> str:
    """What a slot looks like without its colours: everything that is drawn but names and room."""
    (drawn,) = parsed(strip(slots(slot))).iter("g")
    left_out = ("room",) if sign else ("room", "sign")
    parts = [p for p in drawn if p.tag != "title" and p.get("class", "").split()[0] not in left_out]
    return " ".join(f"{part.tag} {[(k, v) for k, v in part.items() if k != 'class']}" for part in parts)


@pytest.mark.parametrize("sign", [True, False])
def test_outcomes_and_no_data_differ_in_shape_and_not_in_colour_alone(sign: bool) -> None:
    assert len({shape(slot, sign=sign) for slot in ({P: 4}, {V: 4}, {B: 4}, {U: 4}, {N: 4}, {})}) == 6


def test_cuts_stay_inside_their_bar() -> None:
    for outcome, expected in {
        V: "M1 19.5l8-6M1 26.5l8-6M1 33.5l8-6M1 40.5l8-6",
        B: "M5 13V45",
        U: "M1 17h8M1 21h8M1 25h8M1 29h8M1 33h8M1 37h8M1 41h8",
    }.items():
        (column,) = parsed(strip(slots({outcome: 1}))).iter("g")
        assert [p.get("d") for p in column.iter("path") if p.get("class") == "cuts"] == [expected]


def heights(slot: dict[Outcome, int]) -> dict[str, float]:
    (drawn,) = parsed(strip(slots(slot))).iter("g")
    return {r.get("class", ""): float(r.get("height", "")) for r in drawn.iter("rect") if r.get("class") != "room"}


def test_heights_are_in_proportion_and_one_failure_among_many_is_seen() -> None:
    assert heights({P: 2, V: 2}) == {"proven": 15.5, "violated": 15.5}
    assert heights({P: 4}) == {"proven": 32}
    assert heights({P: 1000, V: 1})["violated"] == pytest.approx(4, abs=0.1)
    assert sum(heights(ALL).values()) == pytest.approx(32 - 4, abs=0.3)
    bars = [*heights(ALL)]
    assert bars == ["violated", "blocked", "unavailable", "unproven", "proven"]  # from the top down


def test_a_sign_on_top_names_the_worst() -> None:
    signs = [
        part.get("class")
        for part in parsed(strip(slots({P: 1, U: 1, V: 1}, {P: 3}, {}))).iter("path")
        if "sign" in part.get("class", "")
    ]
    assert signs == ["sign violated"]


def test_the_strip_says_its_totals_in_words_and_its_bad_slots() -> None:
    drawn = parsed(strip(slots({P: 4}, {P: 3, V: 1}, {})))
    assert texts(drawn, "desc") == [
        "3 slots, 7 proven, 1 violated, 1 slot without data; 2026-11-30 03:20–03:40 UTC: 3 proven, 1 violated."
    ]
    assert texts(drawn, "li") == ["7 proven", "1 violated", "1 slot without data"]


def test_a_description_of_many_bad_slots_stays_short() -> None:
    (said,) = texts(parsed(strip(slots(*[{V: 1}] * 20))), "desc")
    assert said.endswith("and 14 more slots not all proven.")
    assert said.count("UTC") == 6


def test_ninety_slots_are_three_parts_of_which_each_names_its_ends() -> None:
    drawn = parsed(strip(slots(*[{P: 4}] * 90)))
    assert [svg.get("viewBox") for svg in drawn.iter(SVG)][:3] == ["0 0 300 47"] * 3
    assert texts(drawn, "time") == [
        "30 Nov 03:00", "30 Nov 13:00", "30 Nov 13:00", "30 Nov 23:00", "30 Nov 23:00", "1 Dec 09:00"
    ]  # fmt: skip


def test_the_table_of_the_strip_is_newest_first() -> None:
    drawn = parsed(charts.strip_table(slots({P: 4}, {})))
    assert [texts(row, "th") + texts(row, "td") for row in drawn.iter("tr")] == [
        ["When", "Verdicts"],
        ["2026-11-30 03:20–03:40 UTC", "no data"],
        ["2026-11-30 03:00–03:20 UTC", "4 proven"],
    ]


# --- latency ----------------------------------------------------------------------------------------------


def plots(markup: str) -> list[ElementTree.Element]:
    return [div for div in parsed(markup).iter("div") if div.get("class") == "plot"]


def lines(plot: ElementTree.Element, name: str) -> list[str]:
    return [path.get("d", "") for path in plot.iter("path") if path.get("class", "").split()[0] == name]


def test_the_newest_quantiles_stand_above_each_plot() -> None:
    first, second = plots(latency(points(2, 3), BOUNDS))
    assert texts(first, "p") == ["Time to first token p50 750 ms, p95 975 ms"]
    assert texts(second, "p") == ["Duration p50 1.8 s, p95 2.4 s"]
    first, _ = plots(latency(points(2, None), BOUNDS))
    assert texts(first, "p") == ["Time to first token p50 375 ms, p95 488 ms until 30 Nov 04:00 UTC"]


def test_no_line_crosses_a_time_without_data() -> None:
    first, _ = plots(latency(points(2, 2, None, 2, 2), BOUNDS))
    assert [line.count("L") for line in lines(first, "p50")] == [1, 1]
    (silent,) = (r for r in first.iter("rect") if r.get("class") == "silence")
    assert (silent.get("x"), silent.get("width")) == ("400", "200")


def test_a_hole_between_points_is_no_data_too() -> None:
    whole = points(2, 2, 2, 2, 2)
    first, _ = plots(latency([*whole[:2], *whole[3:]], BOUNDS))
    assert len(lines(first, "p50")) == 2
    (silent,) = (r for r in first.iter("rect") if r.get("class") == "silence")
    assert (silent.get("x"), silent.get("width")) == ("400", "200")
    assert "no data" in texts(parsed(latency([*whole[:2], *whole[3:]], BOUNDS)), "li")


def test_a_point_between_gaps_is_drawn() -> None:
    first, _ = plots(latency(points(None, 2, None), BOUNDS))
    (path,) = (p for p in first.iter("path") if p.get("class") == "p50 alone")
    assert path.get("d", "").endswith("h0")


def test_wide_ranges_are_logarithmic_and_say_so() -> None:
    first, _ = plots(latency(points(0, 9), BOUNDS))
    assert texts(first, "p")[0].endswith("logarithmic scale")
    first, _ = plots(latency(points(2, 3), BOUNDS))
    assert "logarithmic" not in texts(first, "p")[0]


def test_what_lies_beyond_the_last_bucket_has_a_sign_and_words() -> None:
    drawn = latency(points(2, 11), BOUNDS)
    first, _ = plots(drawn)
    assert texts(first, "p")[0].startswith("Time to first token p50 > 120 s, p95 > 120 s")
    assert [text for text in texts(first, "text") if text == "▲"] == ["▲"]
    assert any("beyond the last bucket" in said for said in texts(parsed(drawn), "li"))
    assert not any("beyond" in said for said in texts(parsed(latency(points(2), BOUNDS)), "li"))


def test_the_chart_tells_its_newest_and_its_slowest_point() -> None:
    first, _ = plots(latency(points(2, 5, None, 3), BOUNDS))
    (said,) = texts(first, "desc")
    assert said == (
        "4 points, 1 of them without data. Newest, 2026-11-30 06:00–07:00 UTC: p50 750 ms, p95 975 ms (10 measured). "
        "Slowest by p95, 2026-11-30 04:00–05:00 UTC: p50 3.8 s, p95 4.9 s (10 measured)."
    )


def test_a_chart_of_silence_says_so() -> None:
    first, _ = plots(latency(points(None, None), BOUNDS))
    assert texts(first, "desc") == ["Nothing was measured."]
    assert texts(first, "p") == ["Time to first token no data"]
    assert lines(first, "p50") == []


def test_the_table_of_latency_is_newest_first() -> None:
    drawn = parsed(latency_table(points(2, None), BOUNDS))
    assert [texts(row, "td") for row in drawn.iter("tr")][1:] == [
        ["no data", "no data"],
        ["p50 375 ms, p95 488 ms (10 measured)", "p50 750 ms, p95 975 ms (10 measured)"],
    ]


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 9), min_size=12, max_size=12), min_size=1, max_size=12))
def test_whatever_is_counted_is_drawn_inside_the_plot(counted: list[list[int]]) -> None:
    given_points = [
        LatencyPoint(START + HOUR * n, START + HOUR * (n + 1), buckets, buckets) for n, buckets in enumerate(counted)
    ]
    for plot in plots(latency(given_points, BOUNDS)):
        drawn = " ".join(line for name in ("p50", "p95", "between") for line in lines(plot, name))
        for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", drawn):
            assert 0 <= float(x) <= 1000
            assert 20 <= float(y) <= 168


# --- sparkline --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words", "title"),
    [
        ([], "no data", None),
        ([None], "no data", None),
        ([math.nan, math.inf], "no data", None),
        ([0.3], "300 ms", "last 300 ms, between 300 ms and 300 ms over 1 point"),
        (
            [0.5, None, 0.412],
            "412 ms",
            "last 412 ms, between 412 ms and 500 ms over 3 points, 1 of them without data",
        ),
        (
            [1, 2.2, None],
            "2.2 s before a gap",
            "no data now, last 2.2 s, between 1 s and 2.2 s over 3 points, 1 of them without data",
        ),
    ],
)
def test_the_sparkline_says_its_last_value(values: list[float | None], words: str, title: str | None) -> None:
    drawn = parsed(charts.sparkline(values))
    titles = texts(drawn, "title")
    assert titles == ([f"Time to first token: {title}"] if title else [])
    assert "".join(drawn.itertext()).removeprefix("".join(titles)) == words


def test_a_single_value_is_a_point_where_the_newest_stands() -> None:
    *_, dots = parsed(charts.sparkline([0.5])).iter("path")
    assert dots.get("d") == "M93 3h0"


def test_the_sparkline_breaks_at_gaps_and_dots_what_stands_alone() -> None:
    drawn = parsed(charts.sparkline([1, 1, None, 1, None, 1, 1]))
    by_class = {path.get("class"): path.get("d", "") for path in drawn.iter("path")}
    assert by_class["trace"].count("M") == 3
    assert by_class["dots"].count("M") == 2  # the one between the gaps, and the newest


@given(st.lists(st.none() | st.floats(), max_size=30))
def test_any_values_make_a_sparkline_inside_its_box(values: list[float | None]) -> None:
    for path in parsed(charts.sparkline(values)).iter("path"):
        for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.get("d", "")):
            assert 0 <= float(x) <= 96
            assert 0 <= float(y) <= 24


# --- all of them ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drawn", EVERYTHING)
def test_no_chart_needs_a_style_or_a_script(drawn: str) -> None:
    for part in parsed(drawn).iter():
        assert part.tag not in ("style", "script", "image", "use", "foreignObject", "a")
        assert not [name for name in part.keys() if name == "style" or name.startswith("on") or name == "href"]  # noqa: SIM118  # Element has no other way


@pytest.mark.parametrize("drawn", EVERYTHING)
def test_every_picture_is_named_or_hidden(drawn: str) -> None:
    root = parsed(drawn)
    inner = {id(child) for svg in root.iter(SVG) for child in svg.iter(SVG) if child is not svg}
    for svg in root.iter(SVG):
        if id(svg) in inner or svg.get("aria-hidden") == "true":
            continue
        assert svg.get("role") == "img"
        assert svg[0].tag == "title"
        assert svg[0].text


def test_every_class_that_charts_use_is_styled() -> None:
    root = Path(charts.__file__).parent.parent / "static"
    sheet = "".join((root / name).read_text() for name in ("charts.css", "style.css"))
    used = {name for drawn in EVERYTHING for part in parsed(drawn).iter() for name in part.get("class", "").split()}
    assert len(used) > 20
    assert sorted(name for name in used if not re.search(rf"\.{re.escape(name)}\b", sheet)) == []


def test_texts_and_values_are_escaped() -> None:
    made = element("p", "<script>", title='"><b>')
    assert parsed(made)[0].text == "<script>"
    assert parsed(made)[0].get("title") == '"><b>'
