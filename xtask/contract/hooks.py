"""Test data that the contract lacks: existing lifecycles, records and executions, and short waits.

Everything here changes a request that keeps to the contract into another that does; one that does not is left as it is.
"""

import json
import os
import urllib.request
from typing import Any

import schemathesis

#: Milliseconds that a lease or a stream may wait here.
WAIT = 20

#: How many records and executions are remembered.
MOST = 50

#: By lifecycle, the events that it knows; filled when the contract is loaded.
LIFECYCLES: dict[str, list[str]] = {}
JOBS: list[str] = []

#: Those that were made on the way, and executions with their tokens.
RECORDS: list[str] = []
EXECUTIONS: dict[str, int] = {}


@schemathesis.hook
def after_load_schema(context: Any, schema: Any) -> None:
    request = urllib.request.Request(f"{os.environ['ONCEWARD_CONTRACT_URL']}/v1/lifecycles")
    request.add_header("Authorization", f"Bearer {os.environ['ONCEWARD_CONTRACT_KEY']}")
    with urllib.request.urlopen(request) as response:
        for lifecycle in json.load(response)["lifecycles"]:
            LIFECYCLES[lifecycle["name"]] = lifecycle["events"]
            if lifecycle.get("lease"):
                JOBS.append(lifecycle["name"])


def chosen(among: list[str], value: Any) -> Any:
    """One that is there, for most texts; the same for the same one."""
    if not isinstance(value, str) or not among:
        return value
    at = sum(value.encode("utf-8", "surrogatepass")) % (len(among) + 1)
    return among[at] if at < len(among) else value


def shorter(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and WAIT < value <= 300_000:
        return WAIT
    return value


def is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**53


def places(case: Any) -> None:
    """What the path names."""
    path, named = case.operation.path, case.path_parameters
    if not isinstance(named, dict):
        return
    if "name" in named:
        named["name"] = chosen([*LIFECYCLES], named["name"])
    if "event" in named:
        named["event"] = chosen(sorted({event for events in LIFECYCLES.values() for event in events}), named["event"])
    if path.startswith("/v1/records/") and "id" in named:
        named["id"] = chosen(RECORDS, named["id"])
    if path.startswith("/v1/executions/") and "id" in named:
        named["id"] = chosen([*EXECUTIONS], named["id"])


def record(new: Any) -> None:
    """Fields are the lifecycle's affair, and most that are made up are refused: half go without."""
    if not isinstance(new, dict):
        return
    if isinstance(new.get("fields"), dict) and len(json.dumps(new["fields"])) % 2:
        new["fields"] = {}
    if new.get("payload") is not None and isinstance(new.get("payload_base64"), str):
        del new["payload_base64"]


def report(said: Any, execution: Any) -> None:
    if isinstance(said, dict) and isinstance(execution, str) and execution in EXECUTIONS and is_token(said.get("token")):
        said["token"] = EXECUTIONS[execution]


def content(case: Any) -> None:
    path, body = case.operation.path, case.body
    if not isinstance(body, dict):
        return
    if path == "/v1/leases":
        if isinstance(body.get("lifecycles"), list):
            body["lifecycles"] = [chosen(JOBS, name) for name in body["lifecycles"]]
        if "wait_ms" in body:
            body["wait_ms"] = shorter(body["wait_ms"])
    elif path.endswith("/records"):
        record(body)
    elif path.endswith("/records/batch") and isinstance(body.get("records"), list):
        for new in body["records"]:
            record(new)
    elif path == "/v1/executions/batch" and isinstance(body.get("reports"), list):
        for said in body["reports"]:
            if isinstance(said, dict) and "execution" in said:
                said["execution"] = chosen([*EXECUTIONS], said["execution"])
                report(said, said["execution"])
    elif path.startswith("/v1/executions/"):
        report(body, (case.path_parameters or {}).get("id"))


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    places(case)
    content(case)
    if case.operation.path == "/v1/stream" and case.method.upper() == "GET":
        query = dict(case.query or {})
        query["wait_ms"] = shorter(query.get("wait_ms", WAIT))
        case.query = query


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    path = case.operation.path
    if response.status_code not in (200, 201) or case.method.upper() != "POST":
        return
    if path.endswith("/records") and len(RECORDS) < MOST:
        RECORDS.append(response.json()["id"])
    elif path == "/v1/leases":
        for execution in response.json()["executions"]:
            if len(EXECUTIONS) < MOST:
                EXECUTIONS[execution["id"]] = execution["token"]
