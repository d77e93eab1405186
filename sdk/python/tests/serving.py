"""The real server, on a database of its own: `ONCEWARD_BIN` names the program."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import IO

from onceward import Client, Record

#: So long may anything take that a test waits for, in seconds. Nothing takes it unless it is broken.
DEADLINE = 30.0

LIFECYCLES = Path(__file__).resolve().parents[2] / "tests" / "lifecycles"

TASK = "sdk.task"

_KEY = re.compile(r"\bow_\w+")

_ADDRESS = re.compile(r"http://[0-9.]+:(\d+)")


class Server:
    """A server that can be killed and started again, on the same address and database."""

    def __init__(self, db: str | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="onceward-sdk-"))
        self.db = db or f"sqlite:{self.folder / 'test.db'}"
        self._listen = "127.0.0.1:0"
        self.url = ""
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        binary = os.environ.get("ONCEWARD_BIN")
        if not binary:
            raise RuntimeError("ONCEWARD_BIN names no server: run `cargo xtask sdk`")
        words = ["serve", "--db", self.db, "--listen", self._listen, "--lifecycles", str(LIFECYCLES)]
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen([binary, *words], stdout=subprocess.PIPE, stderr=log, text=True)
        self.url = self._address()
        self._listen = self.url.removeprefix("http://")

    def _address(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        said = []
        for line in self._process.stdout:
            said.append(line)
            if found := _ADDRESS.search(line):
                # What it says from now on must not fill the pipe.
                threading.Thread(target=_drain, args=(self._process.stdout,), daemon=True).start()
                return found[0]
        log = (self.folder / "log").read_text()
        raise RuntimeError(f"the server said no address: {''.join(said)}{log}")

    def kill(self) -> None:
        """As when the power goes."""
        self.tell(signal.SIGKILL)
        assert self._process is not None
        self._process.wait(DEADLINE)

    def tell(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.tell(signal.SIGCONT)
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def key(self, owner: str, role: str) -> str:
        """A new key, made while no server runs."""
        words = ["key", "create", "--db", self.db, "--owner", owner, "--role", role]
        done = subprocess.run([os.environ["ONCEWARD_BIN"], *words], capture_output=True, text=True, timeout=DEADLINE)
        found = _KEY.search(done.stdout)
        assert found, done.stdout + done.stderr
        return found[0]

    def verify(self) -> None:
        """What the log tells and what stands in the database are the same."""
        done = subprocess.run(
            [os.environ["ONCEWARD_BIN"], "verify", "--db", self.db], capture_output=True, text=True, timeout=DEADLINE
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _drain(pipe: IO[str]) -> None:
    with pipe:
        pipe.read()


def until(client: Client, record: str, *states: str) -> Record:
    """Waits until the record is in one of the states, as its log tells."""
    with client.stream(after=0, record=record) as stream:
        timer = threading.Timer(DEADLINE, stream.close)
        timer.start()
        for entry in stream:
            if entry.state in states:
                timer.cancel()
                return client.get(record)
    raise AssertionError(f"{record} came to none of {states}: {client.get(record)}")
