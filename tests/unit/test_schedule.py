"""The clockwork against stores that are counters: no database, no network, no waiting but for the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from prometheus_client import generate_latest
from sqlalchemy.exc import OperationalError

from service.metrics import ProcessMetrics
from service.model import Claim, Route, Status, Verdict
from service.probe import Moment, Probed, ProbeFault, Prober
from service.saver import Saver
from service.schedule import MOST_UNSAVED, Schedule
from service.store import Sign, Store
from tests.samples import NOW

ROUTE = Route("r", "r", "acme", "openai-chat", "https://api.example/v1", "m")


def claim(contract: str = "native_tools", route_id: str = "r", unsent: str | None = None) -> Claim:
    now = datetime.now(UTC)
    return Claim(1, route_id, contract, "here", "f", uuid4(), now, now, now + timedelta(minutes=5), unsent)


class Shelf:
    """A store that holds some claims. What each method does can be replaced."""

    leases_expired = 0

    def __init__(self, *claims: Claim, **replaced: Callable[..., Awaitable[Any]]) -> None:
        self.asked = asyncio.Event()
        self.claims = list(claims)
        self.claimed_for: list[tuple[str, str, int]] = []
        self.probers: set[UUID | None] = set()
        self.released: list[Claim] = []
        self.cancelled: list[Verdict] = []
        self.signs: list[Sign] = []
        self.active: str | None = "hash"
        self.done: list[Any] = []
        self.__dict__ |= replaced

    async def claim(self, location: str, config_hash: str, slots: int, prober: UUID | None = None) -> list[Claim]:
        self.asked.set()
        self.probers.add(prober)
        self.claimed_for.append((location, config_hash, slots))
        claims, self.claims = self.claims[:slots], self.claims[slots:]
        return claims

    async def seconds_to_next_due(self, location: str, config_hash: str, prober: UUID | None = None) -> float | None:
        self.probers.add(prober)
        return 0.0 if self.claims else None

    async def release(self, claims: list[Claim], cancelled: Sequence[Verdict] = ()) -> None:
        self.released += claims
        self.cancelled += cancelled

    async def tell(self, sign: Sign) -> str | None:
        self.signs.append(sign)
        return self.active

    async def leave(self, prober: Any) -> None:
        self.done.append("left")

    async def roll_up(self) -> int:
        self.done.append("rolled up")
        return 0

    async def forget_debits(self) -> None:
        self.done.append("forgot debits")

    async def mind_the_clock(self) -> None:
        self.done.append("minded the clock")

    async def ensure_partitions(self) -> None:
        self.done.append("made days")

    async def drop_partitions(self, older_than: timedelta) -> int:
        self.done.append(("dropped days", older_than))
        return 0

    async def drop_largest(self, max_bytes: int) -> int:
        self.done.append(("dropped the largest", max_bytes))
        return 0

    async def forget(self, older_than: timedelta) -> int:
        self.done.append(("forgot transitions", older_than))
        return 0


class Asked:
    """A prober whose probes last until they are told what to become."""

    egress_up: bool | None = None

    def __init__(self) -> None:
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.ends: asyncio.Queue[Any] = asyncio.Queue()

    async def probe(self, route: Route, contract: str, *_: Any) -> Probed:
        self.begun.put_nowait(contract)
        try:
            end = await self.ends.get()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            end = Status.CANCELLED
        if isinstance(end, BaseException):
            raise end
        return probed(contract, end)

    def unsent(self, route: Route, contract: str, reason: str, since: Moment) -> Probed:
        self.begun.put_nowait(f"not {contract}: {reason}")
        return probed(contract, Status.NOT_SENT)


def probed(contract: str, status: Status) -> Probed:
    verdict = Verdict(
        uuid4(), "r", contract, "here", status, "RP-001", None, (), None, "", 1, None, NOW, NOW, 0.5, None, None, None,
        (), {}, "f", 1,
    )  # fmt: skip
    return Probed(verdict, "because", 0)


class Kept:
    """A saver that keeps what it is given."""

    unsaved = 0

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []
        self.got: asyncio.Queue[Status] = asyncio.Queue()
        self.rest_saved = False

    @property
    def spooled(self) -> int:
        return 0

    def put(self, claim: Claim, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        self.got.put_nowait(verdict.status)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def adopt(self) -> None:
        pass

    async def save_rest(self) -> None:
        self.rest_saved = True


class Works:
    """A schedule with its surroundings, configured for one route."""

    def __init__(self, store: Shelf, **options: Any) -> None:
        self.store, self.prober, self.saver = store, Asked(), Kept()
        self.metrics = ProcessMetrics("here", "0")
        self.schedule = Schedule(
            cast(Store, store), cast(Prober, self.prober), cast(Saver, self.saver), "here", self.metrics, "0", **options
        )
        self.schedule.configure({"r": ROUTE}, "hash")

    async def begun(self) -> str:
        async with asyncio.timeout(60):
            return await self.prober.begun.get()

    async def end(self) -> None:
        """Cancel the probes of a schedule that was never started."""
        for task in self.schedule._running:
            task.cancel()
        await turns()

    async def got(self) -> Status:
        async with asyncio.timeout(60):
            return await self.saver.got.get()


async def turns(number: int = 20) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


class TestDispatch:
    async def test_it_follows_dispatch_however_late_the_loop_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def busy(*_: Any) -> float:
            asyncio.get_running_loop().call_soon(time.sleep, 0.03)
            return 0.0

        monkeypatch.setattr("service.schedule._HELD_UP_S", 0.01)
        works = Works(Shelf(seconds_to_next_due=busy))
        works.schedule.start()
        async with asyncio.timeout(60):
            while len(works.store.claimed_for) < 5:
                await asyncio.sleep(0.01)
        assert works.schedule.faults() == []
        await works.schedule.drain(1)

    async def test_it_claims_for_its_location_and_configuration_as_many_as_there_are_free_slots(self) -> None:
        works = Works(Shelf(claim("one"), claim("two"), claim("three")), slots=2)
        works.schedule.start()
        assert {await works.begun(), await works.begun()} == {"one", "two"}
        await turns()
        assert works.store.claimed_for == [("here", "hash", 2)]
        works.prober.ends.put_nowait(Status.TOOLS_SUPPORTED)
        assert await works.begun() == "three"  # the probe that ended made room
        assert works.store.claimed_for[1] == ("here", "hash", 1)
        await works.schedule.drain(0)

    async def test_slots_that_get_free_while_it_claims_are_filled_at_once(self) -> None:
        shelf = Shelf(claim("one"), claim("two"), claim("three"), claim("four"))
        works = Works(shelf, slots=2)
        give = shelf.claim

        async def claim_while_all_end(*args: Any) -> list[Claim]:
            claims = await give(*args)
            for _ in range(len(works.schedule._running)):
                works.prober.ends.put_nowait(Status.TOOLS_SUPPORTED)
            await turns()
            return claims

        shelf.claim = claim_while_all_end  # type: ignore[method-assign]
        assert await works.schedule._claim_and_start() == 5.0  # both slots are taken: the next end wakes it
        works.prober.ends.put_nowait(Status.TOOLS_SUPPORTED)
        await turns()
        assert await works.schedule._claim_and_start() < 1  # it claimed for one slot, and now another is free
        await works.end()

    async def test_an_end_between_a_dispatch_and_the_plan_for_the_next_is_not_forgotten(self) -> None:
        works = Works(Shelf(claim("one")), slots=1)
        planned: list[float] = []
        works.schedule._clockwork.once = lambda name, seconds, work: planned.append(seconds)  # type: ignore[method-assign]
        await works.schedule._dispatch()
        works.prober.ends.put_nowait(Status.TOOLS_SUPPORTED)
        await turns()
        works.schedule._plan_dispatch()
        assert planned == [0.1, 0.1]
        await works.schedule._dispatch()
        works.schedule._plan_dispatch()
        assert planned[2:] == [5.0]

    async def test_a_claim_that_says_why_it_isnt_to_be_sent_becomes_a_verdict_without_a_probe(self) -> None:
        works = Works(Shelf(claim("one", unsent="paused"), claim("two", unsent="budget_spent")))
        works.schedule.start()
        assert {await works.begun(), await works.begun()} == {"not one: paused", "not two: budget_spent"}
        assert [await works.got(), await works.got()] == [Status.NOT_SENT] * 2
        await works.schedule.drain(0)

    async def test_a_cell_whose_route_a_reload_took_away_is_given_back(self) -> None:
        gone = claim(route_id="gone")
        works = Works(Shelf(gone, claim("ours")))
        works.schedule.start()
        assert await works.begun() == "ours"
        await works.schedule.drain(0)
        assert gone in works.store.released

    async def test_a_probe_that_fails_by_our_own_fault_gives_nothing_back(self) -> None:
        works = Works(Shelf(claim()))
        works.schedule.start()
        await works.begun()
        works.prober.ends.put_nowait(ProbeFault("a bug"))
        await turns()
        await works.schedule.drain(0)
        assert (works.saver.verdicts, works.store.released) == ([], [])

    @pytest.mark.parametrize("unsent", [None, "paused"])
    async def test_what_fails_in_our_own_hands_is_under_way_no_more(
        self, monkeypatch: pytest.MonkeyPatch, unsent: str | None
    ) -> None:
        def broken(*_: Any) -> None:
            raise RuntimeError

        works = Works(Shelf(claim(unsent=unsent)))
        monkeypatch.setattr(works.saver, "put", broken)
        works.schedule.start()
        await works.begun()
        if unsent is None:
            assert b'routeproof_probes_in_flight{location="here"} 1.0' in works.metrics.render()
        works.prober.ends.put_nowait(Status.TIMEOUT)
        await turns()
        assert b'routeproof_probes_in_flight{location="here"} 0.0' in works.metrics.render()
        await works.schedule.drain(0)

    async def test_a_database_that_is_away_is_asked_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("service.schedule._RETRY_S", 0.01)
        store = Shelf(claim())
        real, away = store.claim, [OperationalError("", {}, Exception()), TimeoutError(), OSError()]

        async def claim_later(*about: Any) -> list[Claim]:
            if away:
                raise away.pop()
            return await real(*about)

        store.claim = claim_later  # type: ignore[method-assign]
        works = Works(store)
        works.schedule.start()
        assert await works.begun() == "native_tools"
        assert b'routeproof_database_errors_total{location="here"} 3.0' in generate_latest(works.metrics._registry)
        assert works.schedule.faults() == []
        await works.schedule.drain(0)


class TestDrain:
    async def test_nothing_more_is_claimed_while_too_much_waits_for_the_database(self) -> None:
        works = Works(Shelf(claim()))
        works.saver.unsaved = MOST_UNSAVED
        await works.schedule._dispatch()
        assert works.store.claimed_for == []
        works.saver.unsaved -= 1
        await works.schedule._dispatch()
        assert await works.begun() == "native_tools"
        works.prober.ends.put_nowait(Status.TIMEOUT)
        assert await works.got() is Status.TIMEOUT

    async def test_what_a_process_claimed_before_it_slept_is_given_back_unasked(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [1000.0]
        monkeypatch.setattr("service.schedule.suspended_clock", lambda: now[0])
        one = claim()

        async def slept(*_: Any) -> list[Claim]:
            now[0] += 3600
            return [one]

        works = Works(Shelf(claim=slept))
        await works.schedule._dispatch()
        assert works.store.released == [one]
        assert works.prober.begun.empty()
        assert works.schedule._running == {}

    async def test_what_is_claimed_while_the_service_stops_is_given_back(self) -> None:
        answer, asked, two = asyncio.Event(), asyncio.Event(), [claim(), claim()]

        async def late(*_: Any) -> list[Claim]:
            asked.set()
            await answer.wait()
            return two

        works = Works(Shelf(claim=late))
        works.schedule.start()
        await asked.wait()
        draining = asyncio.create_task(works.schedule.drain(60))
        await asyncio.sleep(0)
        answer.set()
        async with asyncio.timeout(60):
            await draining
        assert works.store.released == two

    async def test_a_claim_that_never_ends_does_not_hold_up_the_stop(self) -> None:
        asked = asyncio.Event()

        async def hang(*_: Any) -> list[Claim]:
            asked.set()
            await asyncio.Event().wait()
            return []

        works = Works(Shelf(claim=hang))
        works.schedule.start()
        await asked.wait()
        async with asyncio.timeout(60):
            await works.schedule.drain(0.05)

    async def test_a_lease_that_cant_be_given_back_does_not_hold_it_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def hang(claims: list[Claim]) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr("service.schedule.GIVE_BACK_LIMIT_S", 0.05)
        works = Works(Shelf(claim(), release=hang))
        works.schedule.start()
        await works.begun()
        async with asyncio.timeout(60):
            await works.schedule.drain(0)

    async def test_running_probes_may_end(self) -> None:
        works = Works(Shelf(claim()))
        works.schedule.start()
        await works.begun()
        draining = asyncio.create_task(works.schedule.drain(60))
        await turns()
        works.prober.ends.put_nowait(Status.TOOLS_SUPPORTED)
        await draining
        assert [verdict.status for verdict in works.saver.verdicts] == [Status.TOOLS_SUPPORTED]
        assert works.store.released == []
        assert works.saver.rest_saved

    async def test_the_rest_are_cancelled_and_given_back(self) -> None:
        rest = claim("never ends")
        works = Works(Shelf(rest))
        works.schedule.start()
        await works.begun()
        async with asyncio.timeout(60):
            await works.schedule.drain(0.01)
        assert works.saver.verdicts == []
        assert works.store.released == [rest]
        assert [verdict.status for verdict in works.store.cancelled] == [Status.CANCELLED]
        assert works.saver.rest_saved
        assert works.store.done[-1] == "left"
        assert works.schedule.faults() == []


class TestSignOfLife:
    async def test_a_process_tells_of_itself_and_stops_claiming_when_another_configuration_is_active(self) -> None:
        works = Works(Shelf())
        await works.schedule._tell()
        assert not works.schedule.superseded
        works.store.active = "another"
        await works.schedule._tell()
        assert works.schedule.superseded
        await works.schedule._tell()
        works.store.active = "hash"
        works.schedule.start()
        await works.schedule._tell()
        assert not works.schedule.superseded
        told = [(sign.location, sign.config_hash, sign.superseded) for sign in works.store.signs[:4]]
        assert told == [("here", "hash", superseded) for superseded in (False, False, True, True)]
        await works.schedule.drain(0)

    async def test_one_that_takes_up_a_configuration_is_no_longer_superseded(self) -> None:
        works = Works(Shelf())
        works.store.active = "another"
        await works.schedule._tell()
        works.schedule.configure({"r": ROUTE}, "another")
        assert not works.schedule.superseded
        await works.schedule._tell()
        assert not works.schedule.superseded

    async def test_an_answer_from_before_a_reload_says_nothing_of_the_new_configuration(self) -> None:
        works = Works(Shelf())

        async def tell(sign: Sign) -> str:
            works.schedule.configure({"r": ROUTE}, "newer")
            return sign.config_hash

        works.store.tell = tell  # type: ignore[method-assign]
        await works.schedule._tell()
        assert not works.schedule.superseded

    async def test_one_that_is_superseded_does_not_ask_again_and_again(self) -> None:
        works = Works(Shelf(claim=_nothing, seconds_to_next_due=_at_once))
        works.store.active = "another"
        await works.schedule._tell()
        assert await works.schedule._claim_and_start() == 5.0


async def _nothing(*_: Any) -> list[Claim]:
    return []


async def _at_once(*_: Any) -> float:
    return 0.0


class TestJobs:
    async def test_housekeeping_makes_days_and_drops_what_is_past_its_time(self) -> None:
        works = Works(Shelf(), max_raw_bytes=1000)
        await works.schedule._housekeeping()
        assert works.store.done == [
            "made days",
            ("dropped days", timedelta(days=30)),
            ("dropped the largest", 1000),
            ("forgot transitions", timedelta(days=400)),
        ]

    async def test_without_a_bound_in_bytes_nothing_is_dropped_for_its_size(self) -> None:
        works = Works(Shelf())
        await works.schedule._housekeeping()
        assert [step[0] for step in works.store.done if isinstance(step, tuple)] == [
            "dropped days",
            "forgot transitions",
        ]

    async def test_sums_are_made_and_debits_forgotten_together(self) -> None:
        works = Works(Shelf())
        await works.schedule._roll_up()
        assert works.store.done == ["rolled up", "forgot debits", "minded the clock"]


class TestWatchdog:
    async def test_a_dispatch_that_hangs_is_a_fault(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [1000.0]
        monkeypatch.setattr("service.schedule.suspended_clock", lambda: now[0])
        works = Works(Shelf())
        assert works.schedule.faults() == []
        now[0] += 61
        assert works.schedule.faults() == ["the dispatch has not run for 61 s"]
        await works.schedule._dispatch()
        assert works.schedule.faults() == []

    async def test_a_saver_that_is_gone_is_a_fault(self) -> None:
        works = Works(Shelf())

        async def end() -> None:
            return

        works.saver.run = end  # type: ignore[method-assign]
        works.schedule.start()
        await turns()
        assert works.schedule.faults() == ["nothing saves verdicts any more"]
        await works.schedule.drain(0)


@pytest.mark.parametrize(
    ("claims", "due_in", "slept"),
    [
        pytest.param([], 3.0, 3.0, id="until the next cell is due"),
        pytest.param([], 0.02, 0.1, id="or a little later, for several at once"),
        pytest.param([claim()], 0.0, 0.1, id="shortly where more may be due"),
        pytest.param([], 0.0, 0.2, id="longer where a limit holds what is due"),
    ],
)
async def test_a_dispatch_sleeps_until_there_is_something_to_claim(
    claims: list[Claim], due_in: float, slept: float
) -> None:
    async def seconds(*_: Any) -> float:
        return due_in

    works = Works(Shelf(*claims, seconds_to_next_due=seconds))
    assert await works.schedule._claim_and_start() == slept
    await works.end()


async def test_a_process_claims_under_the_name_that_its_signs_of_life_bear() -> None:
    works = Works(Shelf())
    await works.schedule._tell()
    await works.schedule._claim_and_start()
    assert works.store.probers == {sign.id for sign in works.store.signs}
