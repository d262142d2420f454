"""Hooks for the API tester: how to write JSON lines, and which sessions exist."""

import json
import os
import urllib.request

import schemathesis

URL = os.environ["SEGUE_URL"]
SESSIONS = [f"tour{number}" for number in range(8)]
CALLS, TURNS = ["c1", "c2", "c5", "c99"], ["t1", "t2", "t99"]


def post(path, body):
    head = {"content-type": "application/json"}
    request = urllib.request.Request(f"{URL}{path}", json.dumps(body).encode(), head)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


for number, name in enumerate(SESSIONS):
    post("/v1/sessions", {"session": name, "flow": "chat" if number % 2 else "concierge"})
    for text in ["Should I open a bakery?", "I have a free year."]:
        post(f"/v1/sessions/{name}/messages", {"text": text})


@schemathesis.serializer("application/x-ndjson")
def lines(context, value):
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def pick(known, value):
    """Returns an existing id in three of four cases; always the same for the same value."""
    index = sum(str(value).encode())
    return value if index % 4 == 3 else known[index // 4 % len(known)]


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    if not isinstance(path_parameters, dict):
        return path_parameters
    path = context.operation.path
    # Requests that close or delete a session always use the first one.
    ends = context.operation.method.upper() == "DELETE" or path.endswith("/close")
    known = {"session": SESSIONS[:1] if ends else SESSIONS[1:], "call": CALLS, "turn": TURNS}
    return {name: pick(known[name], value) if name in known else value for name, value in path_parameters.items()}
