"""Which repository a verb that works without the agent means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .app import PerdureApp

if TYPE_CHECKING:
    from perdure.store.repository import Repository
    from perdure.store.settings import StoreSettings

_STATE = "/var/lib/perdure"


def default_repository(uid: int) -> str:
    """Where an agent keeps the snapshots of a user who has chosen no repository; PERDURE_STATE moves it."""
    state = Path(os.environ.get("PERDURE_STATE") or _STATE)
    return (state / "repository" / str(uid)).absolute().as_uri()


def repository_url(app: PerdureApp) -> str:
    """The address that was given, a plain path made one; else the caller's default repository on this host."""
    given = app.repository
    if not given:
        return default_repository(os.geteuid())
    return given if "://" in given else Path(given).absolute().as_uri()


def store_settings(app: PerdureApp) -> StoreSettings:
    """How repositories are reached. Raises BadRequest."""
    from perdure.store.config import settings_of

    return settings_of(app.config)


def open_repository(app: PerdureApp) -> Repository:
    """The one that the verb means; it must be there. Raises BadRequest, StoreFailed, NewerFormat."""
    from perdure.store.repository import Repository

    return Repository.open(repository_url(app), create=False, settings=store_settings(app))
