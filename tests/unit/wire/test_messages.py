"""Messages: what is written is read again, what is malformed is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from perdure.domain.endpoint import Endpoint
from perdure.domain.errors import BadRequest, NoRoom
from perdure.domain.ids import Generation, Owner, kernel_id
from perdure.domain.phases import Phase
from perdure.domain.policy import Policy
from perdure.domain.record import Trigger
from perdure.wire.messages import Address, GenerationInfo, HostInfo, KernelStatus, Progress, Restore, StartRequest

ID = kernel_id("0b0e4b7e-6f6c-4f4e-9f0e-3d2b1c7a5e11")
KEY = "c0ffee-secret"
REQUEST = StartRequest(
    kernel_id=ID,
    argv=("/usr/bin/python3", "-m", "ipykernel_launcher"),
    env={"HOME": "/home/ann", "TOKEN": "hush", "EMPTY": ""},
    cwd="/home/ann",
    endpoint=Endpoint.for_kernel(ID, KEY, kernel_name="python3"),
    kernel_name="python3",
    display_name="Python",
    notebook="a b.ipynb",
    policy=Policy(snapshot_interval_s=7.5, snapshots_at_shutdown="keep"),
    repository="file:///srv/snapshots",
    owner=Owner(1000, 1000, (27, 1000)),
)
INFO = GenerationInfo(
    generation=Generation(3),
    incarnation=2,
    created="2026-01-02T03:04:05.678Z",
    trigger=Trigger.CELL,
    engine="classic",
    stall_s=0.25,
    total_s=1.5,
    timings={"dump": 0.25, "unaccounted": 0.0},
    bytes_logical=1 << 30,
    bytes_added=4096,
    execution_count=17,
    busy=True,
    verified=True,
    host="here",
    warnings=("a connection was closed",),
)
STATUS = KernelStatus(
    kernel_id=ID,
    seq=12,
    phase=Phase.RESTORING,
    host="here",
    owner=Owner(1000, 1000),
    endpoint=Address("127.64.1.2", {"shell": 7101}),
    kernel_name="python3",
    notebook="",
    started="2026-01-02T03:04:05.678Z",
    incarnation=2,
    pid=None,
    exit_status=-9,
    busy=False,
    execution_count=None,
    repository="file:///srv/snapshots",
    policy=Policy(),
    last_snapshot=INFO,
    last_error=NoRoom("The disk is full.", hint="Free some.", detail="0 bytes"),
    next_snapshot="nothing ran",
    progress=Progress("fetching", 0.5),
    restores=(Restore("2026-01-02T03:04:05.678Z", Generation(3), 1.25, "signal 9"),),
    warnings=("generation 2 is damaged",),
    generations=(INFO,),
)
HOST = HostInfo(
    hostname="here",
    version="0.1",
    pid=4711,
    criu={"path": "/usr/sbin/criu", "version": "4.2"},
    protects=False,
    why="criu: too old",
    fix="perdure engine install",
    repository="file:///srv/snapshots/0",
    state="/var/lib/perdure",
    checks=({"name": "root", "ok": True, "found": "uid 0", "means": "", "fix": ""},),
)


def over_the_wire(document: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(document)))


def test_a_start_request_arrives_as_it_was_sent() -> None:
    assert StartRequest.from_json(over_the_wire(REQUEST.to_json())) == REQUEST


def test_an_error_in_a_status_keeps_its_class() -> None:
    there = KernelStatus.from_json(over_the_wire(STATUS.to_json()))
    assert isinstance(there.last_error, NoRoom)
    assert there.last_error.to_json() == STATUS.last_error.to_json()  # type: ignore[union-attr]
    without = {name: getattr(there, name) for name in vars(there) if name != "last_error"}
    assert without == {name: value for name, value in vars(STATUS).items() if name != "last_error"}


@pytest.mark.parametrize("message", [INFO, HOST])
def test_it_arrives_as_it_was_sent(message: GenerationInfo | HostInfo) -> None:
    assert type(message).from_json(over_the_wire(message.to_json())) == message


@pytest.mark.parametrize("message", [REQUEST, INFO, STATUS, HOST])
def test_fields_of_a_newer_release_are_ignored(message: Any) -> None:
    document = over_the_wire(message.to_json())
    assert type(message).from_json({**document, "from_the_future": [1]}).to_json() == message.to_json()


@pytest.mark.parametrize("message", [INFO, STATUS, HOST])
def test_each_missing_field_is_a_bad_request(message: Any) -> None:
    document = over_the_wire(message.to_json())
    for name in document:
        with pytest.raises(BadRequest):
            type(message).from_json({key: value for key, value in document.items() if key != name})


def test_a_start_request_needs_a_command_a_folder_and_an_endpoint() -> None:
    document = over_the_wire(REQUEST.to_json())
    for name in ("kernel_id", "argv", "env", "cwd", "endpoint"):
        with pytest.raises(BadRequest):
            StartRequest.from_json({key: value for key, value in document.items() if key != name})
    needed = {name: document[name] for name in ("kernel_id", "argv", "env", "cwd", "endpoint")}
    least = StartRequest.from_json(needed)
    assert (least.policy, least.repository, least.owner, least.notebook) == (Policy(), None, None, "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel_id", "../../etc"),
        ("kernel_id", None),
        ("argv", []),
        ("argv", "python"),
        ("argv", ["python", 3]),
        ("argv", ["py\0thon"]),
        ("env", ["A=1"]),
        ("env", {"A": 1}),
        ("endpoint", None),
        ("endpoint", {"ip": "127.0.0.1"}),
        ("policy", {"min_gap_s": "soon"}),
        ("policy", [1]),
        ("owner", {"uid": "root"}),
    ],
)
def test_what_is_malformed_in_a_start_request_is_a_bad_request(name: str, value: Any) -> None:
    with pytest.raises(BadRequest):
        StartRequest.from_json({**over_the_wire(REQUEST.to_json()), name: value})


@pytest.mark.parametrize(
    "change",
    [{"ip": "localhost"}, {"ip": ""}, {"ip": "127.0.0.256"}, {"shell_port": 0}, {"hb_port": 65536}, {"stdin_port": "many"}],
)
def test_an_endpoint_where_nothing_can_listen_is_a_bad_request(change: dict[str, Any]) -> None:
    document = over_the_wire(REQUEST.to_json())
    document["endpoint"].update(change)
    with pytest.raises(BadRequest):
        StartRequest.from_json(document)


@pytest.mark.parametrize("document", [None, [], "text", 7])
def test_what_is_no_object_is_a_bad_request(document: Any) -> None:
    for kind in (StartRequest, GenerationInfo, KernelStatus, HostInfo):
        with pytest.raises(BadRequest):
            kind.from_json(document)


@pytest.mark.parametrize(
    ("name", "value"),
    [("phase", "asleep"), ("owner", {}), ("endpoint", {"ip": "127.0.0.1"}), ("restores", [{"at": ""}]), ("generations", [{}])],
)
def test_a_malformed_status_is_a_bad_request(name: str, value: Any) -> None:
    with pytest.raises(BadRequest):
        KernelStatus.from_json({**over_the_wire(STATUS.to_json()), name: value})


def test_secrets_are_not_shown() -> None:
    assert KEY not in repr(REQUEST)
    assert "hush" not in repr(REQUEST)
    assert KEY not in json.dumps(STATUS.to_json())
