"""The main job, as a person sees it: a notebook page goes on after `kill -9` of its kernel."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.ui.lab import Lab, until
from tests.ui.page import READY_MS, NotebookPage

DEMO = Path(__file__).parents[2] / "binder" / "demo.ipynb"
pytestmark = [pytest.mark.browser, pytest.mark.slow]
WORK = """\
import itertools
import math
primes = (n for n in itertools.count(2) if all(n % d for d in range(2, math.isqrt(n) + 1)))
seen = [next(primes) for _ in range(5)]
table = {n: n * n for n in range(100_000)}
print("sum", sum(table.values()), seen)"""
GO_ON = """\
print("next prime", next(primes), "sum", sum(table.values()))"""
LONG = """\
import time
for tick in range(40):
    print("tick", tick, flush=True)
    time.sleep(0.25)
print("last tick", tick)"""


@pytest.mark.criu
def test_page_goes_on_after_kill(lab: Lab, page: Page, pictures: Path) -> None:
    lab.notebook("work.ipynb", [WORK, GO_ON, GO_ON])
    notebook = NotebookPage(page, lab.page_of("work.ipynb"))
    notebook.run(0)
    notebook.expect_output(0, "sum 333328333350000 [2, 3, 5, 7, 11]")
    kernel = lab.kernel_of("work.ipynb")
    taken = lab.snapshot(kernel)
    expect(notebook.pill).to_contain_text("Protected ·", timeout=READY_MS)
    notebook.picture(pictures, "before-kill")

    lab.kill_tree(kernel)
    notebook.run(1)
    notebook.expect_output(1, "next prime 13 sum 333328333350000")
    notebook.expect_count(1, 2)
    notebook.picture(pictures, "after-kill")
    expect(notebook.pill).to_contain_text("Protected ·", timeout=READY_MS)
    assert lab.kernel_of("work.ipynb") == kernel
    expect(notebook.notifications.filter(has_text="work.ipynb")).to_have_count(1, timeout=READY_MS)
    [restore] = lab.perdure("show", kernel)["restores"]
    assert restore["generation"] == taken["generation"]

    lab.snapshot(kernel)
    lab.kill_tree(kernel)
    notebook.run(2)
    notebook.expect_output(2, "next prime 17 sum 333328333350000")
    until("both comebacks are told", lambda: len(lab.perdure("show", kernel)["restores"]) == 2)
    expect(notebook.notifications).to_have_count(1)
    assert notebook.dialogs == []
    assert notebook.errors == []


@pytest.mark.criu
def test_running_cell_ends_after_kill(lab: Lab, page: Page) -> None:
    lab.notebook("long.ipynb", [LONG, "print('after', tick)"])
    notebook = NotebookPage(page, lab.page_of("long.ipynb"))
    notebook.run(0)
    notebook.expect_output(0, "tick 3")
    kernel = lab.kernel_of("long.ipynb")
    assert lab.snapshot(kernel)["busy"] is True
    lab.kill_tree(kernel)
    notebook.expect_output(0, "last tick 39")
    notebook.expect_count(0, 1)
    notebook.run(1)
    notebook.expect_output(1, "after 39")
    assert notebook.dialogs == []


@pytest.mark.criu
def test_restore_button_goes_back(lab: Lab, page: Page) -> None:
    lab.notebook(
        "back.ipynb",
        ["value = 'old'\nprint('value is', value)", "value = 'new'\nprint('value is', value)", "print('now', value)"],
    )
    notebook = NotebookPage(page, lab.page_of("back.ipynb"))
    button = page.locator(".jp-NotebookPanel-toolbar").get_by_role("button", name="Restore kernel", exact=True)
    expect(button).to_be_visible(timeout=READY_MS)
    page.reload()
    notebook.wait_until_free()
    expect(button).to_be_visible(timeout=READY_MS)
    notebook.run(0)
    notebook.expect_output(0, "value is old")
    kernel = lab.kernel_of("back.ipynb")
    lab.snapshot(kernel)
    notebook.run(1)
    notebook.expect_output(1, "value is new")
    expect(button).to_be_enabled(timeout=READY_MS)
    button.click()
    page.locator(".jp-Dialog").get_by_role("button", name="Restore", exact=True).click()
    until("the restore is told", lambda: lab.perdure("show", kernel)["restores"])
    expect(notebook.pill).to_contain_text("Protected ·", timeout=READY_MS)
    notebook.run(2)
    notebook.expect_output(2, "now old")
    assert len(notebook.dialogs) == 1


def test_plain_kernel_has_no_pill(lab: Lab, page: Page) -> None:
    lab.notebook("plain.ipynb", ["print(6 * 7)"], kernel="python3")
    notebook = NotebookPage(page, lab.page_of("plain.ipynb"))
    notebook.run(0)
    notebook.expect_output(0, "42")
    expect(notebook.pill).to_be_hidden()
    assert notebook.errors == []


@pytest.mark.criu
def test_notebook_7_shows_the_pill_too(lab: Lab, page: Page) -> None:
    lab.notebook("seven.ipynb", ["print(6 * 7)"])
    page.goto(lab.page_of("seven.ipynb", "notebooks"))
    expect(page.locator(".perdure-Protection").first).to_contain_text("Protected ·", timeout=READY_MS)


def test_unprotected_kernel_works_and_says_why(unprotected: Lab, page: Page, pictures: Path) -> None:
    unprotected.notebook("bare.ipynb", ["print(6 * 7)"])
    notebook = NotebookPage(page, unprotected.page_of("bare.ipynb"))
    notebook.run(0)
    notebook.expect_output(0, "42")
    expect(notebook.pill).to_contain_text("Not protected: ", timeout=READY_MS)
    notebook.picture(pictures, "not-protected")
    assert notebook.dialogs == []


def test_binder_demo_says_that_it_is_unprotected(unprotected: Lab, page: Page) -> None:
    shutil.copy(DEMO, unprotected.files / "demo.ipynb")
    notebook = NotebookPage(page, unprotected.page_of("demo.ipynb"))
    expect(page.locator(".jp-MarkdownCell").first).to_contain_text("not protected")
    notebook.run(0)
    notebook.expect_output(0, "NOT protected")
    notebook.expect_output(0, "criu")
    notebook.run(1)
    notebook.expect_output(1, "[0, 1, 4, 9, 16]")


@pytest.fixture(scope="module")
def without_extension() -> Iterator[Lab]:
    extensions = {"perdure.jupyter.extension": False, "perdure": False}
    lab = Lab(config={"ServerApp": {"jpserver_extensions": extensions}})
    yield lab
    lab.close()


def test_server_without_our_extension_shows_nothing(without_extension: Lab, page: Page) -> None:
    without_extension.notebook("none.ipynb", ["print(6 * 7)"])
    notebook = NotebookPage(page, without_extension.page_of("none.ipynb"))
    notebook.run(0)
    notebook.expect_output(0, "42")
    expect(notebook.pill).to_be_hidden()
    assert notebook.dialogs == []
    assert notebook.errors == []
