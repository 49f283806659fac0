"""What networks and servers do, at every request of a publish, a fetch, a verify and a drop."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from perdure.domain.errors import Conflict, PerdureError, StoreAway, StoreFailed
from perdure.store import retry
from perdure.store.settings import StoreSettings

from tests.s3.bucket import KERNEL, Bucket
from tests.s3.proxy import Fault, Proxy, answer, cut_answer, lost_answer, no_connection, silence, torn_upload
from tests.unit.store.bench import noise

OLD = {"a": noise(150_000, 1), "same": noise(250_000, 2)}
NEW = {"a": noise(250_000, 3), "same": OLD["same"], "z": bytes(100_000)}

IN_A_ROW: dict[str, list[Fault]] = {
    "network": [no_connection, lost_answer, cut_answer, torn_upload],
    "server": [answer(500, "InternalError"), answer(503, "SlowDown"), answer(409, "ConditionalRequestConflict")],
}


@pytest.fixture
def bucket(url: str, settings: StoreSettings, endpoint: str, tmp_path: Path) -> Bucket:
    return Bucket(url, settings, endpoint, tmp_path)


def test_a_snapshots_life(bucket: Bucket) -> None:
    assert bucket.publish(OLD).generation == 1
    assert bucket.publish(NEW).generation == 2
    assert bucket.repository.kernels() == [KERNEL]
    assert bucket.fetch(1) == OLD
    assert bucket.fetch(2) == NEW
    assert bucket.repository.verify().ok
    assert bucket.litter() == set()
    bucket.repository.drop(KERNEL)
    assert bucket.objects() == {"repository"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(IN_A_ROW))
def test_faults_at_every_request(bucket: Bucket, proxy: Proxy, name: str) -> None:
    """One after the other, they are waited out, wherever they come: all is stored, and nothing twice."""
    first = bucket.at("0")
    first.publish(OLD)
    calls: list[Callable[[Bucket], object]] = [
        lambda one: one.publish(NEW),
        lambda one: one.fetch(one.repository.generations(KERNEL)[-1]),
        lambda one: one.repository.verify(),
    ]
    requests = 0
    for call in calls:
        start = len(proxy.seen)
        call(first)
        requests = max(requests, len(proxy.seen) - start)
    assert requests > 10
    for number in range(requests):
        one = bucket.at(str(number + 1))
        one.publish(OLD)
        for call in calls:
            proxy.fail_at(number, *IN_A_ROW[name])
            call(one)
            proxy.faults = []
        assert one.repository.generations(KERNEL) == [1, 2]
        assert one.fetch(1) == OLD
        assert one.fetch(2) == NEW
        assert one.litter() == set(), number


def test_silence_is_noticed(bucket: Bucket, proxy: Proxy) -> None:
    bucket.publish(OLD)
    for method, path in (("GET", "head"), ("PUT", "head"), ("PUT", "packs"), ("PUT", "manifests")):
        proxy.fail(silence, method=method, path=path)
    assert bucket.publish(NEW).generation == 2
    assert proxy.faults == []
    assert bucket.fetch(2) == NEW


def test_every_answer_to_every_put_is_lost(bucket: Bucket, proxy: Proxy) -> None:
    """Each conditional put finds its own first attempt in the way, and knows it."""
    proxy.fail(lost_answer, method="PUT", times=1)
    bucket.publish(OLD)
    before = [line for line in proxy.seen if line.startswith("PUT")]
    for _ in range(len(before)):
        proxy.fail(lost_answer, method="PUT")
        assert bucket.publish(NEW).generation > 1
        assert proxy.faults == []
    assert bucket.repository.verify().ok
    assert bucket.litter() == set()


def test_an_outage_that_lasts(bucket: Bucket, proxy: Proxy) -> None:
    """Said in one sentence; nothing is lost, and it goes on when it is over."""
    bucket.publish(OLD)
    proxy.fail(answer(503, "SlowDown"), method="PUT", path="packs", times=retry.ATTEMPTS)
    with pytest.raises(StoreAway):
        bucket.publish(NEW)
    assert proxy.faults == []
    assert bucket.repository.generations(KERNEL) == [1]
    assert bucket.litter() == set()
    assert bucket.publish(NEW).generation == 3
    assert bucket.fetch(1) == OLD


def test_a_head_whose_fate_is_unknown_keeps_its_objects(bucket: Bucket, proxy: Proxy) -> None:
    """All answers to the last put of a publish are lost: it fails, but what it may have published is not removed."""
    bucket.publish(OLD)
    start = len(proxy.seen)

    def second_head(_: object) -> bool:
        heads = [line for line in proxy.seen[start:] if line.startswith("PUT") and line.endswith("/head")]
        return len(heads) > 1 and proxy.seen[-1] == heads[-1]

    proxy.faults = [(second_head, lost_answer), *[(second_head, answer(500, "InternalError"))] * retry.ATTEMPTS]
    with pytest.raises(StoreAway):
        bucket.publish(NEW)
    proxy.faults = []
    assert bucket.repository.generations(KERNEL) == [1, 2]
    assert bucket.fetch(2) == NEW


def test_overtaken_while_the_answer_was_lost(bucket: Bucket, proxy: Proxy) -> None:
    """Published, its answer lost, and another publish came at once: `Conflict` would lie, and remove what is published."""
    bucket.publish(OLD)
    heads = 0

    def overtaken(handler: object, request: object) -> None:
        handler.forward(request)  # type: ignore[attr-defined]
        Bucket(bucket.url, bucket.settings, bucket.url, bucket.folder / "other").publish(OLD)
        handler.hang_up()  # type: ignore[attr-defined]

    def second_head(request: object) -> bool:
        nonlocal heads
        if getattr(request, "method", "") == "PUT" and getattr(request, "path", "").endswith("/head"):
            heads += 1
        return heads == 2

    (bucket.folder / "other").mkdir()
    proxy.faults = [(second_head, overtaken)]
    with pytest.raises(StoreAway):
        bucket.publish(NEW)
    assert bucket.repository.generations(KERNEL) == [1, 2, 3]
    assert bucket.fetch(2) == NEW
    assert bucket.repository.verify().ok


def refused(call: Callable[[], object]) -> StoreFailed | None:
    """The error of a call, if it has one."""
    try:
        call()
    except StoreFailed as error:
        return error
    return None


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (answer(400, "ExpiredToken"), "expired"),
        (answer(403, "InvalidAccessKeyId"), "credentials"),
        (answer(403, "AccessDenied"), "permission"),
        (answer(400, "AuthorizationHeaderMalformed"), "region"),
    ],
)
def test_refused_at_any_request(bucket: Bucket, proxy: Proxy, fault: Fault, words: str) -> None:
    """One sentence that names the cause, a hint, nothing lost, nothing tried twice; and it goes on when the cause is gone."""
    bucket.publish(OLD)
    bucket.publish(NEW)
    attempts = 0
    while True:
        attempts += 1
        start = len(proxy.seen)
        proxy.fail_at(attempts, *[fault] * 50)
        refusal = refused(lambda: bucket.publish(OLD))
        met, proxy.faults = 50 - len(proxy.faults), []
        if refusal is None:
            break
        assert words in refusal.sentence
        assert refusal.hint
        assert not isinstance(refusal, (StoreAway, Conflict))
        assert met <= 12, proxy.seen[start:]  # the withdrawal is tried, and HEAD, whose answer can't say why, asked again as GET
        assert bucket.fetch(2) == NEW
    assert attempts > 8
    assert bucket.litter() == set()


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_off(bucket: Bucket, proxy: Proxy, hours: int) -> None:
    bucket.publish(OLD)
    proxy.ahead = timedelta(hours=hours)
    with pytest.raises(StoreFailed) as caught:
        bucket.publish(NEW)
    assert "60 minutes" in caught.value.sentence
    proxy.ahead = timedelta(0)
    assert bucket.publish(NEW).generation == 2


def test_a_store_that_ignores_conditions(bucket: Bucket, proxy: Proxy) -> None:
    """Refused at the start, and nothing is left there."""
    proxy.drop_conditions = True
    with pytest.raises(StoreFailed) as caught:
        bucket.publish(OLD)
    assert "conditional" in caught.value.sentence
    assert bucket.objects() == set()


def test_a_store_that_knows_no_conditions(bucket: Bucket, proxy: Proxy) -> None:
    proxy.faults = [(lambda request: request.conditional, answer(501, "NotImplemented"))] * 50
    with pytest.raises(StoreFailed) as caught:
        bucket.publish(OLD)
    assert "conditional" in caught.value.sentence
    assert not isinstance(caught.value, StoreAway)
    proxy.faults = []
    assert bucket.objects() == set()


def test_no_such_bucket(bucket: Bucket) -> None:
    bucket.url = "s3://not-there-at-all/x"
    with pytest.raises(StoreFailed) as caught:
        bucket.publish(OLD)
    assert "bucket" in caught.value.sentence
    assert "not-there-at-all" in caught.value.sentence


def test_no_credentials(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreFailed) as caught:
        bucket.publish(OLD)
    assert "credentials" in caught.value.sentence
    monkeypatch.undo()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        assert bucket.publish(OLD).generation == 1


def test_reading_needs_no_right_to_write(bucket: Bucket, proxy: Proxy) -> None:
    bucket.publish(OLD)
    fresh = Bucket(bucket.url, StoreSettings(**{**vars(bucket.settings), "s3_concurrency": 3}), bucket.url, bucket.folder)
    proxy.fail(answer(403, "AccessDenied"), method="PUT", times=50)
    proxy.fail(answer(403, "AccessDenied"), method="DELETE", times=50)
    assert fresh.fetch(1) == OLD
    assert fresh.repository.verify().ok
    with pytest.raises(PerdureError):
        fresh.publish(NEW)
