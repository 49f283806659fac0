"""Implementations that the contract suites run over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from perdure.store.backend import Backend
from perdure.store.keys import Key, Keys
from perdure.store.local import LocalBackend
from perdure.store.retry import Retrying
from perdure.store.s3 import S3Backend
from perdure.store.s3probe import Proven
from perdure.store.seal import Sealed

from tests.s3 import served

Open = Callable[[Path, str], Backend]


def _local(folder: Path, endpoint: str) -> Backend:
    root = folder / "repository"
    root.mkdir(exist_ok=True)
    return LocalBackend(root)


def _s3(folder: Path, endpoint: str) -> Backend:
    return S3Backend("contract", f"below/{sha256(bytes(folder)).hexdigest()}", served.settings(endpoint))


def _proven(folder: Path, endpoint: str) -> Backend:
    aside = S3Backend("contract", f".probe/{sha256(bytes(folder)).hexdigest()}", served.settings(endpoint))
    return Proven(_s3(folder, endpoint), aside, str(folder))


def _sealed(below: Backend) -> Backend:
    return Sealed(below, Keys((Key(b"k" * 32),)), "0123456789abcdef" * 2)


BACKENDS: dict[str, Open] = {
    "local": _local,
    "local-retrying": lambda folder, endpoint: Retrying(_local(folder, endpoint)),
    "local-sealed": lambda folder, endpoint: _sealed(_local(folder, endpoint)),
    "s3": _s3,
    "s3-retrying": lambda folder, endpoint: Retrying(_s3(folder, endpoint)),
    "s3-proven": _proven,
    "s3-sealed": lambda folder, endpoint: _sealed(_s3(folder, endpoint)),
}
"""Each gives a backend on the same objects whenever it is called with the same folder."""


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """An S3 server with a bucket `contract`."""
    with served.serving() as endpoint, pytest.MonkeyPatch.context() as patch:
        for name, value in served.ENVIRONMENT.items():
            patch.setenv(name, value)
        served.make_bucket(endpoint, "contract")
        yield endpoint


@pytest.fixture(params=sorted(BACKENDS))
def open_backend(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Backend]:
    endpoint = request.getfixturevalue("endpoint") if request.param.startswith("s3") else ""
    return lambda: BACKENDS[request.param](tmp_path, endpoint)


@pytest.fixture
def backend(open_backend: Callable[[], Backend]) -> Backend:
    return open_backend()
