"""Settings from a kernel spec or a configuration file."""

from __future__ import annotations

from dataclasses import fields

import pytest
from perdure.domain.policy import RANGES, Policy
from perdure.jupyter.provisioner import PerdureProvisioner
from traitlets import TraitError
from traitlets.config import Config


def test_each_field_of_the_policy_is_a_trait_with_the_same_default() -> None:
    assert PerdureProvisioner().policy == Policy()
    assert {field.name for field in fields(Policy)} <= set(PerdureProvisioner.class_trait_names(config=True))


def test_what_a_trait_allows_the_agent_allows() -> None:
    for name, ends in RANGES.items():
        for value in ends:
            policy = PerdureProvisioner(**{name: value}).policy
            assert Policy.from_json(policy.to_json()) == policy


def test_spec_and_configuration_file() -> None:
    from_spec = PerdureProvisioner(snapshot_interval_s=60, snapshots_at_shutdown="keep")
    assert from_spec.policy == Policy(snapshot_interval_s=60, snapshots_at_shutdown="keep")
    from_file = PerdureProvisioner(config=Config({"PerdureProvisioner": {"max_restores": 7}}))
    assert from_file.policy == Policy(max_restores=7)


@pytest.mark.parametrize(
    "wrong",
    [
        {"snapshot_interval_s": -1},
        {"snapshots_at_shutdown": "perhaps"},
        {"restore_on_death": "x"},
        {"engine": "fast"},
        {"stall_budget": 0},
        {"stall_budget": 2},
        {"preemption_deadline_s": 1e6},
        {"only_when_asked": "sometimes"},
    ],
)
def test_nonsense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(TraitError):
        PerdureProvisioner(**wrong)
