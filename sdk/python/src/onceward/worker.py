"""Runs functions for jobs: leases them, keeps the leases alive, reports what became of them, and stops cleanly."""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, TypeVar

from .client import Client, value_of
from .dialing import Call
from .errors import AlreadyCommitted, Cancelled, Fail, LeaseLost, OncewardError, Refused, Retry, Unreachable, WorkError
from .heart import BEATS, Heart
from .job import Job
from .patience import Backoff, asked_of, is_final, may_pass
from .records import Lease, Record, Reported
from .requests import Report, new_key
from .tally import Tally, jobs
from .telling import UNSPEAKABLE, failure_of, instead, is_broken, short

P = TypeVar("P")
Handler = Callable[[Job[P]], Any]

#: How long the last reports may take once the grace is over, in seconds.
LAST = 2.0

#: Jobs asked for in one call: their payloads come along.
AT_ONCE = 100

#: A report that the server breaks at so often is not tried again: the server is in trouble for a moment, or it is the report.
BROKEN = 5

#: A payload that is not that of its hash may have been harmed on the way here, and is fetched once more.
FETCHES = 2

#: What ends a worker. A terminal that is closed is no reason to leave jobs behind.
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP")

log = logging.getLogger("onceward")


class Worker:
    """Runs handlers for jobs, `concurrency` at a time, each in a thread.

    `lease` overrides how long the lifecycle lends a job without a heartbeat, in seconds. `wait` is how long one call waits for a
    job. On SIGTERM, SIGINT or SIGHUP no more jobs are taken, those that run are told to stop (`Job.cancelled`), and what still runs after
    `grace` seconds is given back. `error_code` is what an exception of no kind of ours is reported as; it may be tried again.
    """

    def __init__(
        self,
        client: Client | str | None = None,
        *,
        name: str | None = None,
        concurrency: int = 1,
        lease: float | None = None,
        wait: float = 20.0,
        grace: float = 10.0,
        error_code: str = "EXCEPTION",
    ) -> None:
        if concurrency < 1:
            raise ValueError("a worker runs at least one job at a time")
        self.client = client if isinstance(client, Client) else Client(client)
        self._owns_client = not isinstance(client, Client)
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.concurrency = concurrency
        self.grace = grace
        self._lease = lease
        self._wait = wait
        self._error_code = error_code
        self._handlers: dict[str, tuple[Handler[Any], Callable[[Any], Any] | None]] = {}
        self._jobs: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._running: dict[str, Job[Any]] = {}
        self._change = threading.Condition()
        self._closing = threading.Event()
        self._call: Call | None = None
        self._heart: Heart | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._signal: str | None = None
        self._tally = Tally()
        # A signal handler may do next to nothing; a byte on a socket is heard by whoever waits in `run`.
        self._ear, self._mouth = socket.socketpair()

    def job(self, lifecycle: str, decode: Callable[[Any], P] | None = None) -> Callable[[Handler[P]], Handler[P]]:
        """Decorator: this function works on jobs of that lifecycle. What it returns is committed.

        `decode` turns the payload into what the function wants; where it raises, the job fails for good (`BAD_PAYLOAD`).
        """

        def keep(handler: Handler[P]) -> Handler[P]:
            if lifecycle in self._handlers:
                raise ValueError(f"{lifecycle} has a handler already")
            self._handlers[lifecycle] = (handler, decode)
            return handler

        return keep

    def run(self, *, signals: bool = True) -> None:
        """Works until SIGTERM, SIGINT, SIGHUP or `stop`. A second signal gives everything back at once."""
        before: dict[int, Any] = {}
        for name in SIGNALS if signals else ():
            number = getattr(signal, name, None)
            # Windows has no SIGHUP; and `nohup` wants it to be ignored, so it is.
            if number is None or (name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN):
                continue
            before[number] = signal.signal(number, self._on_signal)
        try:
            self.start()
            while self._ear.recv(1) == b"s":
                if self._closing.is_set():
                    self.grace = 0.0
                    with self._change:
                        self._change.notify_all()
                self.stop()
        finally:
            for known, handler in before.items():
                signal.signal(known, handler)
        self.join()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signal = signal.Signals(number).name
        self._mouth.send(b"s")

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        self.join()

    def start(self) -> None:
        """Works in the background; `stop` and `join` end it."""
        if not self._handlers:
            raise ValueError("a worker without a handler has nothing to do")
        if self._thread is not None:
            raise RuntimeError("this worker was started before")
        served = f"{', '.join(self._handlers)} at {self.client.url}"
        log.info("%s works on %s, %s at a time", self.name, served, jobs(self.concurrency))
        self._heart = Heart(self.client, self._lease, lambda job: self._aside([job]))
        for number in range(self.concurrency):
            threading.Thread(target=self._work, name=f"onceward-{number}", daemon=True).start()
        self._thread = threading.Thread(target=self._live, name="onceward-leases", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Takes no more jobs and tells those that run to stop. Returns at once."""
        with self._change:
            is_news = self._thread is not None and not self._closing.is_set()
            self._closing.set()
            call, running = self._call, list(self._running.values())
            self._change.notify_all()
        for job in running:
            job.cancel("shutdown")
        if call is not None:
            call.abort()
        if is_news:
            log.info("ending, %s: what runs may finish within %g s%s", *self._why())

    def _why(self) -> tuple[str, float, str]:
        """Why it ends, how long what runs may take, and what else there is to know."""
        if self._signal is not None:
            return f"on {self._signal}", self.grace, "; a second signal gives it back at once"
        return "as asked" if self._failure is None else "after an error", self.grace, ""

    def join(self) -> None:
        """Waits until it has stopped; raises what made it stop by itself."""
        if self._thread is not None:
            self._thread.join()
        self._ear.close()
        self._mouth.close()
        if self._owns_client:
            self.client.close()
        if self._failure is not None:
            raise self._failure

    # Leasing

    def _live(self) -> None:
        try:
            self._take_jobs()
        except BaseException as failure:
            self._failure = failure
            log.error("the worker stops: %s", failure)
        finally:
            self.stop()
            self._drain()
            for _ in range(self.concurrency):
                self._jobs.put(None)
            if self._heart is not None:
                self._heart.close()
            log.info("ended: %s", self._tally)
            self._mouth.send(b"e")

    def _take_jobs(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._closing.is_set() or len(self._running) < self.concurrency)
                if self._closing.is_set():
                    return
                most = min(self.concurrency - len(self._running), AT_ONCE)
            self._ask(most)

    def _ask(self, most: int) -> None:
        """Asks until there is an answer, with one key: jobs that were taken for an answer that got lost are found again."""
        key, backoff, is_again = new_key(), Backoff(), False
        while True:
            call = Call()
            with self._change:
                if self._closing.is_set():
                    # The call before may have taken jobs.
                    break
                self._call = call
            try:
                self._begin(self._ask_once(most, key, self._wait, call), is_again)
                return
            except OncewardError as error:
                is_again = True
                if self._closing.is_set():
                    break
                if is_final(error):
                    raise
                log.warning("no jobs to be had: %s", error)
                self._closing.wait(backoff.wait(asked_of(error)))
            finally:
                with self._change:
                    self._call = None
        if is_again:
            self._begin(self._ask_last(most, key), is_again)

    def _ask_last(self, most: int, key: str) -> list[Lease]:
        """The call that was given up may have taken jobs: these are known by its key, and given back."""
        backoff, until = Backoff(), time.monotonic() + LAST
        while True:
            try:
                return self._ask_once(most, key, 0.0, None, again=True)
            except OncewardError as error:
                # The server may not have noticed yet that nobody listens any more.
                if not may_pass(error) or time.monotonic() > until:
                    return []  # Their leases run out.
            time.sleep(backoff.wait())

    def _ask_once(self, most: int, key: str, wait: float, call: Call | None, *, again: bool = False) -> list[Lease]:
        timeout = LAST if self._closing.is_set() else None
        return self.client.lease_once(
            [*self._handlers],
            self.name,
            max=most,
            lease=self._lease,
            wait=wait,
            start=True,
            once=key,
            again=again,
            call=call,
            timeout=timeout,
        )

    def _begin(self, leases: Sequence[Lease], is_again: bool) -> None:
        """`is_again`: not the first call that may have taken them, so nobody knows how old these leases are."""
        jobs: list[Job[Any]] = []
        for lease in leases:
            _, decode = self._handlers[lease.record.lifecycle]
            jobs.append(Job(lease, self, decode, self._lease, in_doubt=is_again))
        with self._change:
            self._running.update((job.execution, job) for job in jobs)
            closing = self._closing.is_set()
        if closing:
            # Not begun, so nothing is lost by giving them back.
            self._give_back_now(jobs)
            return
        for job in jobs:
            if self._heart is not None:
                self._heart.add(job)
            self._jobs.put(job)

    def _give_back_now(self, jobs: Sequence[Job[Any]]) -> None:
        """All at once: the last one has no more time than the first."""
        for job in jobs:
            job.give_up_at = time.monotonic() + LAST
        for thread in self._aside(jobs):
            thread.join()
        for job in jobs:
            self._end(job)

    def _drain(self) -> None:
        began = time.monotonic()
        with self._change:
            while self._running:
                # A second signal takes the grace away.
                left = began + self.grace - time.monotonic()
                if left <= 0:
                    break
                self._change.wait(left)
            late = list(self._running.values())
        reporting = [job for job in late if job.reported]
        for job in late:
            job.give_up_at = time.monotonic() + LAST
        for thread in self._aside(late):
            thread.join()
        with self._change:
            self._change.wait_for(lambda: not any(job.execution in self._running for job in reporting), LAST)

    def _aside(self, jobs: Sequence[Job[Any]]) -> list[threading.Thread]:
        """Gives jobs back in threads of their own: whoever asks has other jobs to care for."""
        threads = [threading.Thread(target=self._give_back, args=(job,), daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        return threads

    # Working

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if self._is_ours(job):
                    self._report(job, self._outcome(job))
            except Exception:
                log.exception("job %s: its report failed", job.id)
            finally:
                self._end(job)

    def _end(self, job: Job[Any]) -> None:
        if self._heart is not None:
            self._heart.remove(job)
        with self._change:
            self._running.pop(job.execution, None)
            self._change.notify_all()

    def _is_ours(self, job: Job[Any]) -> bool:
        """Whether its handler may begin: not on a lease that is over, and not on one that may be, before the server has said
        that it is not."""
        try:
            if job.in_doubt and time.monotonic() < job.gone_at:
                sent = time.monotonic()
                if self._send(job, Report.heartbeat(job.execution, job.token, self._lease)).stop:
                    self._report(job, Report.yield_(job.execution, job.token))
                    return False
                job.kept(sent)
        except OncewardError as error:
            log.warning("job %s is not begun: %s", job.id, error)
            return False
        if time.monotonic() < job.gone_at:
            return True
        log.warning("job %s is not begun: its lease was over when it came", job.id)
        return False

    def _outcome(self, job: Job[Any]) -> Report | None:
        """Runs the handler; what is to be told of it. None: the job is no longer ours."""
        handler, decode = self._handlers[job.lifecycle]
        name, token = job.execution, job.token
        try:
            if decode is not None:
                self._decode(job)
            result = handler(job)
        except (LeaseLost, AlreadyCommitted) as error:
            log.warning("job %s: %s", job.id, error)
            return None
        except Cancelled:
            return Report.yield_(name, token)
        except WorkError as error:
            return Report.fail(name, token, short(error))
        except BaseException as error:
            log.exception("job %s: its handler raised", job.id)
            return Report.fail(name, token, short(Retry(self._error_code, f"{type(error).__name__}: {error}")))
        return Report.finish(name, token) if job.committed else Report.commit(name, token, result, finish=True)

    def _decode(self, job: Job[Any]) -> None:
        try:
            job.payload
        except OncewardError:
            raise
        except Exception as error:
            raise Fail("BAD_PAYLOAD", f"{type(error).__name__}: {error}") from error

    def _give_back(self, job: Job[Any]) -> None:
        """Yields a job whose handler does not come to an end; what it still does comes to nothing."""
        if not job.claim_report():
            return
        job.cancel("shutdown")
        end = (Report.finish if job.committed else Report.yield_)(job.execution, job.token)
        try:
            self._send(job, end)
            self._tally.took(end)
        except OncewardError as error:
            log.warning("job %s could not be given back: %s", job.id, error)
        if self._heart is not None:
            self._heart.remove(job)

    def _report(self, job: Job[Any], report: Report | None) -> None:
        if report is None or job.reason == "lease_lost" or not job.claim_report():
            return
        if job.committed:
            # What is left is tidying up; the effect has landed, and no attempt follows.
            report = Report.finish(job.execution, job.token)
        # What is sent instead may not be taken either, and is then told as plainly as can be.
        for _ in range(3):
            try:
                self._send(job, report)
                self._tally.took(report)
                return
            except Unreachable as error:
                log.error("job %s: %s was not heard before its lease ran out: %s", job.id, report.do, error)
                return
            except (Refused, *UNSPEAKABLE) as error:
                other = instead(report, error, self._error_code)
                if other is None:
                    log.warning("job %s: %s was refused: %s", job.id, report.do, error)
                    return
                log.error("job %s: its %s is not taken: %s", job.id, report.do, error)
                report = other

    def _send(self, job: Job[Any], report: Report) -> Reported:
        """Until it is answered, or the lease is surely gone. The same report twice does no harm: its token sees to that."""
        backoff, broken = Backoff(max(job.seconds / 10, 0.01)), 0
        while True:
            timeout = min(self.client.timeout, max(job.give_up_at - time.monotonic(), 0.05))
            try:
                return self.client.report_once(report, timeout=timeout, trace=job.traceparent)
            except OncewardError as error:
                broken += is_broken(error)
                wait = min(backoff.wait(asked_of(error)), job.seconds / BEATS)
                now = time.monotonic()
                if not may_pass(error) or broken == BROKEN or now >= job.gone_at or now + wait > job.give_up_at:
                    raise
            time.sleep(wait)

    def commit_now(self, job: Job[Any], result: Any) -> None:
        """For `Job.commit`."""
        if job.committed:
            raise RuntimeError("this job is committed already")
        if job.reason == "lease_lost":
            raise Cancelled("lease_lost")
        report = Report.commit(job.execution, job.token, result)
        try:
            self._send(job, report)
            self._tally.took(report)
        except (Refused, *UNSPEAKABLE) as error:
            failure = failure_of(error)
            if failure is None:
                raise
            raise failure from error
        job.committed = True

    def fetch(self, record: Record) -> Any:
        """For `Job.payload`: the bytes of its hash, and no others."""
        expected = (record.raw.get("payload") or {}).get("sha256")
        for _ in range(FETCHES):
            try:
                found = self.client.payload(record.id)
            except (Refused, Unreachable) as error:
                # A server that is away or busy is no fault of the job's. What is not there, or breaks off, would be so for whoever
                # has it next, too.
                if error.unheard if isinstance(error, Unreachable) else may_pass(error):
                    raise Cancelled("no_payload") from error
                raise Retry("PAYLOAD_UNAVAILABLE", str(error)) from error
            if expected is None or hashlib.sha256(found).hexdigest() == expected:
                return value_of(found)
            log.warning("job %s: the payload that came is not that of its hash", record.id)
        raise Retry("PAYLOAD_UNAVAILABLE", "the payload that came is not that of its hash")
