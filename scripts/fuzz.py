"""Fuzz the judgment: decoder, readers, refusal reader, ladder and redactor against mutated real bytes.

    python scripts/fuzz.py --seconds 600 --seed 1

Every input is a corpus answer, mutated (bits, bytes, slices doubled, dropped, moved or taken from another answer),
delivered under a random status, content type and cut. It must raise nothing, take no longer than a bound, give the same
facts when it is fed whole, and never become `proven` unless an independent, deliberately naive reading of the same
bytes finds a call, its arguments and an announced end. Planted secrets must not come out of the redactor.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from service.answer import Answer  # noqa: E402
from service.contracts import CONTRACTS  # noqa: E402
from service.contracts.native_tools import TOOL  # noqa: E402
from service.demo.scenario import Scenario, Values  # noqa: E402
from service.dialects import DIALECTS  # noqa: E402
from service.model import Ask, End, Exchange, Outcome, Route, Secret  # noqa: E402
from service.redact import Redactor  # noqa: E402
from service.rules import Circumstances  # noqa: E402

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SLOW_S = 2.0
# Their proofs rest on a whole call; those of the histories on an answer.
OF_CALLS = frozenset({"native_tools", "agent_turn", "parallel_tool_calls"})
VALUES = Values(tools=(TOOL.name,), model="m", key="sk-test-0123456789abcdef")
STATUSES = (200, 200, 200, 200, 400, 401, 402, 403, 404, 405, 408, 413, 422, 429, 500, 502, 503, 529, 307, 204)
TYPES = ("text/event-stream", "application/json", "text/html", "text/plain", "")
ENDS = (End.COMPLETE, End.COMPLETE, End.CLOSED, End.RESET, End.DEADLINE, End.ENOUGH)
TOKENS = (
    b'"error"',
    b"[DONE]",
    b"finish_reason",
    b"\r\n",
    b"\n\n",
    b"data: ",
    b"\xff",
    b"null",
    b"{}",
    b'"tool_calls"',
    b'"index":0',
    b'"id":"x"',
)


@dataclass
class Tally:
    """What a run saw."""

    inputs: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    failures: list[str] = field(default_factory=list)


def bodies(dialect: str) -> list[bytes]:
    """The answers of the corpus for a dialect, at most 64 KiB of each."""
    lines = (ROOT / "tests/corpus/dev.jsonl").read_text(encoding="utf-8").split("\n")
    found = []
    for scenario in (Scenario.parse(json.loads(line)) for line in lines if line):
        if scenario.dialect == dialect:
            for entry in scenario.replies:
                body = b""
                for piece in entry.reply.pieces(VALUES):
                    body += piece
                    if len(body) > 65536:
                        break
                    found.append(body[:65536])
    return found


def mutate(body: bytes, others: Sequence[bytes], dice: random.Random) -> bytes:
    data = bytearray(body)
    for _ in range(dice.choice((0, 1, 1, 2, 3, 8))):
        at = dice.randrange(len(data) + 1)
        upto = min(len(data), at + dice.choice((1, 2, 8, 60, 400)))
        match dice.randrange(8):
            case 0 if data and at < len(data):
                data[at] ^= 1 << dice.randrange(8)
            case 1:
                del data[at:upto]
            case 2:
                data[at:at] = data[at:upto]
            case 3:
                other = dice.choice(others)
                start = dice.randrange(len(other) + 1)
                data[at:at] = other[start : start + dice.choice((8, 100, 2000))]
            case 4:
                data[at:at] = dice.choice(TOKENS)
            case 5:
                del data[at:]
            case 6:
                events = bytes(data).split(b"\n\n")
                dice.shuffle(events)
                data = bytearray(b"\n\n".join(events))
            case _:
                data[at:at] = dice.randbytes(dice.choice((1, 4, 40)))
    return bytes(data)


def exchange(route: Route, ask: Ask, body: bytes, status: int, kind: str, end: End, cuts: Sequence[int]) -> Exchange:
    answer = Answer(DIALECTS[route.dialect], route, ask, status, {"content-type": kind}, NOW)
    last = 0
    for cut in [*cuts, len(body)]:
        answer.feed(body[last:cut])
        last = cut
        if answer.enough:
            end = End.ENOUGH
            break
    seen = answer.events > 0
    return answer.finish(end, headers_s=0.1, first_event_s=0.1 if seen else None)


def naive_proof(body: bytes) -> bool:
    """Whether, read carelessly, there is a call by the right name with a string value, and some announced end."""
    text = body.decode("utf-8", "replace")
    fragments = "".join(json.loads(f'"{found}"', strict=False) for found in _fragments(text))
    whole = fragments + text
    name = TOOL.name
    letters = sum(1 for n in range(len(name)) if name[n : n + 4] in text)
    value = re.search(r'"value"\s*:\s*"', whole) or re.search(r"\\u00", text)
    return bool(letters and value and naive_end(body))


def naive_end(body: bytes) -> bool:
    """Whether some end is announced somewhere."""
    text = body.decode("utf-8", "replace")
    ends = r'"(?:finish_reason|stop_reason|finishReason|blockReason)"\s*:\s*"[^"]|message_stop|response\.(?:completed|incomplete)'
    return "[DONE]" in text or bool(re.search(ends, text))


def _fragments(text: str) -> Iterator[str]:
    for found in re.finditer(r'"(?:arguments|partial_json|delta)"\s*:\s*"((?:[^"\\]|\\.)*)"', text):
        try:
            json.loads(f'"{found[1]}"', strict=False)
        except ValueError:
            continue
        yield found[1]


def fuzz_answers(dialect: str, dice: random.Random, tally: Tally, corpus: Sequence[bytes]) -> None:
    """One mutated answer, read in pieces and whole, and concluded from on each rung."""
    route = Route(
        id="r",
        name="r",
        provider="p",
        dialect=dialect,
        base_url="http://127.0.0.1/v1",
        model="m",
        deadline=timedelta(seconds=5),
    )
    body = mutate(dice.choice(corpus), corpus, dice)
    status, kind, end = dice.choice(STATUSES), dice.choice(TYPES), dice.choice(ENDS)
    cuts = sorted(dice.randrange(len(body) + 1) for _ in range(dice.choice((0, 1, 3, 20))))
    contract = CONTRACTS["native_tools" if dice.random() < 0.5 else dice.choice(list(CONTRACTS))]
    exchanges: list[Exchange] = []
    while (ask := contract.next_ask(route, "bcdfgh", exchanges)) is not None:
        pieces = exchange(route, ask, body, status, kind, end, cuts)
        whole = exchange(route, ask, body, status, kind, end, [])
        if replace(pieces, bytes_read=0) != replace(whole, bytes_read=0) and not _only_the_tail_differs(pieces, whole):
            tally.failures.append(f"cuts change the facts: {dialect} {body!r} {cuts}")
        exchanges.append(pieces)
    conclusion, _ = contract.conclude(route, exchanges, Circumstances())
    tally.statuses[conclusion.status] += 1
    proof = naive_proof(body) if contract.name in OF_CALLS else naive_end(body)
    if conclusion.status.outcome is Outcome.PROVEN and not proof:
        tally.failures.append(f"proven without a proof: {dialect} {conclusion.rule_id} {body!r}")
    if conclusion.rule_id == "native_tools.undecided":
        tally.failures.append(f"undecided: {dialect} {status} {body!r}")


def _only_the_tail_differs(pieces: Exchange, whole: Exchange) -> bool:
    """Fed whole, what follows the announced end or the error is read in one go: usage and end markers may be there
    that a reader who stops at once doesn't see."""
    if pieces.reading is None or whole.reading is None:
        return False
    tail = {"done_missing", "usage_missing"}
    same = [
        replace(
            e,
            bytes_read=0,
            end=End.ENOUGH,
            reading=replace(
                e.reading, events=0, tokens_in=None, tokens_out=None, capped=False, quirks=e.reading.quirks - tail
            ),
        )
        for e in (pieces, whole)
        if e.reading is not None
    ]
    return same[0] == same[1]


def fuzz_redactor(dice: random.Random, tally: Tally) -> None:
    """A secret planted in noise in some encoding must not come out in any."""
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" + dice.choice(
        ("", "+/=", "%&?#", "\"\\'<>", "-_.")
    )
    key = "".join(dice.choice(alphabet) for _ in range(dice.choice((8, 16, 24, 51))))
    forms = [
        key,
        quote(key, safe=""),
        quote(key),
        base64.b64encode(key.encode()).decode(),
        base64.urlsafe_b64encode(key.encode()).decode().rstrip("="),
        json.dumps(key)[1:-1],
        key.encode().hex(),
    ]
    noise = "".join(dice.choice("abc xyz:=\"'{}[],.\n\t\u200b/%&?") for _ in range(dice.choice((0, 5, 280, 320))))
    at = dice.randrange(len(noise) + 1)
    text = noise[:at] + dice.choice(forms) + noise[at:] + dice.choice(("", *forms))
    shown = Redactor([Secret(key)]).text(text)
    if any(form in shown for form in forms):
        tally.failures.append(f"a secret is shown: {key!r} in {text!r} gives {shown!r}")
    if len(shown) > 300:
        tally.failures.append(f"{len(shown)} characters are shown")


def run(seconds: float | None, rounds: int | None, seed: int) -> Tally:
    """Fuzz for so many seconds or rounds."""
    dice = random.Random(seed)
    tally = Tally()
    corpora = {dialect: bodies(dialect) for dialect in DIALECTS}
    until = time.monotonic() + seconds if seconds is not None else None
    done = 0
    while (
        (until is None or time.monotonic() < until) and (rounds is None or done < rounds) and len(tally.failures) < 20
    ):
        done += 1
        dialect = dice.choice(list(DIALECTS))
        started = time.perf_counter()
        kind = "redactor" if dice.random() < 0.1 else dialect
        try:
            if kind == "redactor":
                fuzz_redactor(dice, tally)
            else:
                fuzz_answers(dialect, dice, tally, corpora[dialect])
        except Exception as error:
            tally.failures.append(f"{kind}: {error!r} in round {done} of seed {seed}")
        tally.inputs[kind] += 1
        took = time.perf_counter() - started
        tally.slowest_s = max(tally.slowest_s, took)
        if took > SLOW_S:
            tally.failures.append(f"{kind}: {took:.1f} s in round {done} of seed {seed}")
    return tally


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=600.0)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    tally = run(given.seconds, None, given.seed)
    print(
        f"inputs: {sum(tally.inputs.values())} ({', '.join(f'{name} {count}' for name, count in tally.inputs.most_common())})"
    )
    print(f"verdicts: {', '.join(f'{name} {count}' for name, count in tally.statuses.most_common())}")
    print(f"slowest input: {tally.slowest_s * 1000:.0f} ms")
    print(f"failures: {len(tally.failures)}")
    for failure in tally.failures:
        print(" ", failure[:2000])
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
