"""One-shot checks: every chosen contract of every chosen route once, without a database, for people or for machines."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from service.config import credentials
from service.model import Outcome, Route, Verdict
from service.probe import Moment, Probed, ProbeFault, Prober
from service.quirks import EXPLANATIONS
from service.remedies import in_words, remedy
from service.transport import LoopLag, Transport

_MARKS: Mapping[Outcome, tuple[str, str]] = {
    Outcome.PROVEN: ("✓", "green"),
    Outcome.VIOLATED: ("✗", "bold red"),
    Outcome.BLOCKED: ("■", "magenta"),
    Outcome.UNAVAILABLE: ("↯", "yellow"),
    Outcome.UNPROVEN: ("?", "cyan"),
}


@dataclass(frozen=True)
class Checked:
    route: Route
    probed: Probed

    @property
    def verdict(self) -> Verdict:
        return self.probed.verdict


async def run_checks(
    pairs: Sequence[tuple[Route, str]],
    *,
    location: str,
    egress: Sequence[str],
    proxy: str | None = None,
    ca_file: str | None = None,
    concurrency: int,
    environ: Mapping[str, str],
) -> tuple[list[Checked], list[str]]:
    """Probe each pair of route and contract, at most `concurrency` at once; results keep the order of the pairs. Ctrl-C
    ends the probes under way with the verdict `cancelled`, and those that didn't begin are left out.

    Beside the results: our own faults, in words that may be shown.
    """
    slots = asyncio.Semaphore(concurrency)
    async with LoopLag() as lag, Transport(lag) as transport:
        prober = Prober(transport, location)
        prober.watch([route for route, _ in pairs], egress, proxy=proxy, ca_file=ca_file)

        async def one(route: Route, contract: str) -> Checked:
            async with slots:
                return Checked(route, await prober.probe(route, contract, credentials(route, environ), Moment.now()))

        tasks = [asyncio.create_task(one(route, contract)) for route, contract in pairs]
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: [task.cancel() for task in tasks])
        done = await asyncio.gather(*tasks, return_exceptions=True)
    finished, faults = [], []
    for (route, contract), result in zip(pairs, done, strict=True):
        if isinstance(result, Checked):
            finished.append(result)
        elif isinstance(result, ProbeFault):
            faults.append(f"{route.id}: {contract} could not be probed, by a fault of our own:\n{result}")
        elif not isinstance(result, asyncio.CancelledError):
            raise result
    return finished, faults


def as_json(checks: Sequence[Checked], *, explain: bool) -> str:
    """An array of objects and nothing else."""
    return json.dumps([_object(check, explain) for check in checks], indent=2, ensure_ascii=False)


def _object(check: Checked, explain: bool) -> dict[str, Any]:
    route, verdict = check.route, check.verdict
    shown: dict[str, Any] = {
        "route": route.id,
        "provider": route.provider,
        "dialect": route.dialect,
        "model": route.model,
        "served_model": verdict.served_model,
        "contract": verdict.contract,
        "location": verdict.location,
        "status": verdict.status.value,
        "outcome": verdict.outcome.value,
        "reason": verdict.reason,
        "quirks": list(verdict.quirks),
        "rule_id": verdict.rule_id,
        "requests": verdict.requests,
        "retry_after_s": verdict.retry_after_s,
        "detail": verdict.detail,
        "remedy": remedy(verdict.status, verdict.reason, contract=verdict.contract),
        "started_at": verdict.started_at.isoformat(),
        "duration_s": round(verdict.duration_s, 4),
        "time_to_first_token_s": _rounded(verdict.time_to_first_token_s),
        "tokens": {"input": verdict.tokens_in, "output": verdict.tokens_out},
    }
    if explain:
        shown["because"] = check.probed.because
        shown["ladder"] = [asdict(rung) for rung in verdict.rungs]
    return shown


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


def print_text(checks: Sequence[Checked], *, asked: int, explain: bool, out: TextIO = sys.stdout) -> None:
    """For people: one line a check, what to do under those that aren't proven, a sentence at the end. `asked` is how
    many checks there would be without Ctrl-C and faults of our own."""
    console = Console(file=out, highlight=False, soft_wrap=False)
    for check in checks:
        _print_check(console, check, explain=explain)
    proven = sum(check.verdict.outcome is Outcome.PROVEN for check in checks)
    style = "green" if proven == asked else "bold red"
    console.print(Text(f"{proven} of {asked} proven", style))


def _print_check(console: Console, check: Checked, *, explain: bool) -> None:
    verdict = check.verdict
    mark, style = _MARKS[verdict.outcome]
    line = Text.assemble(
        (f"{mark} ", style),
        (check.route.name, "bold"),
        f"  {verdict.contract}  ",
        (in_words(verdict.status), style),
        (f"  {verdict.status}", "dim"),
    )
    if verdict.reason:
        line.append(f" · {verdict.reason}", "dim")
    line.append(f"  {verdict.duration_s:.2f} s, {_counted(verdict.requests, 'request')}", "dim")
    console.print(line)
    if verdict.outcome is not Outcome.PROVEN:
        _indent(console, remedy(verdict.status, verdict.reason, contract=verdict.contract))
        if verdict.retry_after_s is not None:
            _indent(console, f"The provider asks to wait {verdict.retry_after_s:.0f} s.")
        if verdict.detail:
            _indent(console, f"The provider said: {verdict.detail}", "dim")
    for quirk in verdict.quirks:
        _indent(console, f"{quirk}: {EXPLANATIONS.get(quirk, 'an oddity of this route')}", "dim")
    if explain:
        _print_ladder(console, check)


def _print_ladder(console: Console, check: Checked) -> None:
    for number, rung in enumerate(check.verdict.rungs, 1):
        status = f"HTTP {rung.status}, " if rung.status is not None else ""
        _indent(console, Text.assemble((f"{number}. {rung.rung}", "bold"), f"  {rung.shape}"))
        times = f"{rung.duration_s:.2f} s" + (f", first token {rung.first_token_s:.2f} s" if rung.first_token_s else "")
        _indent(console, f"ended: {status}{rung.ended} ({times})", by=5)
        _indent(console, f"read:  {rung.read}", by=5)
        if rung.detail:
            _indent(console, f"said:  {rung.detail}", "dim", by=5)
    _indent(console, Text.assemble(("→ ", "bold"), (check.verdict.rule_id, "bold"), f"  {check.probed.because}"))


def _indent(console: Console, text: str | Text, style: str = "", by: int = 2) -> None:
    console.print(Padding(Text(text, style) if isinstance(text, str) else text, (0, 0, 0, by), expand=False))


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
