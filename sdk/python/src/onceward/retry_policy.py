"""Which calls are retried, for how long and with which delays."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from .errors import OncewardError, RefusedError, UnreachableError
from .types import Problem

#: The first delay and the longest, in seconds. The delay doubles with each retry.
INITIAL_RETRY_DELAY, MAX_RETRY_DELAY = 0.05, 5.0

#: The same as in the Rust worker (`crates/worker/src/error.rs`).
RETRYABLE_STATUSES = (429, 502, 503, 504, 507)

#: Bounds the delay that a server may ask for, in seconds.
MAX_RETRY_AFTER = 30.0


@dataclass(frozen=True)
class RetryPolicy:
    """Timeouts of calls and retries, in seconds."""

    #: Time for one response. Calls that wait for jobs get this in addition to their wait.
    response_timeout: float = 10.0
    #: Time from the first attempt of a call to the last.
    retry_timeout: float = 30.0


def is_retryable(error: OncewardError) -> bool:
    """Returns whether the same call may succeed later. Repeating is safe, because every call of this library carries an idempotency
    key or a fencing token, or changes nothing."""
    if isinstance(error, UnreachableError):
        return True
    return isinstance(error, RefusedError) and is_problem_retryable(error.problem)


def is_problem_retryable(problem: Problem) -> bool:
    """Returns whether the cause is temporary, for example an overloaded or unavailable server, or a full disk. An internal error (500) is
    not: the request itself may cause it."""
    return problem.code == "idempotency_key_in_use" or problem.status in RETRYABLE_STATUSES


def is_final(error: OncewardError) -> bool:
    """Returns whether the server refused the call itself, so that no retry can succeed."""
    return isinstance(error, RefusedError) and is_problem_final(error.problem)


def is_problem_final(problem: Problem) -> bool:
    return problem.status < 500 and not is_problem_retryable(problem)


def retry_after_of(error: OncewardError) -> float | None:
    """Returns the delay that the server asked for."""
    return error.problem.retry_after if isinstance(error, RefusedError) else None


class Backoff:
    """Growing delays with jitter, so that callers that failed together do not retry together."""

    def __init__(self, max_delay: float = MAX_RETRY_DELAY) -> None:
        self._next_delay = min(INITIAL_RETRY_DELAY, max_delay)
        self._max_delay = max_delay

    def next_delay(self, retry_after: float | None = None) -> float:
        delay = self._next_delay * random.uniform(0.5, 1.0)
        self._next_delay = min(self._next_delay * 2, self._max_delay)
        if retry_after is None or retry_after <= delay:
            return delay
        # Add the jitter to the server's delay, too.
        return min(retry_after, MAX_RETRY_AFTER) + delay


class RetryTimer:
    """Delays the retries of one call and ends them after `retry_timeout`."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._deadline = time.monotonic() + policy.retry_timeout
        self._backoff = Backoff()

    def wait_or_raise(self, error: OncewardError) -> None:
        """Waits before the next attempt. Raises the error if it is not retryable or the time is over."""
        delay = self._backoff.next_delay(retry_after_of(error))
        if not is_retryable(error) or time.monotonic() + delay > self._deadline:
            raise error
        time.sleep(delay)
