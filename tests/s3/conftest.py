"""A server, a proxy in front of it, and a repository that is reached through the proxy."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from perdure.store import pack, retry
from perdure.store.settings import StoreSettings

from tests.s3 import served
from tests.s3.proxy import Proxy, in_front_of


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """A server with nothing in it."""
    with served.serving() as endpoint, pytest.MonkeyPatch.context() as patch:
        for name, value in served.ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.delenv("AWS_PROFILE", raising=False)
        yield endpoint


@pytest.fixture
def proxy(endpoint: str) -> Iterator[Proxy]:
    with in_front_of(endpoint) as proxy:
        yield proxy


@pytest.fixture
def url(endpoint: str) -> str:
    """A place in a bucket of its own."""
    return f"s3://{served.make_bucket(endpoint, f'test-{secrets.token_hex(6)}')}/team/perdure"


@pytest.fixture
def settings(proxy: Proxy) -> StoreSettings:
    """Through the proxy; silence is noticed soon."""
    return served.settings(proxy.endpoint, timeout_s=1)


@pytest.fixture(autouse=True)
def small_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several packs from little data, and short pauses before another attempt."""
    monkeypatch.setattr(pack, "FULL", 100_000)
    monkeypatch.setattr(retry, "_LONGEST_S", 0.01)
