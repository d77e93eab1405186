"""What became of a worker's jobs, for the line with which it ends."""

from __future__ import annotations

import threading

from .requests import Report


class Tally:
    """Counts what the server has taken; the threads of a worker share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = {"commit": 0, "fail": 0, "yield": 0}

    def took(self, report: Report) -> None:
        with self._lock:
            if report.do in self._taken:
                self._taken[report.do] += 1

    def __str__(self) -> str:
        with self._lock:
            committed, failed, back = self._taken.values()
        return f"{jobs(committed)} committed, {failed} failed, {back} given back"


def jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
