"""A browser, a server and a place for pictures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.machine import chromium
from tests.ui.lab import Lab

_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
          "--disable-component-update", "--disable-sync")  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(_FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_page(viewport={"width": 1280, "height": 800}) as page:
        yield page


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Beyond the first one, snapshots are taken when a test asks."""
    never = {"snapshot_interval_s": 0, "after_cell_work_s": 1e9, "after_cell_age_s": 1e9, "after_cell_growth_bytes": 1 << 60}
    lab = Lab(config={"PerdureProvisioner": never})
    yield lab
    lab.close()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """`make screenshots` names the folder that is committed."""
    return Path(os.environ.get("PERDURE_SCREENSHOTS") or tmp_path)


@pytest.fixture(scope="module")
def unprotected() -> Iterator[Lab]:
    """A server whose host has no CRIU."""
    lab = Lab(env={"PERDURE_CRIU": "/nonexistent/criu"})
    yield lab
    lab.close()
