"""The routes section: each route over the defaults, and what its keys must be to one another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from service import contracts, dialects
from service.config.durations import show_duration
from service.config.mistakes import Loc, Notes
from service.config.schema import DefaultsSection, RouteSection
from service.config.sections import validate
from service.config.settings import ServiceSettings
from service.config.values import CREDENTIAL_HEADERS, slug
from service.model import Auth, Budget, ContractUse, Price, Route, SecretRef, TokenCap

Problem = tuple[Loc, str]

MAX_EXPIRY = timedelta(days=3650)


@dataclass(frozen=True)
class Inherited:
    """What a route has when it doesn't say otherwise: keys of the defaults section, and the service's way out.

    `bad` are keys of the defaults section with mistakes: nothing can be concluded from them.
    """

    keys: Mapping[str, Any]
    bad: frozenset[str] = frozenset()
    proxy: str | None = None
    ca_file: str | None = None


def read_defaults(raw: object, settings: ServiceSettings, notes: Notes) -> Inherited:
    """The keys of the defaults section as written, without those that have mistakes."""
    _, bad = validate(DefaultsSection, raw, ("defaults",), notes)
    keys = {key: value for key, value in raw.items() if key not in bad} if isinstance(raw, dict) else {}
    return Inherited(keys, frozenset(bad), settings.proxy, settings.ca_file)


def read_routes(raw: object, inherited: Inherited, notes: Notes) -> tuple[Route, ...]:
    """The routes of the list. Mistakes go to `notes`; a route without a usable id is left out."""
    if not isinstance(raw, list) or not raw:
        notes.add(("routes",), "must be a list of at least one route")
        return ()
    routes: dict[str, Route] = {}
    places: dict[str, Loc] = {}
    for index, item in enumerate(raw):
        loc: Loc = ("routes", index)
        route = read_route(item, loc, inherited, notes)
        if route is None:
            continue
        if route.id in routes:
            key = "id" if item.get("id") is not None else "name"
            line = notes.line(places[route.id])
            notes.add((*loc, key), f"gives the same id as the route in line {line}: set another id")
            continue
        routes[route.id], places[route.id] = route, loc
    return tuple(routes.values())


def read_route(raw: object, loc: Loc, inherited: Inherited, notes: Notes) -> Route | None:
    """One route. Mistakes go to `notes`, and what they spoil has its default, but that mistaken contracts are none;
    None: it has no usable id."""
    own = raw if isinstance(raw, dict) else {}
    section, bad = validate(RouteSection, {**inherited.keys, **own} if own else raw, loc, notes)
    if not own:
        return None
    bad |= inherited.bad - own.keys()
    uses = _uses(section, own)
    for problem in (
        *_credential_problems(section, loc),
        *_header_problems(section, loc),
        *_contract_problems(section, own, bad, loc),
        *_freshness_problems(section, uses, own, bad, loc),
    ):
        notes.add(*problem)
    _check_budget(section, uses, own, bad, loc, notes)
    if bad & {"name", "id"}:
        return None
    route_id = section.id or slug(section.name)
    if not route_id:
        notes.add((*loc, "name"), "no id can be made of this name: set an id")
        return None
    return Route(
        id=route_id,
        name=section.name,
        provider=section.provider or urlsplit(section.base_url).hostname or "",
        dialect=section.dialect,
        base_url=section.base_url,
        model=section.model,
        key=SecretRef(section.api_key_env, section.api_key_file) if _names_key(section) else None,
        auth=Auth(section.auth) if section.auth is not None else None,
        headers=section.headers,
        secret_headers={name: SecretRef(ref.env, ref.file) for name, ref in section.secret_headers.items()},
        body=section.body,
        token_cap=TokenCap(section.token_cap.field, section.token_cap.value),
        parallel_tool_calls=section.parallel_tool_calls,
        include_usage=section.include_usage,
        temperature=section.temperature,
        served_model_pattern=section.served_model_pattern,
        proxy=section.proxy if "proxy" in own else inherited.proxy,
        ca_file=section.ca_file if "ca_file" in own else inherited.ca_file,
        deadline=section.deadline,
        interval=section.interval,
        fresh_for=section.fresh_for,
        expires_after=section.expires_after,
        contracts=() if "contracts" in bad else uses,
        budget=Budget(**section.budget.model_dump()) if section.budget else None,
        price=Price(**section.price.model_dump()) if section.price else None,
        tags=tuple(section.tags),
    )


def span_of(span: float | timedelta, interval: timedelta) -> timedelta:
    """A multiple of the interval as a duration; a duration stays as it is."""
    return span if isinstance(span, timedelta) else interval * span


def _names_key(section: RouteSection) -> bool:
    return section.api_key_env is not None or section.api_key_file is not None


def _uses(section: RouteSection, own: Mapping[str, Any]) -> tuple[ContractUse, ...]:
    known = contracts.CONTRACTS
    every = {entry.name: entry.every for entry in section.contracts or ()}
    names = every or [name for name, contract in known.items() if contract.required]
    return tuple(
        ContractUse(
            name=name,
            every=every.get(name) or known[name].every,
            required=known[name].required if section.required is None else name in section.required,
        )
        for name in names
    )


def _credential_problems(section: RouteSection, loc: Loc) -> Iterator[Problem]:
    if section.api_key_env is not None and section.api_key_file is not None:
        yield (*loc, "api_key_file"), "api_key_env is given too: keep one of the two"
    if section.auth == Auth.NONE and _names_key(section):
        yield (*loc, "auth"), "none sends no credential, but one is named: drop one of the two"


def _header_problems(section: RouteSection, loc: Loc) -> Iterator[Problem]:
    credential = _credential_header(section) if _names_key(section) else None
    seen: set[str] = set()
    named = [("headers", name) for name in section.headers]
    named += [("secret_headers", name) for name in section.secret_headers]
    for key, name in named:
        if name.lower() in seen:
            yield (*loc, key, name), "given twice: upper and lower case are the same in a header's name"
        seen.add(name.lower())
        if name.lower() == credential:
            yield (*loc, key, name), "the probe sends the credential there: drop one of the two"
    for name, ref in section.secret_headers.items():
        if (ref.env is None) == (ref.file is None):
            yield (*loc, "secret_headers", name), "must be {env: VARIABLE} or {file: PATH}"


def _credential_header(section: RouteSection) -> str | None:
    if section.auth is not None:
        return CREDENTIAL_HEADERS.get(Auth(section.auth))
    dialect = dialects.DIALECTS.get(section.dialect)
    return CREDENTIAL_HEADERS[dialect.auth] if dialect is not None else None


def _contract_problems(section: RouteSection, own: Mapping[str, Any], bad: set[str], loc: Loc) -> Iterator[Problem]:
    entries = [entry.name for entry in section.contracts or ()]
    place: Loc = loc if "contracts" in own else ("defaults",)
    for index, name in enumerate(entries):
        if name in entries[:index]:
            yield (*place, "contracts", index), "this contract is listed twice"
    if "required" in own and not bad & {"contracts", "required"}:
        asked = {use.name for use in _uses(section, own)}
        for index, name in enumerate(section.required or ()):
            if name not in asked:
                yield (*loc, "required", index), "this contract isn't among the route's contracts"


def _freshness_problems(
    section: RouteSection, uses: tuple[ContractUse, ...], own: Mapping[str, Any], bad: set[str], loc: Loc
) -> Iterator[Problem]:
    """At most one problem a key, of the first contract that has it."""
    found: dict[str, str] = {}
    for use in uses:
        interval = section.interval * use.every
        fresh_for = span_of(section.fresh_for, interval)
        expires_after = span_of(section.expires_after, interval)
        asked = f"{use.name} is asked every {show_duration(interval)}"
        if fresh_for < interval:
            found.setdefault("fresh_for", f"shorter than an interval: {asked}")
        if expires_after < interval:
            found.setdefault("expires_after", f"shorter than an interval: {asked}")
        elif expires_after < fresh_for:
            found.setdefault("expires_after", f"shorter than fresh_for, which is {show_duration(fresh_for)} here")
        elif expires_after > MAX_EXPIRY:
            found.setdefault("expires_after", f"longer than {MAX_EXPIRY.days}d: {asked}")
    if bad & {"interval", "contracts", "fresh_for", "expires_after"}:
        return
    for key, message in found.items():
        mine = own.keys() & {key, "interval", "contracts", "fresh_for"}
        yield (*(loc if mine else ("defaults",)), key), message


def _check_budget(
    section: RouteSection, uses: tuple[ContractUse, ...], own: Mapping[str, Any], bad: set[str], loc: Loc, notes: Notes
) -> None:
    """One probe of each required contract must fit into a day's requests; that all of the probes do is wished for."""
    most = section.budget.requests_per_day if section.budget is not None else None
    if most is None or bad & {"budget", "contracts", "required", "interval"}:
        return
    mine = own.keys() & {"budget", "contracts", "required", "interval"}
    place: Loc = (*(loc if mine else ("defaults",)), "budget", "requests_per_day")
    needed = sum(contracts.CONTRACTS[use.name].max_requests for use in uses if use.required)
    probes = sum(timedelta(days=1) / (section.interval * use.every) for use in uses)
    if most < needed:
        wanted = f"one probe of each required contract may take {needed} requests in all"
        notes.add(place, f"{wanted}: must be at least that")
    elif most < probes:
        taken = math.ceil(round(probes, 6))
        notes.warn(place, f"the intervals take at least {taken} requests a day: they will be stretched")
