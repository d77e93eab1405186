"""Counts the outcomes of a worker's jobs, for its last log line."""

from __future__ import annotations

import threading

from .requests import Report


class JobCounters:
    """Counts accepted reports. The threads of a worker share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {"commit": 0, "fail": 0, "yield": 0}

    def count(self, report: Report) -> None:
        with self._lock:
            if report.kind in self._counts:
                self._counts[report.kind] += 1

    def __str__(self) -> str:
        with self._lock:
            committed, failed, yielded = self._counts.values()
        return f"{'1 job' if committed == 1 else f'{committed} jobs'} committed, {failed} failed, {yielded} yielded"
