"""What a host says of itself."""

from __future__ import annotations

import json
from dataclasses import asdict

from perdure.domain.compat import compare_hosts
from perdure.domain.record import HostFacts
from perdure.engine.hostfacts import cpu_flags, host_facts


def test_this_host_is_like_itself_also_after_a_round_trip() -> None:
    facts = host_facts("4.2.1")
    assert facts.cpu_flags
    assert HostFacts.from_json(json.loads(json.dumps(asdict(facts)))) == facts == host_facts("4.2.1")
    assert compare_hosts(facts, facts) == []


def test_only_what_every_processor_has_counts() -> None:
    assert cpu_flags("flags\t\t: a b c\nx\t: y\nflags\t\t: b c d\nvmx flags\t: z\n") == ("b", "c")
    assert cpu_flags("Features\t: asimd sve\n") == ("asimd", "sve")
    assert cpu_flags("") == ()
