"""The service section: what concerns the process and not a route, from the file and `ROUTEPROOF_*` variables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from service.config.mistakes import Notes
from service.config.schema import ServiceSection
from service.config.secret_refs import UnreadableError, read_file, read_secret
from service.config.sections import validate
from service.config.values import database_url
from service.model import Secret, SecretRef

PREFIX = "ROUTEPROOF_"
DATA_DIR = "ROUTEPROOF_DATA_DIR"
KUBERNETES = "KUBERNETES_SERVICE_HOST"
SHORTEST_TOKEN = 16
# PostgreSQL refuses to run as root, and the user that it runs as instead can't enter root's home.
_DATA_OF_ROOT = Path("/var/lib/routeproof")

_BOOLEANS = {"true": True, "false": False}
_NOT_EMBEDDED = (
    "required under Kubernetes: the embedded server's data can go with its pod;"
    " allow_embedded: true takes it all the same"
)
# of each pair one is given; a variable for either takes the place of both in the file
_PAIRS = (
    ("database_url", "database_url_file"),
    ("read_token_env", "read_token_file"),
    ("operate_token_env", "operate_token_file"),
)


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of the process. `database_url` None: the embedded server under `data_dir`.

    `proxy` and `ca_file` here are for the egress check; a route carries the ones that hold for it. `max_raw_bytes` is
    how much the raw verdicts may take before the oldest days are dropped.
    """

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 8080
    external_url: str = "http://127.0.0.1:8080"
    database_url: Secret | None = None
    location: str = "default"
    egress_check: tuple[str, ...] = ()
    read_token: Secret | None = None
    operate_token: Secret | None = None
    public_status: bool = True
    proxy: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    allow_embedded: bool = False
    max_raw_bytes: int | None = None


def read_settings(raw: object, environ: Mapping[str, str], notes: Notes, *, serving: bool = False) -> ServiceSettings:
    """The settings of the section `raw`, overridden by `environ`. Mistakes and warnings go to `notes`."""
    section, bad = validate(ServiceSection, raw, ("service",), notes)
    overrides = dict(_overrides(environ))
    over = Notes(notes.file)
    overridden, also_bad = validate(ServiceSection, overrides, (), over)
    for mistake in over.mistakes:
        notes.add_variable(_variable(mistake.key.partition("[")[0]), mistake.message)
    update = {key: getattr(overridden, key) for key in overridden.model_fields_set}
    for pair in _PAIRS:
        if overrides.keys() & pair:
            update = dict.fromkeys(pair) | update
    section = section.model_copy(update=update)
    _doubt_variables(section, environ, notes)
    host, port = section.listen
    embedded = not (section.database_url or section.database_url_file or section.allow_embedded)
    unclear = (bad | also_bad) & {"database_url", "database_url_file", "allow_embedded"}
    if serving and embedded and not unclear and environ.get(KUBERNETES):
        notes.add(("service", "database_url"), _NOT_EMBEDDED)
    read_token = _token("read_token", section, overrides, environ, notes)
    operate_token = _token("operate_token", section, overrides, environ, notes)
    if read_token is not None and read_token == operate_token:
        key = "operate_token_env" if section.operate_token_env is not None else "operate_token_file"
        _note(key, "the same as the read token: who may read could operate", overrides, notes)
    return ServiceSettings(
        data_dir=_data_dir(environ, notes),
        host=host,
        port=port,
        external_url=section.external_url or f"http://{f'[{host}]' if ':' in host else host}:{port}",
        database_url=_database(section, overrides, notes),
        location=section.location,
        egress_check=tuple(section.egress_check),
        read_token=read_token,
        operate_token=operate_token,
        public_status=section.public_status,
        proxy=section.proxy,
        ca_file=section.ca_file,
        allow_embedded=section.allow_embedded,
        max_raw_bytes=section.max_raw_bytes,
    )


def _doubt_variables(section: ServiceSection, environ: Mapping[str, str], notes: Notes) -> None:
    """Warn of each variable that is nearly one of ours. Others may exist: Kubernetes makes some."""
    known = sorted({*ServiceSection.model_fields, "data_dir"})
    for name in environ.keys() - {section.read_token_env, section.operate_token_env}:
        key = name.removeprefix(PREFIX).lower()
        near = get_close_matches(key, known, n=1, cutoff=0.8)
        if name.startswith(PREFIX) and near and near[0] != key:
            notes.warn_variable(name, f"isn't a setting and is ignored; did you mean {_variable(near[0])}?")


def _overrides(environ: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
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
    _note("database_url_file", problem, overrides, notes)
    return None


def _token(
    name: str, section: ServiceSection, overrides: Mapping[str, Any], environ: Mapping[str, str], notes: Notes
) -> Secret | None:
    """A token that was named is there, or nothing starts: without it access would be other than was asked for."""
    env, file = getattr(section, f"{name}_env"), getattr(section, f"{name}_file")
    if env is None and file is None:
        return None
    if env is not None and file is not None:
        _note(f"{name}_file", f"{name}_env is given too: keep one of the two", overrides, notes)
        return None
    what = "variable" if env is not None else "file"
    try:
        token = read_secret(SecretRef(env, file), environ)
        if re.fullmatch(rf"[!-~]{{{SHORTEST_TOKEN},}}", token.reveal()):
            return token
        problem = f"must hold at least {SHORTEST_TOKEN} characters: ASCII, no space"
    except UnreadableError as error:
        problem = str(error)
    _note(f"{name}_{'env' if env is not None else 'file'}", f"the {what} {problem}", overrides, notes)
    return None


def _note(key: str, problem: str, overrides: Mapping[str, Any], notes: Notes) -> None:
    """A mistake of a key, noted where the key was given."""
    if key in overrides:
        notes.add_variable(_variable(key), problem)
    else:
        notes.add(("service", key), problem)


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
