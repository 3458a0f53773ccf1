"""The service section: what concerns the process and not a route, from the file and `ROUTEPROOF_*` variables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from service.config.mistakes import NOT_YET, Notes
from service.config.schema import ServiceSection
from service.config.secret_refs import UnreadableError, read_file
from service.config.sections import validate
from service.config.values import database_url
from service.model import Secret

PREFIX = "ROUTEPROOF_"
DATA_DIR = "ROUTEPROOF_DATA_DIR"
# PostgreSQL refuses to run as root, and the user that it runs as instead can't enter root's home.
_DATA_OF_ROOT = Path("/var/lib/routeproof")

_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of the process. `database_url` None: the embedded server under `data_dir`.

    `proxy` and `ca_file` here are for the egress check; a route carries the ones that hold for it.
    """

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 8080
    external_url: str = "http://127.0.0.1:8080"
    database_url: Secret | None = None
    location: str = "default"
    egress_check: tuple[str, ...] = ()
    public_status: bool = True
    proxy: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    allow_embedded: bool = False


def read_settings(raw: object, environ: Mapping[str, str], notes: Notes) -> ServiceSettings:
    """The settings of the section `raw`, overridden by `environ`. Mistakes go to `notes`."""
    section, _ = validate(ServiceSection, raw, ("service",), notes)
    overrides = dict(_overrides(environ, notes))
    over = Notes(notes.file)
    overridden, _ = validate(ServiceSection, overrides, (), over)
    for mistake in over.mistakes:
        notes.add_variable(_variable(mistake.key.partition("[")[0]), mistake.message)
    update = {key: getattr(overridden, key) for key in overridden.model_fields_set}
    if overrides.keys() & {"database_url", "database_url_file"}:
        update = {"database_url": None, "database_url_file": None} | update
    section = section.model_copy(update=update)
    host, port = section.listen
    return ServiceSettings(
        data_dir=_data_dir(environ, notes),
        host=host,
        port=port,
        external_url=section.external_url or f"http://{f'[{host}]' if ':' in host else host}:{port}",
        database_url=_database(section, overrides, notes),
        location=section.location,
        egress_check=tuple(section.egress_check),
        public_status=section.public_status,
        proxy=section.proxy,
        ca_file=section.ca_file,
        allow_embedded=section.allow_embedded,
    )


def warnings(environ: Mapping[str, str]) -> Iterator[str]:
    """One sentence for each variable that is nearly one of ours. Others may exist: Kubernetes makes some."""
    known = {*ServiceSection.model_fields, *ServiceSection.NOT_YET, "data_dir"}
    for name in sorted(environ):
        key = name.removeprefix(PREFIX).lower()
        near = get_close_matches(key, sorted(known), n=1, cutoff=0.8)
        if name.startswith(PREFIX) and near and near[0] != key:
            yield f"{name} isn't a setting and is ignored; did you mean {_variable(near[0])}?"


def _overrides(environ: Mapping[str, str], notes: Notes) -> Iterator[tuple[str, Any]]:
    for key in sorted(ServiceSection.NOT_YET):
        if environ.get(_variable(key)):
            notes.add_variable(_variable(key), NOT_YET)
    for key, model_field in ServiceSection.model_fields.items():
        text = environ.get(_variable(key))
        if not text:
            continue
        if model_field.annotation is bool:
            yield key, _BOOLEANS.get(text, text)
        elif key == "egress_check":
            yield key, text.split()
        else:
            yield key, text


def _variable(key: str) -> str:
    return PREFIX + key.upper()


def _database(section: ServiceSection, overrides: Mapping[str, Any], notes: Notes) -> Secret | None:
    if section.database_url_file is None:
        return section.database_url
    problem = "database_url is given too: keep one of the two"
    if section.database_url is None:
        try:
            return database_url(read_file(section.database_url_file))
        except (UnreadableError, ValueError) as error:
            problem = f"the file {error}"
    if "database_url_file" in overrides:
        notes.add_variable(_variable("database_url_file"), problem)
    else:
        notes.add(("service", "database_url_file"), problem)
    return None


def _data_dir(environ: Mapping[str, str], notes: Notes) -> Path:
    if given := environ.get(DATA_DIR):
        return Path(given).expanduser().absolute()
    # the XDG specification says that a relative path there is to be ignored
    base = environ.get("XDG_DATA_HOME", "")
    if not Path(base).is_absolute() and os.geteuid() == 0:
        return _DATA_OF_ROOT
    if not Path(base).is_absolute():
        base = str(Path(environ.get("HOME") or os.path.expanduser("~"), ".local", "share"))
    if not Path(base).is_absolute():
        notes.add_variable(DATA_DIR, "required: this user has no home directory")
    return Path(base, "routeproof")
