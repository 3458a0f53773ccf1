"""The providers and hosts that routes share: how much may be sent to each, and where a provider tells its state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

from service import contracts
from service.config.mistakes import Loc, Notes, did_you_mean
from service.config.schema import HostSection, ProviderSection
from service.config.sections import validate
from service.config.urls import host_and_port
from service.config.values import hosts_of
from service.model import Limit, Route

S = TypeVar("S", bound=HostSection)


def read_providers(raw: object, routes: Sequence[Route], notes: Notes) -> tuple[tuple[Limit, ...], Mapping[str, str]]:
    """The limits and the status URLs of the providers that routes have. Mistakes and unused names go to `notes`."""
    asked = _contracts_by(lambda route: route.provider, routes)
    limits: list[Limit] = []
    status_urls: dict[str, str] = {}
    for name, section, loc in _entries(ProviderSection, raw, "providers", notes):
        if name not in asked:
            notes.warn(loc, f"no route has this provider{did_you_mean(name, asked)}")
            continue
        limits += _limits("provider", [name], section, asked, loc, notes)
        if section.status_url is not None:
            status_urls[name] = section.status_url
    return tuple(limits), status_urls


def read_hosts(raw: object, routes: Sequence[Route], notes: Notes) -> tuple[Limit, ...]:
    """The limits of the hosts that routes have. Mistakes and unused names go to `notes`."""
    asked = _contracts_by(lambda route: host_and_port(route.base_url), [route for route in routes if route.base_url])
    limits: list[Limit] = []
    places: dict[str, Loc] = {}
    for name, section, loc in _entries(HostSection, raw, "hosts", notes):
        try:
            named = hosts_of(name)
        except ValueError as error:
            notes.add(loc, str(error))
            continue
        if double := next((places[host] for host in named if host in places), None):
            notes.add(loc, f"the same host as in line {notes.line(double)}: keep one of the two")
            continue
        places |= dict.fromkeys(named, loc)
        hosts = [host for host in named if host in asked]
        if not hosts:
            known = (host.removesuffix(":443") for host in asked)
            notes.warn(loc, f"no route has this host and port{did_you_mean(name, known)}")
        limits += _limits("host", hosts, section, asked, loc, notes)
    return tuple(limits)


def _contracts_by(key: Callable[[Route], str], routes: Sequence[Route]) -> dict[str, set[str]]:
    """The contracts asked of each provider or host."""
    asked: dict[str, set[str]] = {}
    for route in routes:
        asked.setdefault(key(route), set()).update(use.name for use in route.contracts)
    return asked


def _entries(model: type[S], raw: object, key: str, notes: Notes) -> Iterator[tuple[str, S, Loc]]:
    if raw is None:
        return
    if not isinstance(raw, dict):
        notes.add((key,), "must be a mapping")
        return
    for name, item in raw.items():
        section, _ = validate(model, item, (key, name), notes)
        yield name, section, (key, name)


def _limits(
    scope: Literal["provider", "host"],
    names: Collection[str],
    section: HostSection,
    asked: Mapping[str, Collection[str]],
    loc: Loc,
    notes: Notes,
) -> Iterator[Limit]:
    """A probe is only begun when all that it may send is within the limit: a lower limit would stop it for ever."""
    used = [contracts.CONTRACTS[contract] for name in names for contract in sorted(asked[name])]
    dearest = max(used, key=lambda contract: contract.max_requests, default=None)
    most = section.max_requests_per_minute
    if dearest is not None and most is not None and most < dearest.max_requests:
        notes.add(
            (*loc, "max_requests_per_minute"),
            f"one probe of {dearest.name} may send {dearest.max_requests} requests: must be at least that",
        )
    if section.max_concurrency is not None or most is not None:
        for name in names:
            yield Limit(scope, name, section.max_concurrency, most)
