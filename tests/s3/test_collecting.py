"""Retiring and collecting in a bucket: the same as in a folder, and nothing is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from perdure.domain.ids import Generation
from perdure.store import waste
from perdure.store.settings import StoreSettings

from tests.s3.bucket import KERNEL, Bucket
from tests.unit.store.bench import noise

NOW = 1_800_000_000
SAME = noise(180_000, 1)


@pytest.fixture
def bucket(url: str, settings: StoreSettings, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Three generations that share half of what they hold."""
    monkeypatch.setattr(waste, "SAVED_FLOOR", 0)
    made = Bucket(url, settings, endpoint, tmp_path)
    for number in (2, 3, 4):
        made.publish({"same": SAME, "a": noise(180_000, number)})
    return made


def test_retired_condemned_gone(bucket: Bucket) -> None:
    repository = bucket.repository
    before = bucket.objects()
    gone = [Generation(1), Generation(2)]
    said = repository.collect(KERNEL, gone=gone, now=NOW, dry_run=True)
    assert bucket.objects() == before
    first = repository.collect(KERNEL, gone=gone, now=NOW)
    assert first.retired == said.retired == [1, 2]
    assert not first.removed
    assert before <= bucket.objects(), "somebody may be reading it"
    assert repository.collect(KERNEL, now=NOW + 3600).bytes_removed > 180_000
    assert repository.usage(KERNEL).stored < 500_000
    assert repository.verify().ok
    assert bucket.fetch(3) == {"same": SAME, "a": noise(180_000, 4)}
    assert not any("/manifests/1-" in name or "/manifests/2-" in name for name in bucket.objects())
