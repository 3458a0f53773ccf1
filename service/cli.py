"""The command line: `routeproof demo · serve · check · gate · pause · rejudge · config · db`.

The database and the web framework take a second to import, so that only the commands that need them do.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar
from uuid import UUID

import typer

from service import check as checks
from service import rejudge_report
from service.config import Config, ConfigError, adhoc_route, json_schema, load, parse_duration
from service.contracts import CONTRACTS
from service.model import Outcome, PauseScope, Route
from service.rejudge import Tally

if TYPE_CHECKING:
    from service.store import Store

T = TypeVar("T")

USAGE = 2
"""Exit code of usage and configuration errors, and of what we can't start."""

app = typer.Typer(
    name="routeproof",
    help="Contract probes for LLM routes, on a clock: does a real agent turn work here, right now?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="Look at a configuration.", no_args_is_help=True)
db_app = typer.Typer(help="Care for the database.", no_args_is_help=True)
pause_app = typer.Typer(help="Mute alerts for a while.", no_args_is_help=True)
location_app = typer.Typer(help="Where routes are asked from.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.add_typer(db_app, name="db")
app.add_typer(pause_app, name="pause")
app.add_typer(location_app, name="location")


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Role(StrEnum):
    ALL = "all"
    PROBER = "prober"
    WEB = "web"


ConfigFile = Annotated[Path, typer.Option("-c", "--config", help="The configuration file.", show_default=False)]


@app.command()
def check(
    config: Annotated[Path | None, typer.Option("-c", "--config", help="Check the routes of this file.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Check one route at this URL instead.")] = None,
    model: Annotated[str | None, typer.Option(help="The model to ask for, with --base-url.")] = None,
    dialect: Annotated[str, typer.Option(help="The API that the URL speaks, with --base-url.")] = "openai-chat",
    api_key_env: Annotated[str | None, typer.Option(help="The variable that holds the key, with --base-url.")] = None,
    route: Annotated[list[str] | None, typer.Option(help="Only this route, by name or id. Repeatable.")] = None,
    contract: Annotated[list[str] | None, typer.Option(help="Only this contract. Repeatable.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Probes at once.")] = 16,
    format: Annotated[Format, typer.Option(help="For people or for machines.")] = Format.TEXT,
    explain: Annotated[bool, typer.Option("--explain", help="Show the ladder, rung by rung.")] = False,
) -> None:
    """Probe routes once, without a database. Exit code 0: all proven; 1: not all; 2: usage or configuration."""
    location, way_out = "default", dict[str, Any](egress=())
    if (config is None) == (base_url is None):
        _stop("give either --config FILE or --base-url URL with --model NAME")
    if config is not None:
        loaded = _load(config)
        routes, service = loaded.routes, loaded.service
        location = service.location
        way_out = {"egress": service.egress_check, "proxy": service.proxy, "ca_file": service.ca_file}
    else:
        if model is None:
            _stop("--base-url needs --model NAME")
        try:
            routes = (adhoc_route(base_url or "", model, dialect, api_key_env),)
        except ConfigError as error:
            _stop(str(error))
    pairs = _choose(routes, route or [], contract or [])
    done, faults = asyncio.run(
        checks.run_checks(pairs, location=location, concurrency=concurrency, environ=os.environ, **way_out)
    )
    if format is Format.JSON:
        sys.stdout.write(checks.as_json(done, explain=explain) + "\n")
    else:
        checks.print_text(done, asked=len(pairs), explain=explain)
    for fault in faults:
        typer.echo(fault, err=True)
    all_proven = len(done) == len(pairs) and all(check.verdict.outcome is Outcome.PROVEN for check in done)
    raise typer.Exit(0 if all_proven else 1)


def _choose(routes: Sequence[Route], names: list[str], contracts: list[str]) -> list[tuple[Route, str]]:
    """The pairs of route and contract that were asked for; unknown names stop with the known ones."""
    for name in names:
        if not any(name in (route.id, route.name) for route in routes):
            _stop(f"--route: no route is called {name!r}; there are {', '.join(route.id for route in routes)}")
    for name in contracts:
        if name not in CONTRACTS:
            _stop(f"--contract: {name!r} isn't one of {', '.join(CONTRACTS)}")
    chosen = [route for route in routes if not names or route.id in names or route.name in names]
    wanted = [(route, contracts or [use.name for use in route.contracts]) for route in chosen]
    return [(route, name) for route, names_of_route in wanted for name in dict.fromkeys(names_of_route)]


@app.command()
def serve(
    config: ConfigFile,
    role: Annotated[
        Role, typer.Option(help="What this process does: probe, serve pages and metrics, or both.")
    ] = Role.ALL,
    log_level: Annotated[
        LogLevel, typer.Option(envvar="ROUTEPROOF_LOG_LEVEL", help="The least that is logged to stderr.")
    ] = LogLevel.INFO,
) -> None:
    """Probe the configured routes on a clock, and serve pages and metrics. SIGTERM and Ctrl-C drain and stop."""
    from service import bootstrap

    loaded = _load(config, serving=True)
    bootstrap.set_up_logs(level=logging.getLevelNamesMapping()[log_level.name])
    _run(bootstrap.serve(loaded, probes=role is not Role.WEB, web=role is not Role.PROBER, path=config))


@app.command()
def demo(port: Annotated[int, typer.Option(min=1, max=65535, help="Where the pages are served.")] = 8080) -> None:
    """Show the service at work on scripted routes: no configuration, no key, no network."""
    from service import bootstrap
    from service.demo.show import show

    bootstrap.set_up_logs(level=logging.WARNING)
    _run(show(port), otherwise="Choose another port with --port.")


def _run(
    main: Coroutine[Any, Any, None], *, otherwise: str = "Set service.listen or ROUTEPROOF_LISTEN to a free address."
) -> None:
    from service import bootstrap
    from service.database import DatabaseUnavailable
    from service.spool import SpoolError

    try:
        bootstrap.run(main)
    except (DatabaseUnavailable, SpoolError) as error:
        _stop(str(error))
    except bootstrap.CannotListen as error:
        _stop(f"{error} {otherwise}")


@db_app.command("upgrade")
def db_upgrade(config: ConfigFile) -> None:
    """Bring the database's tables to this release's revision."""
    loaded = _load(config)
    _run(_upgrade(loaded))


async def _upgrade(config: Config) -> None:
    from service.database import open_database, upgrade

    url = config.service.database_url
    async with open_database(url.reveal() if url else None, config.service.data_dir) as database:
        await upgrade(database)


@app.command()
def rejudge(
    config: ConfigFile,
    route: Annotated[str | None, typer.Option(help="Only verdicts of this route, by name or id.")] = None,
    contract: Annotated[str | None, typer.Option(help="Only verdicts of this contract.")] = None,
    since: Annotated[str | None, typer.Option(help="Only verdicts of the last time, such as 7d.")] = None,
    format: Annotated[Format, typer.Option(help="For people or for machines.")] = Format.TEXT,
) -> None:
    """Judge stored verdicts again by this version's rules, and list those that would read differently. Nothing is
    written and nothing is probed. Exit code 0: none would; 1: some would; 2: usage, configuration or database."""
    loaded = _load(config)
    _choose(loaded.routes, [route] if route else [], [contract] if contract else [])
    route_id = next((known.id for known in loaded.routes if route in (known.id, known.name)), None)
    tally = asyncio.run(_rejudge(loaded, _span("--since", since) if since is not None else None, route_id, contract))
    if format is Format.JSON:
        sys.stdout.write(rejudge_report.as_json(tally) + "\n")
    else:
        rejudge_report.print_text(tally)
    raise typer.Exit(1 if tally.changed else 0)


def _span(option: str, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        _stop(f"{option}: {error}")


async def _rejudge(config: Config, since: timedelta | None, route_id: str | None, contract: str | None) -> Tally:
    tally = Tally()
    async with _store(config) as store:
        async for page in store.recorded(since, route_id, contract):
            for verdict in page:
                tally.add(verdict)
    return tally


@app.command()
def gate(
    config: ConfigFile,
    route: Annotated[str, typer.Argument(help="The route, by name or id.", show_default=False)],
    location: Annotated[str | None, typer.Option(help="As proven from there; else from everywhere.")] = None,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Allow what isn't known to be broken: never asked, stale, expired.")
    ] = False,
    format: Annotated[Format, typer.Option(help="For people or for machines.")] = Format.TEXT,
) -> None:
    """May tool traffic go to this route now? Only when every required contract is proven, fresh and confirmed.
    Exit code 0: allowed; 1: denied; 2: usage, configuration or database."""
    from service import operate

    loaded = _load(config)
    answer = _operate(loaded, lambda store: operate.ask_gate(store, route, location, allow_unknown=allow_unknown))
    typer.echo(answer.model_dump_json() if format is Format.JSON else operate.gate_in_words(answer))
    raise typer.Exit(0 if answer.allowed else 1)


@pause_app.command("start")
def pause_start(
    config: ConfigFile,
    scope: Annotated[PauseScope, typer.Argument(help="What is paused.", show_default=False)],
    target: Annotated[str, typer.Argument(help="The route's id, the provider or the tag.", show_default=False)],
    duration: Annotated[str, typer.Option("--for", help="How long, such as 2h.", show_default=False)],
    stop_probing: Annotated[bool, typer.Option("--stop-probing", help="Don't probe meanwhile: proofs expire.")] = False,
    reason: Annotated[str, typer.Option(help="Why, for people.")] = "",
    by: Annotated[str, typer.Option(help="Who wants it.")] = "command line",
) -> None:
    """Mute alerts about a route, a provider or a tag for a while."""
    from service import operate

    try:
        wanted = operate.new_pause(scope, target, _span("--for", duration).total_seconds(), stop_probing, reason, by)
    except operate.RefusedError as error:
        _stop(str(error))
    made = _operate(_load(config), lambda store: operate.start_pause(store, wanted))
    typer.echo(operate.pause_in_words(made))


@pause_app.command("end")
def pause_end(
    config: ConfigFile, id: Annotated[UUID, typer.Argument(help="As `pause list` shows it.", show_default=False)]
) -> None:
    """End a pause before its time."""
    from service import operate

    ended = _operate(_load(config), lambda store: operate.end_pause(store, id))
    typer.echo(operate.pause_in_words(ended))


@pause_app.command("list")
def pause_list(
    config: ConfigFile,
    ended: Annotated[bool, typer.Option("--ended", help="Those that are over, the newest 100.")] = False,
    format: Annotated[Format, typer.Option(help="For people or for machines.")] = Format.TEXT,
) -> None:
    """The pauses that go on."""
    from service import operate

    found = _operate(_load(config), lambda store: operate.list_pauses(store, ended=ended))
    if format is Format.JSON:
        typer.echo(found.model_dump_json())
        return
    for pause in found.items:
        typer.echo(operate.pause_in_words(pause))


@location_app.command("list")
def location_list(config: ConfigFile) -> None:
    """The vantage points that have something to ask."""
    from service import operate

    for location in _operate(_load(config), operate.list_locations):
        typer.echo(operate.location_in_words(location))


@location_app.command("remove")
def location_remove(
    config: ConfigFile, name: Annotated[str, typer.Argument(help="As `service.location` has it.", show_default=False)]
) -> None:
    """Give a vantage point up for good, once its probers are stopped: what it found is history, and no longer shown."""
    from service import operate

    gone = _operate(_load(config), lambda store: operate.remove_location(store, name))
    typer.echo(f"Given up, with its history for as long as it is kept: {operate.location_in_words(gone)}")


def _operate(config: Config, ask: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    from service.operate import RefusedError

    async def asked() -> T:
        async with _store(config) as store:
            return await ask(store)

    try:
        return asyncio.run(asked())
    except RefusedError as error:
        _stop(str(error))


@asynccontextmanager
async def _store(config: Config) -> AsyncIterator[Store]:
    """What is stored, or a sentence on stderr and exit 2."""
    from service.database import DatabaseUnavailable, open_database
    from service.store import Store
    from service.store.errors import DATABASE_ERRORS

    url = config.service.database_url
    try:
        async with open_database(url.reveal() if url else None, config.service.data_dir) as database:
            yield Store(database.engine)
    except DatabaseUnavailable as error:
        _stop(str(error))
    except DATABASE_ERRORS as error:
        fault = type(getattr(error, "orig", None) or error).__name__
        _stop(f"What is stored can't be read ({fault}). `routeproof db upgrade` makes tables where there are none.")


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON Schema of the configuration, for editors."""
    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")


@config_app.command("check")
def config_check(config: ConfigFile) -> None:
    """Say what is wrong with a configuration, all of it, and start nothing."""
    loaded = _load(config)
    typer.echo(f"{config}: {len(loaded.routes)} routes, hash {loaded.hash}")


def _load(path: Path, *, serving: bool = False) -> Config:
    """The configuration, or all of its mistakes on stderr and exit 2. Warnings go to stderr."""
    try:
        loaded = load(path, os.environ, serving=serving)
    except ConfigError as error:
        _stop(str(error))
    for warning in loaded.warnings:
        typer.echo(f"warning: {warning}", err=True)
    return loaded


def _stop(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(USAGE)


def main() -> None:
    app()
