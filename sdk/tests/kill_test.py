"""Kills the server under load from workers in three languages. No acknowledged operation is lost, no effect is committed twice, and
every worker continues after a kill.

    kill_test.py --db URL [--seed N] [--jobs N] [--kills N] [--node PROGRAM]

`ONCEWARD_BIN` names the server program. The Rust worker, `ack_logger`, is in `examples` beside it. Prints the seed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SCRIPT_DIR = Path(__file__).resolve().parent
sys.path.insert(0, str(SCRIPT_DIR.parent / "python"))

from onceward import Client, RetryPolicy  # noqa: E402
from tests.server_process import TASK, TEST_TIMEOUT, ServerProcess  # noqa: E402

#: Few, because `onceward new` starts a process for each.
CLI_JOBS = 10

PRODUCERS = 3

#: Each has a worker library, and its worker an acknowledgement file.
LANGUAGES = ("python", "typescript", "rust")

TYPESCRIPT_ACK_LOGGER = SCRIPT_DIR.parent / "typescript" / "built" / "test" / "ack_logger.js"


class AckLedger:
    """Acknowledged operations, one file per producer or worker."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="onceward-kill-test-"))

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def count_commits(self) -> Counter[str]:
        """Returns the number of acknowledged commits by language."""
        files = {language: self.folder / f"commits-{language}" for language in LANGUAGES}
        return Counter({language: file.read_text().count("\n") for language, file in files.items() if file.exists()})

    def read_lines(self, kind: str) -> list[tuple[str, str]]:
        """Returns the lines of all files of a kind: a record's id, and its name or token."""
        texts = [file.read_text() for file in self.folder.glob(f"{kind}-*")]
        return [(parts[0], parts[1]) for text in texts for parts in (line.split(" ", 1) for line in text.splitlines())]


class AckCounter:
    """Counts acknowledged creates and lets a thread wait for a count."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()

    def increment(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._count >= count, 4 * TEST_TIMEOUT):
                raise AssertionError(f"only {self._count} of {count} creates were acknowledged")


def start_workers(url: str, ledger: AckLedger, node: str) -> list[subprocess.Popen[bytes]]:
    binary = os.environ["ONCEWARD_BIN"]
    commands = [
        [sys.executable, str(SCRIPT_DIR / "ack_logger.py"), url, TASK, ledger.file("commits-python")],
        [node, str(TYPESCRIPT_ACK_LOGGER), "work", url, TASK, ledger.file("commits-typescript")],
        [str(Path(binary).parent / "examples" / "ack_logger"), url, TASK, ledger.file("commits-rust")],
        [binary, "work", "--server", url, TASK, "--concurrency", "2", "--", "cat"],
    ]
    with open(ledger.file("output"), "w") as output:
        return [subprocess.Popen(command, stdout=output, stderr=output) for command in commands]


def wait_for_workers(url: str, workers: int) -> None:
    """Waits until all workers have asked for jobs. A worker that starts after the last kill would prove nothing."""
    deadline, seen = time.monotonic() + 2 * TEST_TIMEOUT, 0
    while seen < workers:
        assert time.monotonic() < deadline, f"only {seen} of {workers} workers have asked for jobs"
        with urllib.request.urlopen(f"{url}/v1/workers") as response:
            seen = len(json.load(response)["workers"])


def producers(url: str, ledger: AckLedger, node: str, jobs: int, ack_counter: AckCounter) -> list[Callable[[], None]]:
    client = Client(url, retry_policy=RetryPolicy(response_timeout=5.0, retry_timeout=2 * TEST_TIMEOUT))

    def produce_in_python(producer: int) -> None:
        with open(ledger.file(f"creates-python-{producer}"), "w") as file:
            for number in range(jobs // PRODUCERS):
                name = f"python {producer} {number}"
                created = client.create(TASK, fields={"name": name}, payload=name, idempotency_key=name)
                file.write(f"{created.id} {name}\n")
                ack_counter.increment()

    def produce_in_typescript() -> None:
        file = ledger.file("creates-typescript")
        count = str(jobs // PRODUCERS)
        subprocess.run([node, str(TYPESCRIPT_ACK_LOGGER), "produce", url, TASK, file, count], check=True)

    def produce_with_cli() -> None:
        with open(ledger.file("creates-cli"), "w") as file:
            for number in range(CLI_JOBS):
                name = f"cli {number}"
                file.write(f"{create_with_cli(url, name)} {name}\n")

    python_producers = (lambda producer=producer: produce_in_python(producer) for producer in range(PRODUCERS))
    return [*python_producers, produce_in_typescript, produce_with_cli]


def create_with_cli(url: str, name: str) -> str:
    """Repeats `onceward new` until it succeeds. Its idempotency key makes sure that it creates one record."""
    deadline = time.monotonic() + 2 * TEST_TIMEOUT
    arguments = ["new", TASK, "--server", url, "--field", f"name={name}", "--payload", name, "--once", name]
    while True:
        done = subprocess.run([os.environ["ONCEWARD_BIN"], *arguments], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.split()[0]
        if time.monotonic() > deadline:
            raise AssertionError(f"onceward new failed: {done.stderr}")


def run_kill_test(db: str | None, options: argparse.Namespace, seed: int) -> None:
    rng, ack_counter, ledger = random.Random(seed), AckCounter(), AckLedger()
    all_jobs = options.jobs // PRODUCERS * (PRODUCERS + 1) + CLI_JOBS
    # Counted in acknowledged creates of the Python producers. The interleaving with other operations is not reproducible.
    kill_counts = sorted(rng.sample(range(1, options.jobs // PRODUCERS * PRODUCERS), options.kills))
    began_at = time.monotonic()
    with ServerProcess(db) as server:
        workers = start_workers(server.url, ledger, options.node)
        try:
            wait_for_workers(server.url, len(workers))
            commits_before_kills: Counter[str] | None = None
            tasks = producers(server.url, ledger, options.node, options.jobs, ack_counter)
            with ThreadPoolExecutor(len(tasks)) as threads:
                running = [threads.submit(task) for task in tasks]
                for count in kill_counts:
                    ack_counter.wait_for(count)
                    server.kill()
                    commits_before_kills = ledger.count_commits() if commits_before_kills is None else commits_before_kills
                    server.start()
                for future in running:
                    future.result()
            effects = wait_for_all_done(server.url, all_jobs)
            for worker in workers:
                worker.terminate()
            exit_codes = [worker.wait(TEST_TIMEOUT) for worker in workers]
        except BaseException:
            print(Path(ledger.file("output")).read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        assert not any(exit_codes), f"workers ended with {exit_codes}"
        commits_after_kill = ledger.count_commits() - (commits_before_kills or Counter())
        assert set(commits_after_kill) == set(LANGUAGES), f"commits after the first kill: {dict(commits_after_kill)}"
        compare_with_database(Client(server.url), ledger, effects, all_jobs)
        server.kill()
        server.verify()
    database, seconds = "PostgreSQL" if db else "SQLite", time.monotonic() - began_at
    commits = format_commits(ledger, all_jobs)
    print(f"  {database}: {all_jobs} jobs done once, {options.kills} kills, acknowledged commits: {commits}, in {seconds:.1f} s")
    shutil.rmtree(ledger.folder)


def wait_for_all_done(url: str, jobs: int) -> dict[str, list[str]]:
    """Waits until all jobs are done. Returns the executions that committed, by record, from the log."""
    effects: dict[str, list[str]] = {}
    ends: Counter[str] = Counter()
    client = Client(url, retry_policy=RetryPolicy(retry_timeout=TEST_TIMEOUT))
    with client.stream(after=0, lifecycle=TASK) as stream:
        timer = threading.Timer(4 * TEST_TIMEOUT, stream.close)
        timer.start()
        for entry in stream:
            record = entry.record or ""
            if "effect" in entry.raw:
                effects.setdefault(record, []).append(entry.raw["effect"]["execution"])
            if entry.state == "done":
                ends[record] += 1
            if len(ends) == jobs:
                break
        timer.cancel()
    states = Counter(record.state for record in client.records(TASK))
    assert states == {"done": jobs}, f"expected {jobs} done jobs: {states}"
    assert set(ends.values()) == {1}, "a job was done twice"
    return effects


def compare_with_database(client: Client, ledger: AckLedger, effects: dict[str, list[str]], jobs: int) -> None:
    created = ledger.read_lines("creates")
    assert len(created) == jobs and len({record for record, _ in created}) == jobs, "a create was duplicated"
    stored = {record.id: record.fields["name"] for record in client.records(TASK)}
    assert stored == dict(created), "the acknowledged records differ from the stored ones"
    duplicates = {record: executions for record, executions in effects.items() if len(executions) != 1}
    assert not duplicates, f"effects were committed more than once: {duplicates}"
    assert effects.keys() == stored.keys(), "an effect is missing"
    for record, token in ledger.read_lines("commits"):
        effect = client.effect(record)
        assert effect.token == int(token), f"{record}: commit {token} was acknowledged, but {effect.token} is stored"
        assert effect.result["of"] == stored[record], f"{record}: the result belongs to another job"


def format_commits(ledger: AckLedger, jobs: int) -> str:
    """Formats the acknowledged commits by worker. The others are those of `onceward work`, which logs none, and those whose response was
    lost."""
    files = ledger.folder.glob("commits-*")
    counts = {file.name.removeprefix("commits-"): len(file.read_text().splitlines()) for file in files}
    counts["others"] = jobs - sum(counts.values())
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--db", action="append", default=[], help="`sqlite`, or the URL of an empty PostgreSQL database")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--node", default="node")
    options = parser.parse_args()
    for db in options.db or ["sqlite"]:
        print(f"kill test: seed {options.seed}", flush=True)
        run_kill_test(None if db == "sqlite" else db, options, options.seed)


if __name__ == "__main__":
    main()
