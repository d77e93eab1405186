"""Errors of calls, and failures that a handler raises."""

from __future__ import annotations

from .types import Problem


class OncewardError(Exception):
    """Base class of all errors of this library."""


class UnreachableError(OncewardError):
    """The server did not answer. If `not_sent`, the server did not receive the call; otherwise the outcome is unknown."""

    def __init__(self, message: str, *, not_sent: bool = False) -> None:
        super().__init__(message)
        self.not_sent = not_sent


class RefusedError(OncewardError):
    """The server refused the call. `problem` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem

    @property
    def code(self) -> str:
        return self.problem.code

    @property
    def status(self) -> int:
        return self.problem.status


class LeaseLostError(RefusedError):
    """The worker no longer holds the job: the lease expired, or the record left the leased state. Drop the work."""


class AlreadyCommittedError(RefusedError):
    """The job already has a committed effect, of this or another execution. Drop the work."""

    @property
    def committed_token(self) -> int | None:
        """The token of the execution that committed."""
        return self.problem.committed_token


def error_from_problem(problem: Problem) -> RefusedError:
    """Returns the exception for a problem."""
    if problem.code == "lease_lost":
        return LeaseLostError(problem)
    if problem.code == "already_committed":
        return AlreadyCommittedError(problem)
    return RefusedError(problem)


class JobStoppedError(OncewardError):
    """The job must stop. If a handler lets it propagate, the worker yields the job."""


class Failure(OncewardError):
    """Why a job failed. Raise `RetryableFailure` or `TerminalFailure`."""

    retryable: bool

    def __init__(self, code: str, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.retry_after = retry_after


class RetryableFailure(Failure):
    """A failure that another attempt may avoid. `retry_after` is the shortest delay before it, in seconds."""

    retryable = True


class TerminalFailure(Failure):
    """A failure that no retry can avoid."""

    retryable = False

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(code, message)
