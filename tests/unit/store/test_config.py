"""Settings of a repository from configuration and environment."""

from __future__ import annotations

import pytest
from perdure.domain.errors import BadRequest
from perdure.store.config import settings_of
from perdure.store.settings import StoreSettings
from traitlets.config import Config


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in vars(StoreSettings()):
        monkeypatch.delenv(f"PERDURE_{name.upper()}", raising=False)


def test_nothing_set_is_the_defaults() -> None:
    assert settings_of(Config()) == StoreSettings()


def test_environment_and_configuration_which_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_S3_ENDPOINT", "http://from-environment")
    monkeypatch.setenv("PERDURE_S3_PATH_STYLE", "1")
    monkeypatch.setenv("PERDURE_S3_CONCURRENCY", "3")
    monkeypatch.setenv("PERDURE_S3_TIMEOUT_S", "2.5")
    found = settings_of(Config({"Store": {"s3_endpoint": "http://configured", "key_file": "/key"}}))
    assert found == StoreSettings(
        s3_endpoint="http://configured", s3_path_style=True, s3_concurrency=3, s3_timeout_s=2.5, key_file="/key"
    )


@pytest.mark.parametrize(
    ("name", "value"), [("S3_PATH_STYLE", "maybe"), ("S3_CONCURRENCY", "0"), ("S3_CONCURRENCY", "x"), ("S3_TIMEOUT_S", "-1")]
)
def test_a_wrong_value_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"PERDURE_{name}", value)
    with pytest.raises(BadRequest):
        settings_of(Config())


def test_a_wrong_configuration_is_refused() -> None:
    with pytest.raises(BadRequest):
        settings_of(Config({"Store": {"s3_concurrency": 0}}))
