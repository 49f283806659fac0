"""What is collected in the tests of it: three snapshots that share a file, in small packs."""

from __future__ import annotations

from perdure.domain.ids import Generation

from tests.unit.store.bench import Bench, noise

NOW, HOUR = 1_800_000_000, 3600


SAME, FIRST, SECOND, THIRD = (noise(180_000, seed) for seed in range(4))


def gens(*numbers: int) -> list[Generation]:
    return [Generation(one) for one in numbers]


def three(bench: Bench) -> list[dict[str, bytes]]:
    files = [{"same": SAME, "a": data} for data in (FIRST, SECOND, THIRD)]
    for one in files:
        bench.publish(one)
    return files
