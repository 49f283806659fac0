"""A notebook page as a person uses it."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Locator, Page, expect

READY_MS = 60_000
_RECORD_DIALOGS = """
window.dialogsSeen = [];
new MutationObserver(changes => {
  for (const change of changes)
    for (const node of change.addedNodes)
      if (node.nodeType === 1 && node.matches('.jp-Dialog')) window.dialogsSeen.push(node.textContent);
}).observe(document, { childList: true, subtree: true });
"""


class NotebookPage:
    """Remembers every dialog and every error of the page's own that ever showed."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.add_init_script(_RECORD_DIALOGS)
        page.goto(url)
        self.cell(0).locator(".cm-content").click(timeout=READY_MS)
        self.wait_until_free()

    def wait_until_free(self) -> None:
        """Before that a cell that is run is lost: the page has no connection to the kernel yet."""
        expect(self.page.locator("#jp-main-statusbar").get_by_text("| Idle")).to_be_visible(timeout=READY_MS)

    def cell(self, number: int) -> Locator:
        return self.page.locator(".jp-CodeCell").nth(number)

    def output(self, number: int) -> Locator:
        return self.cell(number).locator(".jp-Cell-outputArea")

    def run(self, number: int) -> None:
        self.cell(number).locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")

    def expect_output(self, number: int, text: str) -> None:
        expect(self.output(number)).to_contain_text(text, timeout=READY_MS)

    def expect_count(self, number: int, count: int) -> None:
        """The cell's prompt: it has ended and this was its execution count."""
        expect(self.cell(number).locator(".jp-InputArea-prompt")).to_have_text(f"[{count}]:", timeout=READY_MS)

    @property
    def pill(self) -> Locator:
        return self.page.locator(".jp-NotebookPanel-toolbar .perdure-Protection")

    @property
    def notifications(self) -> Locator:
        return self.page.locator(".jp-toast-message")

    @property
    def dialogs(self) -> list[str]:
        return list(self.page.evaluate("window.dialogsSeen"))

    def picture(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=folder / f"{name}.png")
