"""A server process with its own database. `ONCEWARD_BIN` names the program."""

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

#: Longest wait of a test for one condition, in seconds. Only a failing test waits that long.
TEST_TIMEOUT = 30.0

LIFECYCLES = Path(__file__).resolve().parents[2] / "tests" / "lifecycles"

TASK = "sdk.task"

_API_KEY = re.compile(r"\bow_\w+")

_ADDRESS = re.compile(r"http://[0-9.]+:(\d+)")


class ServerProcess:
    """A server that can be killed and restarted on the same address and database."""

    def __init__(self, db: str | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="onceward-sdk-"))
        self.db = db or f"sqlite:{self.folder / 'test.db'}"
        self._listen_address = "127.0.0.1:0"
        self.url = ""
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        binary = os.environ.get("ONCEWARD_BIN")
        if not binary:
            raise RuntimeError("ONCEWARD_BIN is not set; run `cargo xtask sdk`")
        arguments = ["serve", "--db", self.db, "--listen", self._listen_address, "--lifecycles", str(LIFECYCLES)]
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen([binary, *arguments], stdout=subprocess.PIPE, stderr=log, text=True)
        self.url = self._read_url()
        self._listen_address = self.url.removeprefix("http://")

    def _read_url(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        output = []
        for line in self._process.stdout:
            output.append(line)
            if match := _ADDRESS.search(line):
                # Later output must not fill the pipe.
                threading.Thread(target=_discard_output, args=(self._process.stdout,), daemon=True).start()
                return match[0]
        log = (self.folder / "log").read_text()
        raise RuntimeError(f"the server printed no address: {''.join(output)}{log}")

    def kill(self) -> None:
        """Ends the server with SIGKILL."""
        self.send_signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait(TEST_TIMEOUT)

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.send_signal(signal.SIGCONT)
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def create_api_key(self, owner: str, role: str) -> str:
        """Creates an API key. The server must not run."""
        arguments = ["key", "create", "--db", self.db, "--owner", owner, "--role", role]
        done = subprocess.run([os.environ["ONCEWARD_BIN"], *arguments], capture_output=True, text=True, timeout=TEST_TIMEOUT)
        match = _API_KEY.search(done.stdout)
        assert match, done.stdout + done.stderr
        return match[0]

    def verify(self) -> None:
        """Asserts that `onceward verify` finds no difference between log and database."""
        done = subprocess.run(
            [os.environ["ONCEWARD_BIN"], "verify", "--db", self.db], capture_output=True, text=True, timeout=TEST_TIMEOUT
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _discard_output(pipe: IO[str]) -> None:
    with pipe:
        pipe.read()


def wait_for_state(client: Client, record: str, *states: str) -> Record:
    """Follows the record's log until it enters one of the states."""
    with client.stream(after=0, record=record) as stream:
        timer = threading.Timer(TEST_TIMEOUT, stream.close)
        timer.start()
        for entry in stream:
            if entry.state in states:
                timer.cancel()
                return client.get(record)
    raise AssertionError(f"{record} entered none of {states}: {client.get(record)}")
