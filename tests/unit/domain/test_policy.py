"""Settings as they come over the wire and from older records."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from perdure.domain.errors import BadRequest
from perdure.domain.policy import RANGES, Policy


def test_back_from_json() -> None:
    policy = Policy(only_when_asked=True, stall_budget=0.02, preemption_deadline_s=0, engine="classic")
    assert Policy.from_json(json.loads(json.dumps(policy.to_json()))) == policy


def test_a_record_of_an_older_release_gets_the_defaults() -> None:
    old = {"snapshot_interval_s": 60.0, "min_gap_s": 5.0, "restore_on_death": False, "snapshots_at_shutdown": "keep"}
    assert Policy.from_json(old) == Policy(snapshot_interval_s=60.0, restore_on_death=False, snapshots_at_shutdown="keep")
    assert Policy.from_json({}) == Policy()


def test_names_of_a_newer_release_are_passed_over() -> None:
    assert Policy.from_json({"not_yet_invented": "x", "engine": "live"}) == Policy(engine="live")


def test_defaults_and_limits_are_allowed() -> None:
    for name, ends in RANGES.items():
        for value in (*ends, getattr(Policy, name)):
            assert getattr(Policy.from_json({name: value}), name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("engine", "fast"),
        ("engine", None),
        ("engine", ["live"]),
        ("snapshots_at_shutdown", "perhaps"),
        ("only_when_asked", 1),
        ("only_when_asked", "no"),
        ("stall_budget", 0),
        ("stall_budget", 1.5),
        ("stall_budget", True),
        ("stall_budget", "1%"),
        ("loss_budget_s", 0),
        ("mean_time_between_failures_s", 1),
        ("preemption_deadline_s", -1),
        ("preemption_deadline_s", 601),
        *[(field.name, value) for field in fields(Policy) for value in (-1, float("nan"), float("inf"), 10**400, {})],
    ],
)
def test_nonsense_is_refused(name: str, value: object) -> None:
    with pytest.raises(BadRequest):
        Policy.from_json({name: value})
