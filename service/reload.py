"""Taking up a changed configuration and changed keys while the service runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from service.config import Config, ConfigError, changes_needing_restart, content_hash, load, read_content
from service.config.secret_refs import UnreadableError, read_secret, references
from service.metrics import ProcessMetrics
from service.model import Secret, SecretRef

POLL_S = 5.0

log = structlog.get_logger("routeproof.reload")

Apply = Callable[[Config], Awaitable[None]]
Rotated = Callable[[Sequence[str]], Awaitable[None]]


class Reload:
    """Watches the file of a configuration and the secrets that it names.

    `apply` takes a whole, checked configuration up; `rotated` is told the ids of routes whose secrets are others now. A
    file with mistakes changes nothing. What `apply` can't take up because the database is away is tried again.
    """

    def __init__(
        self, path: Path, config: Config, metrics: ProcessMetrics, apply: Apply, rotated: Rotated | None = None
    ) -> None:
        self._path = path
        self._config = config
        self._metrics = metrics
        self._apply = apply
        self._rotated = rotated
        self._refused: str | None = None
        self._forced = False
        self._secrets = _material(config, os.environ)
        self._lock = asyncio.Lock()

    def force(self) -> None:
        """At the next poll the file is taken up even if its bytes are the same."""
        self._forced = True

    async def poll(self) -> None:
        """Look once. Raises what `apply` and `rotated` raise; then the next poll tries again."""
        async with self._lock:
            await self._poll_file()
            await self._poll_secrets()

    async def _poll_file(self) -> None:
        found = ""
        try:
            found = content_hash(await asyncio.to_thread(read_content, self._path))
            if not self._forced and found in (self._config.hash, self._refused):
                self._settle(found)
                return
            config = await asyncio.to_thread(load, self._path, os.environ, serving=True)
        except ConfigError as error:
            self._refuse(error, found)
            return
        fixed = changes_needing_restart(self._config, config)
        config = _with_fixed(config, self._config)
        await self._apply(config)
        for warning in config.warnings:
            log.warning(warning, action="config_warning")
        if fixed:
            log.warning(
                "these settings are taken up at the next start only", action="config_needs_restart", settings=fixed
            )
        self._config, self._refused, self._forced = config, None, False
        self._metrics.config_reloaded(successful=True)
        log.info("took up the configuration", action="config_reloaded", hash=config.hash, routes=len(config.routes))

    def _settle(self, found: str) -> None:
        """A file with mistakes may have become again what is in use."""
        if found == self._config.hash and self._refused is not None:
            self._refused = None
            self._metrics.config_reloaded(successful=True)
            log.info("the configuration is again the one in use", action="config_restored", hash=found)

    def _refuse(self, error: ConfigError, found: str) -> None:
        """Said once for each content of the file; an empty hash: it can't be read."""
        said, self._refused, self._forced = self._refused == found and not self._forced, found, False
        if said:
            return
        self._metrics.config_reloaded(successful=False)
        log.error("the configuration has mistakes and changes nothing", action="config_refused", mistakes=str(error))

    async def _poll_secrets(self) -> None:
        present = await asyncio.to_thread(_material, self._config, os.environ)
        changed = {ref for ref, secret in present.items() if ref in self._secrets and self._secrets[ref] != secret}
        routes = [route.id for route in self._config.routes if changed & set(references(route))]
        if routes and self._rotated is not None:
            await self._rotated(routes)
            log.info("secrets changed: their routes are asked at once", action="secrets_changed", routes=len(routes))
        self._secrets = present


def _material(config: Config, environ: Mapping[str, str]) -> dict[SecretRef, Secret | None]:
    """Every secret as it is now, in memory alone; None for one that can't be had."""
    found: dict[SecretRef, Secret | None] = {}
    for route in config.routes:
        for ref in references(route):
            if ref not in found:
                found[ref] = _secret(ref, environ)
    return found


def _secret(ref: SecretRef, environ: Mapping[str, str]) -> Secret | None:
    try:
        return read_secret(ref, environ)
    except UnreadableError:
        return None


def _with_fixed(new: Config, old: Config) -> Config:
    """The new configuration with what only a restart changes as it was."""
    kept = {name: getattr(old.service, name) for name in ("data_dir", "database_url", "location", "allow_embedded")}
    if (old.service.host, old.service.port) != (new.service.host, new.service.port):
        names = ("host", "port", "external_url")
        kept |= {name: getattr(old.service, name) for name in names}
    return replace(new, service=replace(new.service, **kept))
