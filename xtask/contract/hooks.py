"""What the contract cannot say: which lifecycles are there, and that nobody has minutes to wait."""

import json
import os
import urllib.request
from typing import Any

import schemathesis

#: Milliseconds that a lease or a stream may wait here; longer ones within the contract are cut to it.
WAIT = 20

#: Filled when the contract is loaded.
LIFECYCLES: list[str] = []
JOBS: list[str] = []


@schemathesis.hook
def after_load_schema(context: Any, schema: Any) -> None:
    request = urllib.request.Request(f"{schema.get_base_url().rstrip('/')}/v1/lifecycles")
    request.add_header("Authorization", f"Bearer {os.environ['ONCEWARD_CONTRACT_KEY']}")
    with urllib.request.urlopen(request) as response:
        for lifecycle in json.load(response)["lifecycles"]:
            LIFECYCLES.append(lifecycle["name"])
            if lifecycle.get("lease"):
                JOBS.append(lifecycle["name"])


def chosen(among: list[str], value: str) -> str:
    """One that is there, for most values; the same for the same one."""
    at = sum(value.encode("utf-8", "surrogatepass")) % (len(among) + 1)
    return among[at] if at < len(among) else value


@schemathesis.hook
def map_path_parameters(context: Any, parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    if parameters and isinstance(name := parameters.get("name"), str) and LIFECYCLES:
        parameters["name"] = chosen(LIFECYCLES, name)
    return parameters


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    if isinstance(body, dict) and isinstance(names := body.get("lifecycles"), list) and "worker" in body and JOBS:
        body["lifecycles"] = [chosen(JOBS, name) if isinstance(name, str) else name for name in names]
    return body


def shorter(value: Any) -> Any:
    """Nothing that the contract refuses becomes one that it takes."""
    if isinstance(value, int) and not isinstance(value, bool) and WAIT < value <= 300_000:
        return WAIT
    return value


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    if case.operation.path == "/v1/leases" and isinstance(case.body, dict) and "wait_ms" in case.body:
        case.body["wait_ms"] = shorter(case.body["wait_ms"])
    if case.operation.path == "/v1/stream" and case.method.upper() == "GET":
        query = dict(case.query or {})
        query["wait_ms"] = shorter(query.get("wait_ms", WAIT))
        case.query = query
