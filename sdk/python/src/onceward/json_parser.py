"""Parses JSON of the server, which accepts numbers that Python does not convert."""

from __future__ import annotations

import json
from typing import Any

#: Why a job with such a number fails. The number is part of a payload, so it is not quoted.
OVERSIZED_NUMBER_MESSAGE = "the payload has a number with more digits than Python converts"


class OversizedNumber:
    """Stands for an integer with more digits than `sys.set_int_max_str_digits` allows."""


def parse_json(text: bytes) -> tuple[Any, bool]:
    """Returns the value, and whether an `OversizedNumber` is in it. Raises ValueError if the text is not JSON."""
    try:
        return json.loads(text), False
    except ValueError:
        # Either not JSON, which fails again, or a number.
        return json.loads(text, parse_int=_parse_int), True


def has_oversized_number(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(has_oversized_number, value.values()))
    if isinstance(value, list):
        return any(map(has_oversized_number, value))
    return isinstance(value, OversizedNumber)


def _parse_int(text: str) -> int | OversizedNumber:
    try:
        return int(text)
    except ValueError:
        return OversizedNumber()
