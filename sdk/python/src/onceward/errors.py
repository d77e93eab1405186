"""What goes wrong, and what a handler may raise."""

from __future__ import annotations

from .records import Problem


class OncewardError(Exception):
    """Whatever this library raises."""


class Unreachable(OncewardError):
    """No answer from the server. Whether the call was carried out is not known; but for one that was `unheard`, as nobody was there
    to hear it."""

    def __init__(self, message: str, *, unheard: bool = False) -> None:
        super().__init__(message)
        self.unheard = unheard


class Refused(OncewardError):
    """The server answered, and the answer is no. `problem` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem

    @property
    def code(self) -> str:
        return self.problem.code

    @property
    def status(self) -> int:
        return self.problem.status


class LeaseLost(Refused):
    """The job is no longer this worker's: its lease ran out, or it moved on without it. Drop the work."""


class AlreadyCommitted(Refused):
    """An effect has landed: another's, or one's own. Drop the work, it is done."""

    @property
    def committed(self) -> int | None:
        """The token of the execution that won."""
        return self.problem.committed


def refused(problem: Problem) -> Refused:
    """The exception that suits a problem."""
    if problem.code == "lease_lost":
        return LeaseLost(problem)
    if problem.code == "already_committed":
        return AlreadyCommitted(problem)
    return Refused(problem)


class Cancelled(OncewardError):
    """Raised by `Job.check` when the job is to stop. Let it pass through your handler: the job is then given back."""


class WorkError(OncewardError):
    """Why a job failed, as the server is told. Raise `Retry` or `Fail`."""

    retryable: bool

    def __init__(self, code: str, message: str = "", *, after: float | None = None) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.after = after


class Retry(WorkError):
    """This attempt failed, another may succeed; not before `after` seconds."""

    retryable = True


class Fail(WorkError):
    """The job cannot succeed. It is not tried again."""

    retryable = False

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(code, message)
