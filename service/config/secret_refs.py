"""Secrets, read where the configuration says, at each probe: keys rotate while the service runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from service.config.values import sendable
from service.model import Credentials, Route, Secret, SecretRef

MAX_SECRET_BYTES = 64 * 1024
SHORTEST_SEARCHED = 8


class UnreadableError(Exception):
    """A secret that can't be had; the message says why, beginning with a verb. It never holds the secret."""


class UnsendableError(UnreadableError):
    """A secret that is there, but that no header can carry."""


def credentials(route: Route, environ: Mapping[str, str]) -> Credentials:
    """The secrets of a route as they are now. Never raises: what can't be read or sent is named in `missing`.

    `missing` holds the reference (`env:OPENAI_API_KEY`), with the reason behind it when the secret is there but
    can't be sent.
    """
    found: dict[SecretRef, Secret] = {}
    missing: list[str] = []
    for ref in references(route):
        try:
            found[ref] = read_secret(ref, environ)
        except UnsendableError as error:
            missing.append(f"{ref} ({error})")
        except UnreadableError:
            missing.append(str(ref))
    return Credentials(
        key=found.get(route.key) if route.key else None,
        headers={name: found[ref] for name, ref in route.secret_headers.items() if ref in found},
        missing=tuple(missing),
    )


def references(route: Route) -> tuple[SecretRef, ...]:
    """Every reference of a route, once each."""
    return tuple(dict.fromkeys([*([route.key] if route.key else []), *route.secret_headers.values()]))


def warnings(routes: Sequence[Route], environ: Mapping[str, str]) -> Iterator[str]:
    """One sentence for each reference that can't be read now, and for each secret too short to be searched for."""
    users: dict[SecretRef, list[str]] = {}
    for route in routes:
        for ref in references(route):
            users.setdefault(ref, []).append(route.id)
    for ref, ids in users.items():
        some = ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
        try:
            secret = read_secret(ref, environ)
        except UnreadableError as error:
            yield f"{ref} {error}: nothing is sent to {some}"
        else:
            if len(secret.reveal()) < SHORTEST_SEARCHED:
                yield f"{ref} has fewer than {SHORTEST_SEARCHED} characters: not searched for in texts of {some}"


def read_file(path: str) -> str:
    """The text of a secret's file without its trailing newline. Raises `UnreadableError`."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise UnreadableError(f"can't be read ({error.strerror})") from None
    if len(content) > MAX_SECRET_BYTES:
        raise UnreadableError(f"is longer than {MAX_SECRET_BYTES // 1024} KiB")
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise UnsendableError("isn't UTF-8 text") from None


def read_secret(ref: SecretRef, environ: Mapping[str, str]) -> Secret:
    """The secret as it is now. Raises `UnreadableError`."""
    if ref.env is not None and ref.env not in environ:
        raise UnreadableError("is not set")
    value = environ[ref.env] if ref.env is not None else read_file(ref.file or "")
    if not value:
        raise UnreadableError("is empty")
    if not sendable(value):
        raise UnsendableError("holds a character that no header can carry, or has white space around it")
    return Secret(value)
