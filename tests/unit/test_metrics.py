"""What a scrape says, read back with Prometheus's own parser."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from service.metrics import ProcessMetrics, exposition, render_cells
from service.model import CellRow, Outcome, Snapshot, Status, Verdict
from tests.samples import MINUTE, NOW, SECOND, row, snapshot, standing

CELL = {"route": "alpha", "provider": "acme", "contract": "native_tools", "location": "default"}


@dataclass(frozen=True)
class Board:
    snapshot: Snapshot
    now: datetime = NOW
    database_up: bool = True


def samples(text: str) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def of_cell(cell: CellRow, now: datetime = NOW) -> dict[str, float]:
    """The series that a single cell has, by the end of their names."""
    found = samples(render_cells(snapshot(cell), now))
    return {
        name.removeprefix("routeproof_contract_"): values[0].value
        for name, values in found.items()
        if name.startswith("routeproof_contract_") and not name.endswith("verdicts_total")
    }


def verdict(status: Status = Status.TOOLS_SUPPORTED, first_token_s: float | None = 0.3) -> Verdict:
    return Verdict(
        id=UUID(int=7),
        route_id="alpha",
        contract="native_tools",
        location="default",
        status=status,
        rule_id="RP-001",
        reason=None,
        quirks=(),
        served_model=None,
        detail="",
        requests=1,
        retry_after_s=None,
        started_at=NOW,
        observed_at=NOW,
        duration_s=1.2,
        time_to_first_token_s=first_token_s,
        tokens_in=None,
        tokens_out=None,
        rungs=(),
        facts={},
        fingerprint="f1",
        ruleset=1,
    )


@pytest.mark.parametrize(
    ("status", "ago", "proven", "fresh"),
    [
        (Status.TOOLS_SUPPORTED, 15 * MINUTE, 1, 1),
        (Status.TOOLS_SUPPORTED, 15 * MINUTE + SECOND, 1, 0),
        (Status.TOOLS_SUPPORTED, 30 * MINUTE, 1, 0),
        (Status.TOOLS_SUPPORTED, 30 * MINUTE + SECOND, None, 0),
        (Status.TOOLS_SUPPORTED, -6 * SECOND, None, 0),
        (Status.STREAM_EARLY_EOF, MINUTE, 0, 1),
        (Status.ENDPOINT_AUTH_FAILED, MINUTE, 0, 1),
        (Status.UNREACHABLE, 16 * MINUTE, 0, 0),
        (Status.UNREACHABLE, 31 * MINUTE, None, 0),
    ],
)
def test_proven_speaks_while_the_verdict_lives_and_is_absent_after(
    status: Status, ago: timedelta, proven: int | None, fresh: int
) -> None:
    series = of_cell(row(state=standing(status, ago)))
    assert series.get("proven") == proven
    assert series["fresh"] == fresh
    assert ("status" in series) == (proven is not None)


def test_a_cell_that_was_never_probed_says_only_that_it_is_there() -> None:
    assert of_cell(row()) == {"fresh": 0, "required": 1, "regressed": 0, "flapping": 0, "paused": 0}
    assert of_cell(row(required=False))["required"] == 0


def test_the_same_snapshot_expires_as_the_clock_goes_on() -> None:
    cell = row(state=standing(ago=MINUTE))
    assert of_cell(cell, NOW)["proven"] == 1
    assert "proven" not in of_cell(cell, NOW + 30 * MINUTE)


def test_times_and_timings_of_a_cell() -> None:
    proven_at = NOW - 20 * MINUTE
    last = standing(Status.INCONCLUSIVE_NO_TOOL_CALL, 10 * SECOND, first_token_s=None)
    series = of_cell(row(state=standing(Status.TIMEOUT, 5 * MINUTE), last=last, last_proven_at=proven_at))
    assert series["last_verdict_timestamp_seconds"] == (NOW - 10 * SECOND).timestamp()
    assert series["last_proven_timestamp_seconds"] == proven_at.timestamp()
    assert series["proof_expires_timestamp_seconds"] == (proven_at + 30 * MINUTE).timestamp()
    assert series["last_duration_seconds"] == 1.5
    assert "last_time_to_first_token_seconds" not in series


def test_status_is_one_series_with_the_words_of_the_standing_verdict() -> None:
    cell = row(
        state=standing(Status.STREAM_EARLY_EOF, reason="closed_after_event"),
        last=standing(Status.CANCELLED, SECOND),
    )
    (sample,) = samples(render_cells(snapshot(cell), NOW))["routeproof_contract_status"]
    assert sample.labels == CELL | {
        "status": "stream_early_eof",
        "outcome": "violated",
        "reason": "closed_after_event",
    }


def test_each_quirk_of_the_standing_verdict_is_a_series_until_it_expires() -> None:
    odd = row(
        state=standing(quirks=("done_missing", "index_missing")), last=standing(Status.CANCELLED, quirks=("flaky",))
    )
    cells = snapshot(odd, row("beta", state=standing()))
    found = samples(render_cells(cells, NOW))["routeproof_contract_quirk"]
    assert [(s.labels, s.value) for s in found] == [
        (CELL | {"quirk": "done_missing"}, 1),
        (CELL | {"quirk": "index_missing"}, 1),
    ]
    assert "routeproof_contract_quirk" not in samples(render_cells(cells, NOW + 30 * MINUTE))


def test_verdicts_are_counted_for_every_outcome_from_zero_on() -> None:
    cell = row(counts={Outcome.PROVEN: 12, Outcome.BLOCKED: 3})
    counted = samples(render_cells(snapshot(cell), NOW))["routeproof_contract_verdicts_total"]
    assert {s.labels["outcome"]: s.value for s in counted} == {
        "proven": 12,
        "violated": 0,
        "blocked": 3,
        "unavailable": 0,
        "unproven": 0,
    }


def test_a_route_is_described_once_whatever_its_contracts() -> None:
    text = render_cells(
        snapshot(row(tags=("prod", "eu")), row(tags=("prod", "eu"), contract="agent_turn"), row("beta")), NOW
    )
    first, second = samples(text)["routeproof_route_info"]
    assert first.labels == {
        "route": "alpha",
        "provider": "acme",
        "model": "model-1",
        "dialect": "openai-chat",
        "tags": ",prod,eu,",
        "url": "https://api.example/v1",
    }
    assert second.labels["tags"] == ""


def test_a_location_shows_its_prober_from_outside() -> None:
    found = samples(
        render_cells(
            snapshot(
                row(state=standing(ago=9 * MINUTE), next_due_at=NOW - 90 * SECOND),
                row("beta", state=standing(ago=4 * MINUTE), next_due_at=NOW + MINUTE),
                row("gamma", location="far", next_due_at=NOW + MINUTE),
            ),
            NOW,
        )
    )

    def by_location(name: str) -> dict[str, float]:
        return {s.labels["location"]: s.value for s in found[f"routeproof_location_{name}"]}

    assert by_location("cells") == {"default": 2, "far": 1}
    assert by_location("oldest_due_seconds") == {"default": 90, "far": 0}
    assert by_location("last_verdict_timestamp_seconds") == {"default": (NOW - 4 * MINUTE).timestamp()}


def test_a_cell_that_is_asked_again_and_again_without_an_answer_still_waits() -> None:
    begun_late = replace(row(), claimed_late_s=700.0)
    begun_early = replace(row("far"), claimed_late_s=-1.0)
    for cells, waits in (((begun_late, row("beta", next_due_at=NOW - 90 * SECOND)), 700), ((begun_early,), 0)):
        (sample,) = samples(render_cells(snapshot(*cells), NOW))["routeproof_location_oldest_due_seconds"]
        assert sample.value == waits


def test_a_route_has_used_what_all_its_cells_have() -> None:
    cells = (
        replace(row(), tokens_in=40, tokens_out=12),
        replace(row(contract="agent_turn", location="far"), tokens_in=7, tokens_out=1),
        replace(row("beta"), tokens_in=3),
    )
    told = samples(render_cells(snapshot(*cells), NOW))
    used = {(s.labels["route"], s.labels["kind"]): s.value for s in told["routeproof_route_tokens_total"]}
    assert used == {("alpha", "input"): 47, ("alpha", "output"): 13, ("beta", "input"): 3, ("beta", "output"): 0}
    assert [s.labels["route"] for s in told["routeproof_route_info"]] == ["alpha", "beta"]


HOSTILE = [
    '"quoted"',
    "back\\slash",
    "new\nline",
    "\\n not a line",
    "ünï ✓ 通道",
    "} 1\nforged{",
    "tab\there",
    "\r",
    "\\",
    '"',
]


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_label_values_come_back_as_they_were(value: str) -> None:
    cell = row(
        value,
        provider=value,
        location=value,
        tags=(value,),
        url=value,
        state=standing(Status.TIMEOUT, reason=value, quirks=(value,)),
    )
    cell = replace(cell, route=replace(cell.route, model=value, dialect=value))
    found = samples(render_cells(snapshot(cell), NOW))
    (proven,) = found["routeproof_contract_proven"]
    assert proven.labels == {"route": value, "provider": value, "contract": "native_tools", "location": value}
    (status,) = found["routeproof_contract_status"]
    assert status.labels["reason"] == value
    (quirk,) = found["routeproof_contract_quirk"]
    assert quirk.labels["quirk"] == value
    (info,) = found["routeproof_route_info"]
    assert info.labels["url"] == info.labels["model"] == info.labels["dialect"] == value
    assert info.labels["tags"] == f",{value},"
    assert set(found) == set(
        samples(render_cells(snapshot(row(state=standing(Status.TIMEOUT, quirks=("flaky",)))), NOW))
    )


def test_a_scrape_names_and_types_each_family_once() -> None:
    process = ProcessMetrics("default", "1.2.3")
    process.config_loaded("abc")
    process.egress(True)
    process.probe_started(timedelta(0))
    process.probe_finished("acme", verdict())
    text = exposition(process, Board(snapshot(row(state=standing()), row("beta", state=standing())))).decode()
    for word in ("# TYPE ", "# HELP "):
        names = [line.split()[2] for line in text.splitlines() if line.startswith(word)]
        assert len(names) == len(set(names))
        assert all(name.startswith("routeproof_") for name in names)
    assert "_created" not in text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert all(family.type != "unknown" and family.documentation for family in families.values())
    assert families["routeproof_contract_verdicts"].type == "counter"
    assert families["routeproof_probe_duration_seconds"].type == "histogram"


def test_the_process_counts_what_it_did_with_its_location_on_every_series() -> None:
    process = ProcessMetrics("eu-1", "1.2.3")
    process.probe_started(timedelta(seconds=3))
    process.probe_started(timedelta(0))
    process.in_flight(1)
    process.probe_finished("acme", verdict())
    process.probe_finished("acme", verdict(Status.UNREACHABLE, first_token_s=None))
    process.database_error()
    process.verdict_refused()
    process.redaction_refused()
    process.leases_expired(2)
    process.runs_missed()
    process.config_loaded("old")
    process.config_loaded("new")
    found = samples(process.render().decode())

    assert all(sample.labels["location"] == "eu-1" for series in found.values() for sample in series)
    assert {(s.labels["status"], s.labels["outcome"]): s.value for s in found["routeproof_probes_total"]} == {
        ("tools_supported", "proven"): 1,
        ("unreachable", "unavailable"): 1,
    }
    assert [s.labels["outcome"] for s in found["routeproof_probe_time_to_first_token_seconds_count"]] == ["proven"]
    assert found["routeproof_schedule_lag_seconds_sum"][0].value == 3
    assert [s.labels["hash"] for s in found["routeproof_config_info"]] == ["new"]
    single = {name: series[0].value for name, series in found.items() if len(series) == 1}
    assert single["routeproof_probes_in_flight"] == 1
    assert single["routeproof_database_errors_total"] == 1
    assert single["routeproof_verdicts_refused_total"] == 1
    assert single["routeproof_redactions_refused_total"] == 1
    assert single["routeproof_leases_expired_total"] == 2
    assert single["routeproof_runs_missed_total"] == 1
    assert found["routeproof_build_info"][0].labels["version"] == "1.2.3"
    assert "routeproof_egress_up" not in found

    process.in_flight(0)
    process.egress(False)
    found = samples(process.render().decode())
    assert found["routeproof_probes_in_flight"][0].value == 0
    assert found["routeproof_egress_up"][0].value == 0


@pytest.mark.parametrize("up", [True, False])
def test_a_scrape_answers_whether_or_not_the_database_does(up: bool) -> None:
    found = samples(exposition(ProcessMetrics("default", "1"), Board(snapshot(row()), database_up=up)).decode())
    assert found["routeproof_database_up"][0].value == up
    assert "routeproof_contract_fresh" in found


def test_before_the_first_snapshot_a_scrape_has_no_series_of_cells() -> None:
    found = samples(exposition(ProcessMetrics("default", "1"), Board(snapshot(), database_up=False)).decode())
    assert found["routeproof_database_up"][0].value == 0
    assert not [name for name in found if name.startswith(("routeproof_contract", "routeproof_location"))]
