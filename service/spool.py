"""Verdicts that were finished while the database was away, kept on disk until it is back.

Rules:

- One file a process, `<uuid>.jsonl`, one verdict with its claim a line. Its owner holds the file's lock while it lives,
  so a file whose lock can be had belongs to a process that is gone, and any other may take it over. A lock counts
  only if the name still leads to the locked file: the owner replaces the file, those who take it over delete it.
- What `append` has returned for is on disk. A crash at any point gives a verdict twice, never not at all; ids make
  that harmless, because the database takes each id once.
- A line that can't be read holds nothing up: it goes to `<uuid>.bad`, which is never deleted. Renamed to `.jsonl`, it
  is read once more, by a newer release for instance.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID, uuid4

import structlog

from service.model import Claim, Verdict

Item = tuple[Claim, Verdict]

MAX_BYTES = 256 * 1024 * 1024

EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)

CLOSED = -1  # no descriptor: every call refuses it

_FILE_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT

log = structlog.get_logger("routeproof.spool")


class SpoolError(Exception):
    """The disk doesn't take what it should. Nothing is lost that was on it before; the caller keeps the rest."""


class Spool:
    """The file of this process in `folder`, which is made if need be (0700). All methods but `pending` and `len` block;
    call them in a thread. Several may be under way at once.

    `unreadable` counts the lines put aside. Raises SpoolError if the folder or the file can't be made.
    """

    def __init__(self, folder: Path) -> None:
        self.unreadable = 0
        self._folder = folder
        self._mutex = threading.Lock()
        self._items: dict[UUID, Item] = {}  # exactly what the file holds for good, in its order
        self._size = 0
        try:
            missing = [each for each in (folder, *folder.parents) if not each.exists()]
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            self._path, self._file = _new_file(folder)
        except OSError as error:
            raise SpoolError(f"The spool {folder} can't be used: {error.strerror}") from error
        self._unsynced = [*(each.parent for each in missing), folder]  # folders with a name that isn't on disk yet

    def __len__(self) -> int:
        return len(self._items)

    def pending(self) -> list[Item]:
        """What waits for the database, oldest first."""
        return list(self._items.values())

    def append(self, items: Sequence[Item]) -> None:
        """Keep `items`, all or none. Verdicts that are in the file already aren't written again.

        Raises SpoolError if the disk refuses them or the file would pass `MAX_BYTES`.
        """
        with self._mutex:
            self._append(items)

    def settle(self, stored: Iterable[UUID]) -> None:
        """Let go of verdicts that the database has now. What remains is written anew, so many at once cost less.

        Raises SpoolError if the disk refuses; what is pending then may be stored and settled again.
        """
        with self._mutex:
            gone = self._items.keys() & set(stored)
            if not gone:
                return
            left = {key: item for key, item in self._items.items() if key not in gone}
            try:
                if left:
                    self._replace(left)
                else:
                    os.ftruncate(self._file, 0)
                    self._items, self._size = left, 0
                self._sync()
            except OSError as error:
                raise SpoolError(f"{self._path} can't be written anew: {error.strerror}") from error

    def adopt(self) -> list[Item]:
        """Take over what processes that are gone left in the folder; the new items, which are pending from now on.

        A file that can't be taken over is logged and left for the next time.
        """
        with self._mutex:
            before = set(self._items)
            for path in sorted(self._folder.glob("*.jsonl")):
                try:
                    self._take_over(path)
                except FileNotFoundError:
                    continue  # another process was faster
                except (OSError, SpoolError) as error:
                    log.warning(
                        "could not take over a spool file",
                        action="spool_adopt_failed",
                        file=path.name,
                        error=str(error),
                    )
            return [item for key, item in self._items.items() if key not in before]

    def close(self) -> None:
        """Give the file up: deleted when empty, else left to whoever adopts it. A closed spool takes nothing.

        Raises SpoolError if the file can't be deleted.
        """
        with self._mutex:
            if self._file == CLOSED:
                return
            try:
                if not self._items:
                    self._path.unlink(missing_ok=True)
            except OSError as error:
                raise SpoolError(f"{self._path} can't be deleted: {error.strerror}") from error
            finally:
                os.close(self._file)
                self._file = CLOSED

    def _append(self, items: Sequence[Item]) -> None:
        new = {verdict.id: (claim, verdict) for claim, verdict in items if verdict.id not in self._items}
        if not new:
            return
        data = _lines(new)
        if self._size + len(data) > MAX_BYTES:
            raise SpoolError(f"{self._path} is full: {len(new)} more verdicts would pass {MAX_BYTES} bytes")
        try:
            os.ftruncate(self._file, self._size)  # what an append that failed has left
            _write(self._file, data)
            self._sync()
        except OSError as error:
            raise SpoolError(f"{len(new)} verdicts can't be kept in {self._path}: {error.strerror}") from error
        self._items |= new
        self._size += len(data)

    def _replace(self, items: dict[UUID, Item]) -> None:
        beside = self._path.with_suffix(".tmp")
        data = _lines(items)
        file = os.open(beside, _FILE_FLAGS | os.O_TRUNC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # before it has the name: that never leads to a free file
            _write(file, data)
            os.fsync(file)
            beside.replace(self._path)
        except BaseException:
            os.close(file)
            beside.unlink(missing_ok=True)  # a full disk needs the room
            raise
        os.close(self._file)
        self._file, self._items, self._size = file, items, len(data)
        self._unsynced.append(self._folder)

    def _take_over(self, path: Path) -> None:
        with path.open("rb+") as theirs:
            if not _hold(theirs.fileno(), path):
                return
            if os.fstat(theirs.fileno()).st_size > MAX_BYTES:
                raise SpoolError(f"it is larger than {MAX_BYTES} bytes")
            items, unreadable = _parse(theirs.read())
            self._append(items)
            if unreadable:
                self._put_aside(path, unreadable)
            path.with_suffix(".tmp").unlink(missing_ok=True)
            path.unlink()
        if items:
            log.info("took over verdicts of a process that is gone", action="spool_adopted", verdicts=len(items))

    def _put_aside(self, path: Path, lines: Sequence[bytes]) -> None:
        aside = path.with_suffix(".bad")
        file = os.open(aside, _FILE_FLAGS, 0o600)
        try:
            _write(file, b"".join(line + b"\n" for line in lines))
            os.fsync(file)
        finally:
            os.close(file)
        _sync_folder(self._folder)
        self.unreadable += len(lines)
        log.error(
            "lines of the spool can't be read and were put aside",
            action="spool_unreadable",
            file=aside.name,
            lines=len(lines),
        )

    def _sync(self) -> None:
        os.fsync(self._file)
        while self._unsynced:
            _sync_folder(self._unsynced[-1])
            self._unsynced.pop()


def _new_file(folder: Path) -> tuple[Path, int]:
    while True:
        path = folder / f"{uuid4()}.jsonl"
        file = os.open(path, _FILE_FLAGS | os.O_EXCL, 0o600)
        try:
            if _hold(file, path):
                return path, file
        except OSError:
            os.close(file)
            raise
        os.close(file)  # another process took it for abandoned before it was locked


def _hold(file: int, path: Path) -> bool:
    """Lock the file; False if another holds it, or `path` leads to another file by now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _write(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:  # a disk that fills up takes a part first and refuses after it
        rest = rest[os.write(file, rest) :]


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _lines(items: Mapping[UUID, Item]) -> bytes:
    return b"".join(_line(claim, verdict) for claim, verdict in items.values())


def _line(claim: Claim, verdict: Verdict) -> bytes:
    # Not as \u escapes, and with surrogates passed: JSON joins two escaped lone surrogates into one character.
    text = json.dumps({"claim": claim, "verdict": verdict}, default=_plain, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass") + b"\n"


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no form in the spool")


def _parse(data: bytes) -> tuple[list[Item], list[bytes]]:
    """What the lines say, and the lines that can't be read: torn, damaged, or with a word of a newer release."""
    items: list[Item] = []
    unreadable: list[bytes] = []
    for line in data.split(b"\n"):
        try:
            if line:
                values = _typed(dict[str, Any], json.loads(line.decode("utf-8", "surrogatepass")))
                items.append((_typed(Claim, values.get("claim")), _typed(Verdict, values.get("verdict"))))
        except (ValueError, RecursionError):
            unreadable.append(line)
    return items, unreadable


def _typed(kind: Any, value: Any) -> Any:
    """A value of JSON as the type that a dataclass gives its field. A field that a newer release added is ignored, one
    that an older release doesn't know takes its default. Raises ValueError."""
    shape, of = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if shape is UnionType:  # nothing but `… | None` is in use
        return None if value is None and NoneType in of else _typed(of[0], value)
    if shape is tuple and isinstance(value, list):
        return tuple(_typed(of[0], each) for each in value)
    if shape in (dict, Mapping) and isinstance(value, dict):
        return {key: _typed(of[1], each) for key, each in value.items()}
    if is_dataclass(kind) and isinstance(value, dict):
        return _fields(kind, value)
    if isinstance(value, str) and kind is datetime:
        return _moment(value)
    if isinstance(value, str) and (kind is UUID or (isinstance(kind, type) and issubclass(kind, Enum))):
        return kind(value)
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    raise ValueError(f"{type(value).__name__} instead of {kind}")


def _fields(kind: Any, values: Mapping[str, Any]) -> Any:
    known = {}
    for field in fields(kind):
        if field.name in values:
            known[field.name] = _typed(_types(kind)[field.name], values[field.name])
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{field.name} is missing")
    return kind(**known)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or not EARLIEST <= moment <= LATEST:
        raise ValueError("a time without its zone, or one that no verdict can be of")
    return moment


@cache
def _types(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)
