"""Verdicts outlive their process: real files, real locks, real kills."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import is_dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from service import spool as spool_module
from service.model import Claim, Status, Verdict
from service.spool import Item, Spool, SpoolError
from tests.samples import NOW

ROOT = Path(__file__).parents[2]

PLAIN: dict[Any, Any] = {
    bool: False, int: 3, float: 0.5, str: "word", UUID: UUID(int=0), datetime: NOW, Status: Status.TOOLS_SUPPORTED,
}  # fmt: skip


def plain(kind: Any) -> Any:
    """A value for a field of that type, so that a new field needs nothing here."""
    if is_dataclass(kind):
        return kind(**{name: plain(of) for name, of in get_type_hints(kind).items()})
    if get_origin(kind) is tuple:
        return (plain(get_args(kind)[0]),)
    if get_origin(kind) is Mapping:
        return {"exchanges": [{"status": 200}]}
    return PLAIN[get_args(kind)[0] if get_args(kind) else kind]


def item(number: int, **changes: Any) -> Item:
    return plain(Claim), replace(plain(Verdict), id=UUID(int=number), **changes)


def items(*numbers: int) -> list[Item]:
    return [item(number) for number in numbers]


def ids(found: Sequence[Item]) -> list[int]:
    return [verdict.id.int for _, verdict in found]


def left_behind(folder: Path, *kept: Item) -> Path:
    """The file of a process that is gone."""
    before = files(folder, "jsonl")
    spool = Spool(folder)
    spool.append(kept)
    spool.close()
    (path,) = set(files(folder, "jsonl")) - set(before)
    return path


def left_bytes(folder: Path, data: bytes) -> Path:
    path = folder / "00000000.jsonl"
    path.write_bytes(data)
    return path


def files(folder: Path, ending: str) -> list[Path]:
    return sorted(folder.glob(f"*.{ending}"))


def lines(folder: Path) -> list[bytes]:
    (path,) = files(folder, "jsonl")
    return path.read_bytes().splitlines()


def written(folder: Path) -> list[int]:
    return [UUID(json.loads(line)["verdict"]["id"]).int for line in lines(folder)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "spool"


@pytest.fixture
def spool(folder: Path) -> Iterator[Spool]:
    with closing(Spool(folder)) as opened:
        yield opened


# What is kept


TEXTS = st.text(st.characters(exclude_categories=()) | st.sampled_from('\ud83d\ude00\0\n\r\u2028\\"'), max_size=20)
NUMBERS = st.floats(allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
ANY_OF: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(),
    float: NUMBERS | st.integers(),
    str: TEXTS,
    UUID: st.uuids(),
    datetime: st.builds(
        lambda since, zone: (NOW + since).astimezone(zone),
        st.timedeltas(timedelta(days=-3000), timedelta(days=30000)),
        st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]),
    ),
    Status: st.sampled_from(Status),
}


def any_of(kind: Any) -> st.SearchStrategy[Any]:
    if is_dataclass(kind):
        return st.builds(kind, **{name: any_of(of) for name, of in get_type_hints(kind).items()})
    if get_origin(kind) is tuple:
        return st.lists(any_of(get_args(kind)[0]), max_size=3).map(tuple)
    if get_origin(kind) is Mapping:
        return st.dictionaries(TEXTS, JSON, max_size=3)
    return st.none() | ANY_OF[get_args(kind)[0]] if get_args(kind) else ANY_OF[kind]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(any_of(Claim), any_of(Verdict)), max_size=3))
def test_every_field_comes_back_as_it_was(kept: list[Item]) -> None:
    found, unreadable = spool_module._parse(b"".join(spool_module._line(*each) for each in kept))
    assert (found, unreadable) == (kept, [])
    assert all(type(verdict.status) is Status for _, verdict in found)


def test_lone_surrogates_that_stand_side_by_side_stay_two(folder: Path, spool: Spool) -> None:
    left_behind(folder, item(1, detail="\ud83d\ude00 \U0001f600"))
    ((_, verdict),) = spool.adopt()
    assert verdict.detail == "\ud83d\ude00 \U0001f600"
    assert len(verdict.detail) == 4


def test_whole_seconds_and_times_of_other_zones_are_kept(folder: Path, spool: Spool) -> None:
    at = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    left_behind(folder, item(1, duration_s=2, observed_at=at))
    assert spool.adopt() == [item(1, duration_s=2, observed_at=NOW)]


def test_a_mapping_of_any_kind_is_kept(folder: Path, spool: Spool) -> None:
    class Facts(dict[str, Any]):
        pass

    left_behind(folder, item(1, facts=Facts(seen="call")))
    assert spool.adopt()[0][1].facts == {"seen": "call"}


def test_a_value_without_a_form_in_json_fails_before_anything_is_written(folder: Path, spool: Spool) -> None:
    with pytest.raises(TypeError, match="object has no form in the spool"):
        spool.append([item(1), item(2, facts={"seen": object()})])
    assert (len(spool), files(folder, "jsonl")[0].read_bytes()) == (0, b"")


def test_pending_is_what_was_appended_and_not_settled(folder: Path, spool: Spool) -> None:
    spool.append(items(1, 2))
    spool.append(items(3))
    assert (ids(spool.pending()), len(spool)) == ([1, 2, 3], 3)
    spool.settle([UUID(int=2), UUID(int=77)])
    assert (ids(spool.pending()), len(spool)) == ([1, 3], 2)
    spool.append(items(4))
    assert written(folder) == [1, 3, 4]
    spool.settle(UUID(int=number) for number in (1, 3, 4))
    assert (spool.pending(), len(spool), lines(folder)) == ([], 0, [])
    spool.append(items(5))
    assert len(lines(folder)) == 1


def test_an_id_is_written_once(folder: Path, spool: Spool) -> None:
    spool.append(items(1, 1))
    spool.append(items(1, 2))
    spool.append(items(2))
    assert len(lines(folder)) == 2


def test_only_the_owner_of_the_process_may_read(folder: Path, spool: Spool) -> None:
    old = os.umask(0)
    try:
        left_behind(folder, item(3))
        assert [path.stat().st_mode & 0o777 for path in files(folder, "jsonl")] == [0o600, 0o600]
        spool.append(items(1, 2))
        spool.settle([UUID(int=1)])
        left_bytes(folder, b"torn")
        spool.adopt()
    finally:
        os.umask(old)
    modes = {path.suffix: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == {".jsonl": 0o600, ".bad": 0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    Spool(tmp_path).close()
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_closing_deletes_an_empty_file_and_leaves_a_full_one(folder: Path) -> None:
    Spool(folder).close()
    assert files(folder, "jsonl") == []
    left_behind(folder, item(1))
    assert len(files(folder, "jsonl")) == 1


def test_a_closed_spool_takes_nothing(folder: Path) -> None:
    closed = Spool(folder)
    closed.close()
    with pytest.raises(SpoolError, match="Bad file descriptor"):
        closed.append(items(1))


def test_no_descriptor_stays_open(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(os.listdir("/dev/fd"))
    spool = Spool(folder)
    left_bytes(folder, GOOD + LAST + b"torn")
    spool.adopt()
    spool.settle([UUID(int=1)])
    spool.append(items(3))
    other = Spool(folder)
    spool.adopt()
    other.close()
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", fails)
        with pytest.raises(SpoolError):
            spool.settle([UUID(int=2)])
    spool.close()
    assert len(os.listdir("/dev/fd")) == before


def test_threads_do_not_tear_each_others_lines(folder: Path, spool: Spool) -> None:
    def work(worker: int) -> None:
        for number in range(worker, worker + 10):
            spool.append(items(number, number + 1000))
            spool.settle([UUID(int=number)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(0, 40, 10)))
    assert sorted(ids(spool.pending())) == list(range(1000, 1040))
    assert sorted(written(folder)) == list(range(1000, 1040))


# Who takes over what


def test_what_a_process_left_behind_becomes_ours_and_its_file_goes(folder: Path, spool: Spool) -> None:
    spool.append(items(1))
    theirs = left_behind(folder, *items(1, 2, 3))
    left_behind(folder, *items(4))
    with capture_logs() as logs:
        assert sorted(ids(spool.adopt())) == [2, 3, 4]
    assert sorted(ids(spool.pending())) == [1, 2, 3, 4]
    assert not theirs.exists()
    assert len(lines(folder)) == 4
    assert sorted(entry["verdicts"] for entry in logs if entry["action"] == "spool_adopted") == [1, 3]
    assert spool.adopt() == []


def test_a_living_process_keeps_its_file_until_it_is_killed(folder: Path, spool: Spool) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom uuid import UUID\n"
        "from tests.unit.test_spool import Spool, items\n"
        "spool = Spool(Path(sys.argv[1]))\nspool.append(items(1, 2))\nspool.settle([UUID(int=1)])\n"
        "print('kept', flush=True)\nsys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"kept\n"
        assert spool.adopt() == []
        owner.kill()
        owner.wait()
        assert ids(spool.adopt()) == [2]


def test_a_file_that_its_owner_replaced_meanwhile_is_left_alone(
    folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Spool(folder)
    owner.append(items(1, 2))
    held = spool_module._hold

    def late(file: int, path: Path) -> bool:
        """The owner writes its file anew after we opened the old one and before we lock it."""
        monkeypatch.setattr(spool_module, "_hold", held)
        owner.settle([UUID(int=1)])
        return held(file, path)

    monkeypatch.setattr(spool_module, "_hold", late)
    assert spool.adopt() == []
    owner.append(items(3))
    owner.close()
    assert ids(spool.adopt()) == [2, 3]


def test_a_new_file_taken_for_abandoned_before_its_lock_gets_another_name(
    folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = spool_module._hold

    def late(file: int, path: Path) -> bool:
        monkeypatch.setattr(spool_module, "_hold", held)
        assert spool.adopt() == []
        return held(file, path)

    monkeypatch.setattr(spool_module, "_hold", late)
    before = len(os.listdir("/dev/fd"))
    newcomer = Spool(folder)
    newcomer.append(items(1))
    newcomer.close()
    assert len(os.listdir("/dev/fd")) == before
    assert ids(spool.adopt()) == [1]


def test_a_file_that_another_process_has_just_taken_over_is_no_fault(
    folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind(folder, item(1))
    opened = Path.open

    def late(path: Path, mode: str) -> Any:
        path.unlink()
        return opened(path, mode)

    monkeypatch.setattr(
        Path, "open", lambda path, mode: opened(path, mode) if path == spool._path else late(path, mode)
    )
    with capture_logs() as logs:
        assert spool.adopt() == []
    assert logs == []
    assert files(folder, "jsonl") == [spool._path]


def test_a_file_that_cant_be_taken_over_is_left_and_holds_no_other_up(folder: Path, spool: Spool) -> None:
    (folder / "0.jsonl").mkdir()
    left_behind(folder, item(1))
    with capture_logs() as logs:
        assert ids(spool.adopt()) == [1]
    assert [(entry["file"], "directory" in entry["error"]) for entry in logs if entry["log_level"] == "warning"] == [
        ("0.jsonl", True)
    ]
    assert (folder / "0.jsonl").exists()


# Lines that can't be read

GOOD = spool_module._line(*item(1))
LAST = spool_module._line(*item(2))


def changed(line: bytes, part: str, **values: Any) -> bytes:
    read = json.loads(line)
    read[part] |= values
    return json.dumps(read).encode() + b"\n"


def without(line: bytes, part: str, name: str) -> bytes:
    read = json.loads(line)
    del read[part][name]
    return json.dumps(read).encode() + b"\n"


def test_a_last_line_torn_anywhere_costs_no_other(folder: Path, spool: Spool) -> None:
    for cut in (1, 2, len(LAST) // 2, len(LAST) - 2):
        left_bytes(folder, GOOD + LAST[:cut])
        assert ids(spool.adopt()) == [1]
        (aside,) = files(folder, "bad")
        assert aside.read_bytes() == LAST[:cut] + b"\n"
        aside.unlink()
        spool.settle([UUID(int=1)])
    assert spool.unreadable == 4


def test_a_last_line_that_lacks_only_its_end_is_read(folder: Path, spool: Spool) -> None:
    left_bytes(folder, GOOD + LAST.removesuffix(b"\n"))
    assert (ids(spool.adopt()), spool.unreadable) == ([1, 2], 0)


@pytest.mark.parametrize(
    "line",
    [
        b"\0" * 50 + b"\n",
        b"not json\n",
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b"9" * 5_000 + b"\n",
        b"[]\n",
        b"null\n",
        b"{}\n",
        b'{"claim":{},"verdict":[]}\n',
        changed(GOOD, "verdict", status="a_word_of_tomorrow"),
        changed(GOOD, "verdict", status=None),
        changed(GOOD, "verdict", id="no-id"),
        changed(GOOD, "verdict", id=7),
        changed(GOOD, "verdict", requests="1"),
        changed(GOOD, "verdict", requests=True),
        changed(GOOD, "verdict", requests=1.5),
        changed(GOOD, "verdict", detail=None),
        changed(GOOD, "verdict", quirks="done_missing"),
        changed(GOOD, "verdict", quirks=[1]),
        changed(GOOD, "verdict", facts=[]),
        changed(GOOD, "verdict", rungs=[{"rung": "auto"}]),
        changed(GOOD, "verdict", observed_at="2025-03-09T03:12:07"),
        changed(GOOD, "verdict", observed_at="yesterday"),
        changed(GOOD, "verdict", observed_at="0001-01-01T00:00:00+05:00"),
        changed(GOOD, "verdict", observed_at="9999-12-31T23:59:59+00:00"),
        changed(GOOD, "verdict", observed_at="0206-12-01T00:00:00+00:00"),
        changed(GOOD, "claim", claimed_at=0),
        without(GOOD, "claim", "lease_id"),
        without(GOOD, "verdict", "status"),
    ],
    ids=lambda line: line[-60:].decode(errors="replace") if len(line) < 60 else None,
)
def test_a_line_that_cant_be_read_is_put_aside_and_holds_nothing_up(folder: Path, spool: Spool, line: bytes) -> None:
    theirs = left_bytes(folder, line + LAST)
    with capture_logs() as logs:
        assert ids(spool.adopt()) == [2]
    assert theirs.with_suffix(".bad").read_bytes() == line
    assert not theirs.exists()
    assert spool.unreadable == 1
    (entry,) = (entry for entry in logs if entry["action"] == "spool_unreadable")
    assert (entry["file"], entry["lines"], entry["log_level"]) == ("00000000.bad", 1, "error")


def test_lines_put_aside_are_on_disk_before_their_file_goes(
    folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.append(items(1))
    theirs = left_bytes(folder, b"torn")
    synced: list[int] = []
    sync, unlink = os.fsync, os.unlink

    def last(path: Path) -> None:
        if path == theirs:
            assert synced == [theirs.with_suffix(".bad").stat().st_ino, folder.stat().st_ino]
        unlink(path)

    monkeypatch.setattr(os, "fsync", lambda file: (sync(file), synced.append(os.fstat(file).st_ino)))
    monkeypatch.setattr(os, "unlink", last)
    assert spool.adopt() == []
    assert not theirs.exists()


def test_lines_put_aside_are_read_again_under_their_first_name(folder: Path, spool: Spool) -> None:
    left_bytes(folder, changed(GOOD, "verdict", status="a_word_of_tomorrow"))
    assert spool.adopt() == []
    aside = folder / "00000000.bad"
    aside.write_bytes(aside.read_bytes().replace(b"a_word_of_tomorrow", b"timeout"))
    aside.rename(folder / "00000000.jsonl")
    assert [verdict.status for _, verdict in spool.adopt()] == [Status.TIMEOUT]


def test_fields_of_a_newer_release_are_ignored_and_defaults_fill_in_for_an_older_one(
    folder: Path, spool: Spool
) -> None:
    line = changed(changed(GOOD, "verdict", colour="red"), "claim", weight=[1])
    read = json.loads(line)
    del read["verdict"]["rungs"][0]["headers_s"]
    left_bytes(folder, json.dumps(read | {"more": 1}).encode())
    ((claim, verdict),) = spool.adopt()
    assert claim == item(1)[0]
    assert verdict == item(1, rungs=(replace(item(1)[1].rungs[0], headers_s=None),))[1]
    assert spool.unreadable == 0


# A disk that refuses


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file may grow past `size` bytes: a write across it is cut short, as on a disk that fills up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_refuses_the_whole_batch_and_tears_nothing(folder: Path, spool: Spool) -> None:
    spool.append(items(1))
    with disk_of(len(GOOD) * 5 // 2):
        with pytest.raises(SpoolError, match=r"^2 verdicts can't be kept in .*\.jsonl: File too large$"):
            spool.append(items(2, 3))
        assert ids(spool.pending()) == [1]
        spool.append(items(4))
    spool.append(items(2, 3))
    assert ids(spool.pending()) == [1, 4, 2, 3]
    assert written(folder) == [1, 4, 2, 3]


def test_a_full_disk_still_lets_go_of_everything(folder: Path, spool: Spool) -> None:
    spool.append(items(1, 2, 3))
    with disk_of(10):
        with pytest.raises(SpoolError, match="can't be written anew: File too large"):
            spool.settle([UUID(int=1)])
        assert (ids(spool.pending()), len(lines(folder))) == ([1, 2, 3], 3)
        spool.settle([UUID(int=1), UUID(int=2), UUID(int=3)])
    assert (len(spool), lines(folder)) == (0, [])


def test_a_full_disk_leaves_the_files_of_others_for_later(folder: Path, spool: Spool) -> None:
    theirs = left_behind(folder, *items(1, 2))
    with disk_of(10), capture_logs() as logs:
        assert spool.adopt() == []
    assert [entry["action"] for entry in logs] == ["spool_adopt_failed"]
    assert theirs.exists()
    assert ids(spool.adopt()) == [1, 2]


def fails(*_: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("call", ["write", "fsync", "ftruncate"])
def test_an_append_that_the_disk_failed_is_not_pending_and_can_be_repeated(
    folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(os, call, fails)
        with pytest.raises(SpoolError, match="Input/output error"):
            spool.append(items(1, 2))
    assert len(spool) == 0
    spool.append(items(2, 3))
    assert written(folder) == [2, 3]


@pytest.mark.parametrize("call", ["write", "fsync", "replace", "open"])
def test_a_settling_that_the_disk_failed_loses_nothing_and_can_be_repeated(
    folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    spool.append(items(1, 2))
    with monkeypatch.context() as broken:
        broken.setattr(os, call, fails)
        with pytest.raises(SpoolError, match="Input/output error"):
            spool.settle([UUID(int=1)])
    assert ids(spool.pending()) == [1, 2]
    assert files(folder, "tmp") == []
    spool.append(items(3))
    spool.settle([UUID(int=1)])
    assert len(lines(folder)) == 2
    spool.close()
    with closing(Spool(folder)) as heir:
        assert ids(heir.adopt()) == [2, 3]


def test_what_a_failed_settling_could_not_clear_away_does_not_mix_with_the_next(
    folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.append(items(1, 2))
    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", fails)
        broken.setattr(os, "unlink", fails)
        with pytest.raises(SpoolError, match="Input/output error"):
            spool.settle([UUID(int=1)])
    spool.settle([UUID(int=2)])
    assert written(folder) == [1]


def test_a_new_name_that_is_not_on_disk_yet_is_made_so_before_the_next_promise(
    folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    sync = spool_module._sync_folder
    monkeypatch.setattr(spool_module, "_sync_folder", lambda path: (sync(path), synced.append(path)))
    spool.append(items(1, 2))
    assert synced == [folder, folder.parent.parent, folder.parent]
    synced.clear()
    spool.append(items(3))
    assert synced == []
    with monkeypatch.context() as broken:
        broken.setattr(spool_module, "_sync_folder", fails)
        with pytest.raises(SpoolError):
            spool.settle([UUID(int=1)])
        with pytest.raises(SpoolError):
            spool.append(items(4))
    spool.append(items(4))
    assert synced == [folder]


def test_a_file_that_cant_be_deleted_is_logged_and_its_verdicts_come_once(
    folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind(folder, item(1))
    with monkeypatch.context() as broken, capture_logs() as logs:
        broken.setattr(os, "unlink", fails)
        assert ids(spool.adopt()) == [1]
        assert spool.adopt() == []
    assert [entry["action"] for entry in logs] == ["spool_adopt_failed", "spool_adopt_failed"]
    assert ids(spool.pending()) == [1]


def test_a_folder_that_cant_be_made_is_said_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SpoolError, match=r"^The spool .*/file/spool can't be used: Not a directory$"):
        Spool(tmp_path / "file" / "spool")


def test_the_file_has_a_bound(folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "MAX_BYTES", 2 * len(GOOD))
    spool.append(items(1))
    theirs = left_behind(folder, *items(7, 8))
    with pytest.raises(SpoolError, match=f"2 more verdicts would pass {2 * len(GOOD)} bytes"):
        spool.append(items(2, 3))
    with capture_logs() as logs:
        assert spool.adopt() == []
    assert [entry["action"] for entry in logs] == ["spool_adopt_failed"]
    spool.append(items(2))
    spool.settle([UUID(int=1), UUID(int=2)])
    assert ids(spool.adopt()) == [7, 8]
    assert not theirs.exists()


def test_a_file_too_large_to_be_a_spool_is_not_read(
    folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "MAX_BYTES", 100)
    path = left_bytes(folder, b"x" * 101)
    with capture_logs() as logs:
        assert spool.adopt() == []
    assert [(entry["action"], entry["error"]) for entry in logs] == [
        ("spool_adopt_failed", "it is larger than 100 bytes")
    ]
    assert path.exists()


# Killed at any point


def lives(home: Path) -> None:
    """In a process of its own: lives of a spool, the first killed before its first change of the disk, the next before
    its second, until one reaches its end. Each says what it has on disk, and what it lets go."""
    sys.stdout = sys.stderr  # where log lines go
    for number in count():
        child = os.fork()
        if child == 0:
            try:
                live(home / str(number), number)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            os._exit(os.WEXITSTATUS(status))


def live(folder: Path, survived: int) -> None:
    left_behind(folder, *items(8, 9))
    write = os.write
    calls = count()

    def say(what: str, *numbers: int) -> None:
        write(1, f"{folder.name} {what} {' '.join(map(str, numbers))}\n".encode())

    def dies(call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def mortal(*given: Any) -> Any:
            if next(calls) == survived:
                if call == "write":
                    real(given[0], given[1][: len(given[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given)

        return mortal

    say("kept", 8, 9)
    for call in ("write", "fsync", "ftruncate", "replace", "unlink"):
        setattr(os, call, dies(call, getattr(os, call)))
    spool = Spool(folder)
    for batch in ((1, 2), (3,)):
        spool.append(items(*batch))
        say("kept", *batch)
    say("gone", 1)
    spool.settle([UUID(int=1)])
    spool.append(items(4))
    say("kept", 4)
    spool.adopt()
    say("gone", 2, 3, 4, 8, 9)
    spool.settle([UUID(int=each) for each in (2, 3, 4, 8, 9)])
    spool.append(items(5))
    say("kept", 5)
    spool.close()
    os._exit(0)


def test_a_process_killed_at_any_point_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    script = "import sys, pathlib, tests.unit.test_spool as here; here.lives(pathlib.Path(sys.argv[1]))"
    told = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    kept: dict[str, set[int]] = {}
    for name, what, *numbers in map(str.split, told.splitlines()):
        mine = kept.setdefault(name, set())
        if what == "kept":
            mine |= set(map(int, numbers))
        if what == "gone":
            mine -= set(map(int, numbers))
    assert len(kept) > 20
    assert kept[max(kept, key=int)] == {5}
    for name, promised in kept.items():
        with closing(Spool(tmp_path / name)) as heir:
            found = ids(heir.adopt())
            assert promised <= set(found), name
            assert len(found) == len(set(found))
            assert heir.unreadable <= 1
            assert {path.suffix for path in (tmp_path / name).iterdir()} <= {".jsonl", ".bad"}
            assert len(files(tmp_path / name, "jsonl")) == 1
