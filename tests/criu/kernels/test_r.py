"""R: no Python in the process, a main loop of its own, silent on the control channel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from live_kernel import CellFailed, LiveKernel

pytestmark = [pytest.mark.criu, pytest.mark.root, pytest.mark.rkernel]


class RKernel(LiveKernel):
    """While a cell runs, `settle` waits for its end: R answers on the shell channel only."""

    def _ask(self) -> str:
        return str(self.client.kernel_info())


@pytest.fixture
def r(kernel_folder: Path) -> Iterator[RKernel]:
    folder = kernel_folder / "r"
    folder.mkdir()
    # R makes its own temporary folder, and leaves it when it is killed.
    temporary = ("env", f"TMPDIR={folder}")
    kernel = RKernel(folder, argv=(*temporary, "R", "--slave", "-e", "IRkernel::main()", "--args", "{connection_file}"))
    yield kernel
    kernel.close()


def test_values_survive(r: RKernel, survives, is_interrupted) -> None:  # type: ignore[no-untyped-def]
    r.run(
        "set.seed(NULL); frame <- data.frame(x = rnorm(1e5), g = factor(sample(c('lo', 'hi'), 1e5, TRUE)))\n"
        "fit <- lm(x ~ g, frame); counter <- local({ n <- 0; function() { n <<- n + 1; n } })\n"
        "facts <- function() cat(format(sum(frame$x), digits = 17), coef(fit), levels(frame$g), table(frame$g))\n"
        "file <- tempfile(); lines <- file(file, 'w+'); writeLines(c('one', 'two', 'three'), lines); readLines(lines, 1)\n"
        "peek <- function() { seed <- .Random.seed; x <- runif(3); assign('.Random.seed', seed, globalenv()); x }"
    )
    facts, draws, counted = r.run("facts()"), r.run("cat(peek())"), 0

    def check() -> None:
        nonlocal counted, draws
        counted += 1
        assert r.run("facts()") == facts
        assert r.run("cat(counter())") == str(counted)
        assert r.run("cat(runif(3))") == draws
        draws = r.run("cat(peek())")

    survives(r, check, lambda: r.run("frame$x <- 0; counter(); runif(1); rm(fit)"))
    assert r.run("cat(readLines(lines))") == "two three"
    is_interrupted(r, "cat('in\\n'); flush.console(); Sys.sleep(600)")
    cell = r.begin("cat(rep(readline('? '), 2), sep = '')", allow_stdin=True)
    assert r.client.get_stdin_msg(timeout=20)["content"]["prompt"] == "? "
    r.client.input("ab")
    assert r.finish(cell) == "abab"
    with pytest.raises(CellFailed):
        r.run("stop('wrong')")


def test_a_running_cell_goes_on(r: RKernel) -> None:
    cell = r.begin("cat('in\\n'); flush.console(); n <- 0; for (i in 1:40) { Sys.sleep(.1); n <- n + i }; cat(n)")
    r.follow(cell, lambda one: "in" in "".join(one.outputs))
    snapshot = r.snapshot()
    r.kill()
    assert cell.reply is None
    r.restore(snapshot)
    assert r.finish(cell).split() == ["in", "820"]
    assert r.run("cat(n)") == "820"


def test_a_forked_worker_survives(r: RKernel, survives) -> None:  # type: ignore[no-untyped-def]
    """R's parallel package forks without exec and reads the result from a pipe."""
    r.run("library(parallel); mine <- 7; forked <- mcparallel({ Sys.sleep(3); mine * 6 })")

    def check() -> None:
        assert r.run("cat(mccollect(forked)[[1]])") == "42"
        r.run("forked <- mcparallel({ Sys.sleep(3); mine * 6 })")

    survives(r, check, lambda: r.run("mine <- 0"))
