"""Keeps the leases of all jobs that run, and hears from the server that one is to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .client import BATCH, Client
from .errors import OncewardError, Refused
from .job import Job
from .patience import Backoff, problem_is_final
from .records import Problem, Reported
from .requests import Report

#: A lease is kept by so many heartbeats: two may be lost.
BEATS = 3

#: No heart beats faster than this, in seconds.
FASTEST = 0.005

#: Whoever is due within this part of a beat goes along with the others, in one call.
ALONG = 0.1

#: No beat is given less time for its answer.
SHORTEST_WAIT = 0.25

log = logging.getLogger("onceward")


class _Pulse:
    """When a job's heart beats next."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.every = max(job.seconds / BEATS, FASTEST)
        # Counted from when the lease began, which is not now where its answer was long on its way.
        self.due = job.gone_at - job.seconds + self.every
        self.told_to_stop = False
        #: The last beat was not taken: the next one waits as long as it should.
        self.failed = False


class Heart:
    """One thread for all jobs of a worker. `overdue` is called for a job that was told to stop and still runs a beat later."""

    def __init__(self, client: Client, lease: float | None, overdue: Callable[[Job[Any]], object]) -> None:
        self._client = client
        self._lease = lease
        self._overdue = overdue
        self._pulses: dict[str, _Pulse] = {}
        # One for all: who failed together is asked for together again, in one call.
        self._backoff = Backoff()
        self._news = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="onceward-heart", daemon=True)
        self._thread.start()

    def add(self, job: Job[Any]) -> None:
        with self._news:
            self._pulses[job.execution] = _Pulse(job)
            self._news.notify()

    def remove(self, job: Job[Any]) -> None:
        with self._news:
            self._pulses.pop(job.execution, None)

    def close(self) -> None:
        with self._news:
            self._over = True
            self._news.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._news:
                due = self._wait_for_due()
                if self._over:
                    return
                # One that hangs must not cost the others their leases.
                timeout = min(self._client.timeout, *(pulse.every for pulse in self._pulses.values()), *(_left(each) for each in due))
            try:
                self._beat(due, max(timeout, SHORTEST_WAIT))
            except Exception:  # A heart that stops loses every lease, whatever the reason.
                log.exception("a heartbeat failed")
                self._again(due, None)

    def _wait_for_due(self) -> list[_Pulse]:
        while not self._over:
            now = time.monotonic()
            due = [pulse for pulse in self._pulses.values() if pulse.due <= now]
            if due:
                along = [pulse for pulse in self._pulses.values() if now < pulse.due <= now + pulse.every * ALONG and not pulse.failed]
                return (due + along)[:BATCH]
            first = min((pulse.due for pulse in self._pulses.values()), default=None)
            self._news.wait(None if first is None else first - now)
        return []

    def _beat(self, due: Sequence[_Pulse], timeout: float) -> None:
        sent = time.monotonic()
        answers, asked = self._ask(due, timeout)
        failed = [pulse for pulse, answer in zip(due, answers, strict=True) if not self._is_heard(pulse, answer, sent)]
        if failed:
            waits = (answer.retry_after for answer in answers if isinstance(answer, Problem))
            self._again(failed, max((wait for wait in (asked, *waits) if wait is not None), default=None))
        else:
            self._backoff = Backoff()

    def _ask(self, due: Sequence[_Pulse], timeout: float) -> tuple[Sequence[Reported | Problem | None], float | None]:
        """What was said of each, and how long the server asks to wait where it said nothing of any."""
        reports = [Report.heartbeat(pulse.job.execution, pulse.job.token, self._lease) for pulse in due]
        try:
            if len(reports) == 1:
                return [self._client.report_once(reports[0], timeout=timeout)], None
            return self._client.report_many_once(reports, timeout=timeout), None
        except Refused as error:
            return [error.problem if len(reports) == 1 else None] * len(reports), error.problem.retry_after
        except OncewardError:
            return [None] * len(reports), None

    def _is_heard(self, pulse: _Pulse, answer: Reported | Problem | None, sent: float) -> bool:
        """False where the beat is to be sent again soon."""
        job = pulse.job
        if isinstance(answer, Reported):
            job.kept(sent)
            pulse.failed = False
            pulse.due = sent + pulse.every
            if answer.stop and pulse.told_to_stop:
                self._overdue(job)
            elif answer.stop:
                pulse.told_to_stop = True
                job.cancel("stop")
            return True
        # A server in trouble says nothing of the lease.
        is_lost = isinstance(answer, Problem) and problem_is_final(answer)
        if is_lost and job.reported:
            # The report came first.
            self.remove(job)
            return True
        if is_lost or time.monotonic() >= job.gone_at:
            log.warning("lost the lease of %s: %s", job.id, answer or "no answer from the server")
            job.cancel("lease_lost")
            self.remove(job)
            return True
        return False

    def _again(self, failed: Sequence[_Pulse], asked: float | None) -> None:
        wait, now = self._backoff.wait(asked), time.monotonic()
        for pulse in failed:
            pulse.failed = True
            # Not later than a beat, however long the server asks to wait: two of those, and the lease has run out.
            pulse.due = min(now + min(wait, pulse.every), max(pulse.job.gone_at, now))


def _left(pulse: _Pulse) -> float:
    return pulse.job.gone_at - time.monotonic()
