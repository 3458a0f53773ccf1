"""The decoder: the standard's rules, and the same events however the bytes are cut."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.sse import Decoder, Event, OverlongError

E = Event


def decode(body: bytes, cuts: list[int] | None = None) -> list[Event]:
    decoder = Decoder()
    events: list[Event] = []
    last = 0
    for cut in [*(cuts or []), len(body)]:
        events += decoder.feed(body[last:cut])
        last = max(last, cut)
    return events + decoder.close()


CASES: dict[str, tuple[bytes, list[Event]]] = {
    "lf": (b"data: a\n\ndata: b\n\n", [E("a"), E("b")]),
    "crlf": (b"data: a\r\n\r\ndata: b\r\n\r\n", [E("a"), E("b")]),
    "cr": (b"data: a\r\rdata: b\r\r", [E("a"), E("b")]),
    "mixed line ends": (b"data: a\r\n\rdata: b\n\r\n", [E("a"), E("b")]),
    "bom": (b"\xef\xbb\xbfdata: a\n\n", [E("a")]),
    "bom alone": (b"\xef\xbb\xbf", []),
    "half a bom": (b"\xef\xbb", []),
    "bom in the middle is text": (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [E("a")]),
    "no space": (b"data:a\n\n", [E("a")]),
    "one space only is dropped": (b"data:  a\n\n", [E(" a")]),
    "several lines join": (b"data: a\ndata: b\n\n", [E("a\nb")]),
    "several lines join behind crlf": (b"data: a\r\ndata: b\r\n\r\n", [E("a\nb")]),
    "empty data": (b"data\n\ndata:\n\n", [E(""), E("")]),
    "comment": (b": hi\n\ndata: a\n\n", [E("a")]),
    "no data, no event": (b"event: x\nid: 1\n\ndata: a\n\n", [E("a")]),
    "name": (b"event: error\ndata: a\n\ndata: b\n\n", [E("a", "error"), E("b")]),
    "last event of a name counts": (b"event: x\nevent: y\ndata: a\n\n", [E("a", "y")]),
    "unicode line separators are text": (
        "data: a\u2028b\u2029c\u0085d\x0be\n\n".encode(),
        [E("a\u2028b\u2029c\u0085d\x0be")],
    ),
    "bad utf-8 is replaced": (b"data: a\xffb\n\n", [E("a\ufffdb")]),
    "unterminated line": (b"data: a\n\ndata: [DONE]", [E("a"), E("[DONE]", unterminated=True)]),
    "unterminated event": (b"data: [DONE]\n", [E("[DONE]", unterminated=True)]),
    "cut field": (b"data: a\n\ndat", [E("a")]),
    "unknown fields": (b"x: y\ndata: a\nfoo\n\n", [E("a")]),
    "colon first": (b":data: a\n\n", []),
}


@pytest.mark.parametrize("name", CASES)
def test_whole(name: str) -> None:
    body, events = CASES[name]
    assert decode(body) == events


@pytest.mark.parametrize("name", CASES)
def test_byte_by_byte(name: str) -> None:
    body, events = CASES[name]
    assert decode(body, list(range(1, len(body)))) == events


PIECES = st.sampled_from(
    [
        b"data: ",
        b"data:",
        b"event: x",
        b": c",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"a",
        "é".encode(),
        "\u2028".encode(),
        b"\xff",
        b"\xef\xbb\xbf",
        b"[DONE]",
    ]
)


@given(st.lists(PIECES, max_size=40).map(b"".join), st.lists(st.integers(0, 200), max_size=12))
def test_cuts_change_nothing(body: bytes, cuts: list[int]) -> None:
    assert decode(body, sorted(min(cut, len(body)) for cut in cuts)) == decode(body)


def test_bad_bytes_comments_and_fields_are_counted() -> None:
    decoder = Decoder()
    decoder.feed(b": c\ndata: \xff\nevent: \xfe\nnonsense\n\n")
    assert (decoder.bad_utf8, decoder.comments, decoder.fields) == (2, 1, 2)


@pytest.mark.parametrize("body", [b"data: " + b"x" * 2000, b"data: x\n" * 2000], ids=["one line", "many lines"])
def test_an_event_over_the_limit_is_refused(body: bytes) -> None:
    decoder = Decoder(limit=1000)
    with pytest.raises(OverlongError):
        for at in range(0, len(body), 100):
            decoder.feed(body[at : at + 100])


def test_a_million_tiny_events_need_no_memory() -> None:
    decoder, chunk, seen = Decoder(), b"data: {}\n\n" * 1000, 0
    for _ in range(970):
        seen += len(decoder.feed(chunk))
    tracemalloc.start()  # tracing all of them would take a minute
    for _ in range(30):
        seen += len(decoder.feed(chunk))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen == 1_000_000
    assert peak < 2_000_000
    assert not decoder._buffer
    assert not decoder._data


def test_a_long_line_is_searched_once_however_small_its_pieces() -> None:
    """Ten megabytes in 64-byte pieces: quadratic work would take minutes; the search starts where it stopped."""
    decoder = Decoder(limit=20_000_000)
    decoder.feed(b"data: ")
    scanned = 0
    for _ in range(160_000):
        decoder.feed(b"x" * 64)
        assert decoder._scanned >= scanned
        scanned = decoder._scanned
    assert decoder._scanned == len(decoder._buffer) == 160_000 * 64 + 6
    (event,) = decoder.feed(b"\n\n")
    assert len(event.data) == 160_000 * 64
