"""When to try again, and how long to wait before."""

from __future__ import annotations

import random
import time

from .errors import OncewardError, Refused, Unreachable
from .records import Problem

#: The first wait, and the longest; each is up to twice as long as the one before.
FIRST, LONGEST = 0.05, 5.0

#: A server that asks for more time than this is asked again after it all the same.
LONGEST_ASKED = 30.0


def may_pass(error: OncewardError) -> bool:
    """Whether the same call may be taken after a moment. All calls of this library may be repeated: they carry a key, or the
    token of a lease, or change nothing."""
    if isinstance(error, Unreachable):
        return True
    return isinstance(error, Refused) and problem_may_pass(error.problem)


def problem_may_pass(problem: Problem) -> bool:
    """Whether it speaks of the moment, not of the call. A full disk is such a moment, and so is a server that broke once."""
    if problem.code == "still_running" or problem.status == 429:
        return True
    return problem.status >= 500 and problem.status not in (501, 505)


def is_final(error: OncewardError) -> bool:
    """Whether the server has understood and said no: there is no use in asking again, now or later."""
    return isinstance(error, Refused) and problem_is_final(error.problem)


def problem_is_final(problem: Problem) -> bool:
    return problem.status < 500 and not problem_may_pass(problem)


def asked_of(error: OncewardError) -> float | None:
    """The wait that the server asks for."""
    return error.problem.retry_after if isinstance(error, Refused) else None


class Backoff:
    """Waits that grow, spread by chance so that callers who failed together do not return together."""

    def __init__(self, longest: float = LONGEST) -> None:
        self._next = min(FIRST, longest)
        self._longest = longest

    def wait(self, asked: float | None = None) -> float:
        wait = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._next * 2, self._longest)
        if asked is None or asked <= wait:
            return wait
        # Not all at the very moment that they were told of.
        return min(asked, LONGEST_ASKED) + wait


class Patience:
    """How long a call is tried again; the error is raised when it is over."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._backoff = Backoff()

    def after(self, error: OncewardError) -> None:
        """Waits, or raises what cannot be mended by waiting."""
        wait = self._backoff.wait(asked_of(error))
        if not may_pass(error) or time.monotonic() + wait > self._until:
            raise error
        time.sleep(wait)
