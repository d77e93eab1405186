"""The server killed under load from workers in three languages: nothing acknowledged is lost, no effect lands twice, and each of them
works on after a kill.

    killing.py --db URL [--seed N] [--jobs N] [--kills N] [--node PROGRAM]

`ONCEWARD_BIN` names the program; beside it, cargo has built the Rust sister of `ack_logger.py`. Prints its seed.
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

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))

from onceward import Client  # noqa: E402
from tests.serving import DEADLINE, TASK, Server  # noqa: E402

#: One is made with a process of its own each, so these are few.
BY_HAND = 10

PRODUCERS = 3

#: Each has a worker library, and its worker a page of its own.
LANGUAGES = ("python", "typescript", "rust")


class Books:
    """What was acknowledged, written down by whoever was told."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="onceward-killing-"))

    def page(self, name: str) -> str:
        return str(self.folder / name)

    def commits(self) -> Counter[str]:
        """How many commits the workers of each library were told of."""
        pages = {language: self.folder / f"commits-{language}" for language in LANGUAGES}
        return Counter({language: page.read_text().count("\n") for language, page in pages.items() if page.exists()})

    def lines(self, kind: str) -> list[tuple[str, str]]:
        """Of all pages of a kind: a record's id, and what was said of it."""
        pages = [page.read_text() for page in self.folder.glob(f"{kind}-*")]
        return [(line[0], line[1]) for page in pages for line in (text.split(" ", 1) for text in page.splitlines())]


class Steps:
    """Counts acknowledged creates, and lets one wait for a count."""

    def __init__(self) -> None:
        self._count = 0
        self._change = threading.Condition()

    def one(self) -> None:
        with self._change:
            self._count += 1
            self._change.notify_all()

    def reach(self, count: int) -> None:
        with self._change:
            if not self._change.wait_for(lambda: self._count >= count, 4 * DEADLINE):
                raise AssertionError(f"no more than {self._count} of {count} creates were acknowledged")


def begin_workers(url: str, books: Books, node: str) -> list[subprocess.Popen[bytes]]:
    binary = os.environ["ONCEWARD_BIN"]
    built = HERE.parent / "typescript" / "built" / "test" / "ack_logger.js"
    commands = [
        [sys.executable, str(HERE / "ack_logger.py"), url, TASK, books.page("commits-python")],
        [node, str(built), "work", url, TASK, books.page("commits-typescript")],
        [str(Path(binary).parent / "examples" / "ack_logger"), url, TASK, books.page("commits-rust")],
        [binary, "work", "--server", url, TASK, "--concurrency", "2", "--", "cat"],
    ]
    with open(books.page("said"), "w") as said:
        return [subprocess.Popen(command, stdout=said, stderr=said) for command in commands]


def until_all_ask(url: str, workers: int) -> None:
    """A worker that begins when all is done would have shown nothing."""
    until, asking = time.monotonic() + 2 * DEADLINE, 0
    while asking < workers:
        assert time.monotonic() < until, f"only {asking} of {workers} workers have asked for jobs"
        with urllib.request.urlopen(f"{url}/v1/workers") as answer:
            asking = len(json.load(answer)["workers"])


def producers(url: str, books: Books, node: str, jobs: int, steps: Steps) -> list[Callable[[], None]]:
    client = Client(url, timeout=5.0, patience=2 * DEADLINE)

    def in_python(producer: int) -> None:
        with open(books.page(f"creates-python-{producer}"), "w") as page:
            for number in range(jobs // PRODUCERS):
                name = f"python {producer} {number}"
                made = client.create(TASK, fields={"name": name}, payload=name, once=name)
                page.write(f"{made.id} {name}\n")
                steps.one()

    def in_typescript() -> None:
        built = HERE.parent / "typescript" / "built" / "test" / "ack_logger.js"
        page = books.page("creates-typescript")
        subprocess.run([node, str(built), "produce", url, TASK, page, str(jobs // PRODUCERS)], check=True)

    def by_hand() -> None:
        with open(books.page("creates-hand"), "w") as page:
            for number in range(BY_HAND):
                name = f"hand {number}"
                page.write(f"{new(url, name)} {name}\n")

    return [*(lambda producer=producer: in_python(producer) for producer in range(PRODUCERS)), in_typescript, by_hand]


def new(url: str, name: str) -> str:
    """`onceward new`, until it is answered: its key makes sure that it makes one record."""
    until = time.monotonic() + 2 * DEADLINE
    words = ["new", TASK, "--server", url, "--field", f"name={name}", "--payload", name, "--once", name]
    while True:
        done = subprocess.run([os.environ["ONCEWARD_BIN"], *words], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.split()[0]
        if time.monotonic() > until:
            raise AssertionError(f"onceward new: {done.stderr}")


def play(db: str | None, options: argparse.Namespace, seed: int) -> None:
    chance, steps, books = random.Random(seed), Steps(), Books()
    all_jobs = options.jobs // PRODUCERS * (PRODUCERS + 1) + BY_HAND
    # Counted in creates that Python's producers were told of; what else is under way then is hit as chance will have it.
    moments = sorted(chance.sample(range(1, options.jobs // PRODUCERS * PRODUCERS), options.kills))
    began = time.monotonic()
    with Server(db) as server:
        workers = begin_workers(server.url, books, options.node)
        try:
            until_all_ask(server.url, len(workers))
            before_kills: Counter[str] | None = None
            work = producers(server.url, books, options.node, options.jobs, steps)
            with ThreadPoolExecutor(len(work)) as threads:
                running = [threads.submit(each) for each in work]
                for moment in moments:
                    steps.reach(moment)
                    server.kill()
                    before_kills = books.commits() if before_kills is None else before_kills
                    server.start()
                for each in running:
                    each.result()
            effects = until_all_are_done(server.url, all_jobs)
            for worker in workers:
                worker.terminate()
            ends = [worker.wait(DEADLINE) for worker in workers]
        except BaseException:
            print(Path(books.page("said")).read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        assert not any(ends), f"workers ended with {ends}"
        worked_on = books.commits() - (before_kills or Counter())
        assert set(worked_on) == set(LANGUAGES), f"commits after the first kill: {dict(worked_on)}"
        compare(Client(server.url), books, effects, all_jobs)
        server.kill()
        server.verify()
    kind, took = "PostgreSQL" if db else "SQLite", time.monotonic() - began
    print(f"  {kind}: {all_jobs} jobs once each, {options.kills} kills, commits told of: {by_whom(books, all_jobs)}, in {took:.1f} s")
    shutil.rmtree(books.folder)


def until_all_are_done(url: str, jobs: int) -> dict[str, list[str]]:
    """The effects of each record, as the log tells, once all are done."""
    effects: dict[str, list[str]] = {}
    ends: Counter[str] = Counter()
    client = Client(url, patience=DEADLINE)
    with client.stream(after=0, lifecycle=TASK) as stream:
        timer = threading.Timer(4 * DEADLINE, stream.close)
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
    assert states == {"done": jobs}, f"{jobs} jobs were to be done: {states}"
    assert set(ends.values()) == {1}, "a job was done twice"
    return effects


def compare(client: Client, books: Books, effects: dict[str, list[str]], jobs: int) -> None:
    created = books.lines("creates")
    assert len(created) == jobs and len({record for record, _ in created}) == jobs, "creates were doubled"
    found = {record.id: record.fields["name"] for record in client.records(TASK)}
    assert found == dict(created), "what was acknowledged is not what is there"
    doubled = {record: each for record, each in effects.items() if len(each) != 1}
    assert not doubled, f"effects landed more than once: {doubled}"
    assert effects.keys() == found.keys(), "an effect is missing"
    for record, token in books.lines("commits"):
        won = client.effect(record)
        assert won.token == int(token), f"{record}: the commit of {token} was acknowledged, and {won.token} has landed"
        assert won.result["of"] == found[record], f"{record}: another's result"


def by_whom(books: Books, jobs: int) -> str:
    """How many commits each worker was told of; the rest are those of `onceward work`, which writes no book, and those whose answer
    was lost."""
    told = {page.name.removeprefix("commits-"): len(page.read_text().splitlines()) for page in books.folder.glob("commits-*")}
    told["others"] = jobs - sum(told.values())
    return ", ".join(f"{name} {count}" for name, count in told.items())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--db", action="append", default=[], help="`sqlite`, or the URL of an empty PostgreSQL database")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--node", default="node")
    options = parser.parse_args()
    for db in options.db or ["sqlite"]:
        print(f"killing: seed {options.seed}", flush=True)
        play(None if db == "sqlite" else db, options, options.seed)


if __name__ == "__main__":
    main()
