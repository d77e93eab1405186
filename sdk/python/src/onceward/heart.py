"""Keeps the leases of all jobs that run, and hears from the server that one is to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .client import Client
from .errors import OncewardError, Refused
from .job import Job
from .patience import problem_is_final
from .records import Problem, Reported
from .requests import Report

#: A lease is kept by so many heartbeats: two may be lost.
BEATS = 3

#: No heart beats faster than this, in seconds.
FASTEST = 0.005

#: A beat that found no server is tried again so soon.
AGAIN = 0.05

log = logging.getLogger("onceward")


class _Pulse:
    """When a job's heart beats next."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.every = max(job.seconds / BEATS, FASTEST)
        # One that was found again has less of its lease left, and beats sooner.
        self.due = job.gone_at - job.seconds + self.every
        self.told_to_stop = False


class Heart:
    """One thread for all jobs of a worker. `overdue` is called for a job that was told to stop and still runs a beat later."""

    def __init__(self, client: Client, lease: float | None, overdue: Callable[[Job[Any]], object]) -> None:
        self._client = client
        self._lease = lease
        self._overdue = overdue
        self._pulses: dict[str, _Pulse] = {}
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
            try:
                self._beat(due)
            except Exception:  # A heart that stops loses every lease, whatever the reason.
                log.exception("a heartbeat failed")
                for pulse in due:
                    pulse.due = time.monotonic() + AGAIN

    def _wait_for_due(self) -> list[_Pulse]:
        while not self._over:
            now = time.monotonic()
            due = [pulse for pulse in self._pulses.values() if pulse.due <= now]
            if due:
                return due
            first = min((pulse.due for pulse in self._pulses.values()), default=None)
            self._news.wait(None if first is None else first - now)
        return []

    def _beat(self, due: Sequence[_Pulse]) -> None:
        reports = [Report.heartbeat(pulse.job.execution, pulse.job.token, self._lease) for pulse in due]
        # One that hangs must not cost the others their leases.
        timeout = max(min(self._client.timeout, *(pulse.every for pulse in due)), 0.25)
        answers: list[Reported | Problem | None]
        try:
            if len(reports) == 1:
                answers = [self._client.report_once(reports[0], timeout=timeout)]
            else:
                answers = [*self._client.report_many_once(reports, timeout=timeout)]
        except Refused as error:
            answers = [error.problem if len(reports) == 1 else None] * len(reports)
        except OncewardError:
            answers = [None] * len(reports)
        for pulse, answer in zip(due, answers, strict=True):
            self._hear(pulse, answer)

    def _hear(self, pulse: _Pulse, answer: Reported | Problem | None) -> None:
        job, now = pulse.job, time.monotonic()
        if isinstance(answer, Reported):
            job.kept()
            pulse.due = now + pulse.every
            if answer.stop and pulse.told_to_stop:
                self._overdue(job)
            elif answer.stop:
                pulse.told_to_stop = True
                job.cancel("stop")
            return
        is_lost = isinstance(answer, Problem) and problem_is_final(answer)
        if is_lost and job.reported:
            # The report came first.
            self.remove(job)
            return
        if is_lost or now >= job.gone_at:
            log.warning("lost the lease of %s: %s", job.id, answer or "no answer from the server")
            job.cancel("lease_lost")
            self.remove(job)
            return
        pulse.due = now + min(AGAIN, pulse.every)
