"""This process's own series, kept by prometheus-client."""

from __future__ import annotations

from datetime import timedelta

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from service.model import LATENCY_BOUNDS_S, Verdict

LAG_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class ProcessMetrics:
    """This process's own series, in a registry of their own. All of them carry `location`."""

    def __init__(self, location: str, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # it would double the number of families
        self._location = location
        self._registry = CollectorRegistry()
        self._probes = Counter(
            "routeproof_probes",
            "Probes that this process finished.",
            ("provider", "contract", "status", "outcome", "location"),
            registry=self._registry,
        )
        by_outcome = ("provider", "contract", "outcome", "location")
        self._duration = Histogram(
            "routeproof_probe_duration_seconds",
            "Duration of a whole probe.",
            by_outcome,
            buckets=LATENCY_BOUNDS_S,
            registry=self._registry,
        )
        self._first_token = Histogram(
            "routeproof_probe_time_to_first_token_seconds",
            "Time from sending to the first token, where one came.",
            by_outcome,
            buckets=LATENCY_BOUNDS_S,
            registry=self._registry,
        )
        self._lag = Histogram(
            "routeproof_schedule_lag_seconds",
            "Actual start of a probe minus its due time.",
            ("location",),
            buckets=LAG_BOUNDS_S,
            registry=self._registry,
        ).labels(location)
        self._in_flight = self._gauge("routeproof_probes_in_flight", "Probes that are under way.")
        self._database_up = self._gauge("routeproof_database_up", "1 while the database answers, else 0.")
        self._egress = Gauge(
            "routeproof_egress_up",
            "1 while our own network works, else 0. Absent until that was in question.",
            ("location",),
            registry=self._registry,
        )
        self._leases_expired = self._counter("routeproof_leases_expired", "Leases that ended before their probe.")
        self._runs_missed = self._counter("routeproof_runs_missed", "Runs of the clockwork that were missed.")
        self._database_errors = self._counter("routeproof_database_errors", "Database operations that failed.")
        self._verdicts_refused = self._counter(
            "routeproof_verdicts_refused", "Verdicts that the database refused for their data."
        )
        self._redactions_refused = self._counter(
            "routeproof_redactions_refused", "Details withheld because a secret survived redaction."
        )
        self._spooled = self._gauge(
            "routeproof_spool_verdicts", "Verdicts that are kept on disk because the database is away."
        )
        self._spooled.set(0)
        self._loop_lag = self._gauge(
            "routeproof_event_loop_lag_seconds", "How late the event loop was at worst within the last minute."
        )
        self._jobs = Gauge(
            "routeproof_job_last_success_timestamp_seconds",
            "When a job of the clockwork came to its end last; until then, when the process began with it.",
            ("task", "location"),
            registry=self._registry,
        )
        self._reloaded = self._gauge(
            "routeproof_config_last_reload_successful", "1 when the configuration was taken up as it is now, else 0."
        )
        self._reloaded_at = self._gauge(
            "routeproof_config_last_reload_success_timestamp_seconds", "When a configuration was taken up last."
        )
        self._config = Gauge(
            "routeproof_config_info",
            "1, with the hash of the active configuration.",
            ("location", "hash"),
            registry=self._registry,
        )
        Gauge(
            "routeproof_build_info",
            "1, with the version of this build.",
            ("location", "version"),
            registry=self._registry,
        ).labels(location, version).set(1)

    def probe_started(self, lag: timedelta) -> None:
        """A probe starts, `lag` after it was due."""
        self._lag.observe(max(0.0, lag.total_seconds()))

    def probe_finished(self, provider: str, verdict: Verdict) -> None:
        """A probe that was started ended with a verdict."""
        outcome = verdict.outcome.value
        self._probes.labels(provider, verdict.contract, verdict.status.value, outcome, self._location).inc()
        labels = (provider, verdict.contract, outcome, self._location)
        self._duration.labels(*labels).observe(verdict.duration_s)
        if verdict.time_to_first_token_s is not None:
            self._first_token.labels(*labels).observe(verdict.time_to_first_token_s)

    def in_flight(self, probes: int) -> None:
        self._in_flight.set(probes)

    def database(self, up: bool) -> None:
        self._database_up.set(up)

    def egress(self, up: bool) -> None:
        self._egress.labels(self._location).set(up)

    def config_loaded(self, config_hash: str) -> None:
        """Another configuration is active from now on; the earlier one's series goes."""
        self._config.clear()
        self._config.labels(self._location, config_hash).set(1)

    def config_reloaded(self, *, successful: bool) -> None:
        """The configuration was taken up, at the start or later, or had mistakes."""
        self._reloaded.set(successful)
        if successful:
            self._reloaded_at.set_to_current_time()

    def spooled(self, verdicts: int) -> None:
        self._spooled.set(verdicts)

    def loop_lag(self, seconds: float) -> None:
        self._loop_lag.set(seconds)

    def job_begun(self, job: str) -> None:
        """A job that never comes to its end shows as well."""
        self.job_done(job)

    def job_done(self, job: str) -> None:
        self._jobs.labels(job, self._location).set_to_current_time()

    def leases_expired(self, count: int = 1) -> None:
        self._leases_expired.inc(count)

    def runs_missed(self, count: int = 1) -> None:
        self._runs_missed.inc(count)

    def database_error(self) -> None:
        self._database_errors.inc()

    def verdict_refused(self) -> None:
        self._verdicts_refused.inc()

    def redaction_refused(self) -> None:
        self._redactions_refused.inc()

    def render(self) -> bytes:
        """The process's series in the text format."""
        return generate_latest(self._registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(name, meaning, ("location",), registry=self._registry).labels(self._location)

    def _counter(self, name: str, meaning: str) -> Counter:
        return Counter(name, meaning, ("location",), registry=self._registry).labels(self._location)
