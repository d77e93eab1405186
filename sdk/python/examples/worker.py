"""Counts words. Start a server (`onceward serve`), then this program, then `producer.py`."""

from __future__ import annotations

import logging
from typing import Any

from onceward import Job, TerminalFailure, Worker

worker = Worker(concurrency=4)


@worker.job("execution.job")
def count(job: Job[Any]) -> dict[str, int]:
    words = job.payload.get("words") if isinstance(job.payload, dict) else None
    if not isinstance(words, str):
        raise TerminalFailure("BAD_PAYLOAD", "the payload has no `words`")
    return {"count": len(words.split())}


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    worker.run()
