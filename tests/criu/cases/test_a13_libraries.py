"""A13: a model in training, a fitted estimator, Arrow, polars, DuckDB: the next step is the same as without a death."""

from __future__ import annotations

import pytest
from live_kernel import LiveKernel

pytestmark = [pytest.mark.criu, pytest.mark.root]


def test_a_model_in_training(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import copy, torch, torch.nn as nn\n"
        "torch.set_num_threads(1)\n"
        "model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))\n"
        "x, y = torch.randn(64, 256), torch.randn(64, 1)\n"
        "optimizer = torch.optim.AdamW(model.parameters(), 1e-3)\n"
        "def step():\n"
        "    optimizer.zero_grad(); loss = ((model(x) - y) ** 2).mean(); loss.backward(); optimizer.step(); return loss.item()\n"
        "def peek():\n"
        "    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict())); losses = [step() for _ in range(3)]\n"
        "    model.load_state_dict(saved[0]); optimizer.load_state_dict(saved[1]); return losses\n"
        "[step() for _ in range(5)]"
    )
    expected = [kernel.run("peek()")]

    def check() -> None:
        assert kernel.run("[step() for _ in range(3)]") == expected[0]
        assert kernel.run("optimizer.param_groups[0]['params'][0] is model[0].weight") == "True"
        expected[0] = kernel.run("peek()")

    survives(check, lambda: kernel.run("step()"))


def test_a_fitted_estimator(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import numpy as np; from sklearn.ensemble import RandomForestClassifier\n"
        "rng = np.random.default_rng(); x = rng.random((500, 8)); y = (x.sum(axis=1) > 4).astype(int)\n"
        "forest = RandomForestClassifier(20, n_jobs=1).fit(x, y); guess = lambda: forest.predict_proba(x).sum(axis=0).tolist()"
    )
    expected = kernel.run("guess()")

    def check() -> None:
        assert kernel.run("guess()") == expected

    survives(check, lambda: kernel.run("forest.fit(x[:50], y[:50])"))
    assert float(kernel.run("forest.fit(x, y).score(x, y)")) > 0.9


def test_tables_of_other_libraries(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import duckdb, numpy as np, pandas as pd, polars as pl, pyarrow as pa\n"
        "rng = np.random.default_rng(); numbers = rng.integers(0, 100, 200_000)\n"
        "arrow = pd.DataFrame({'n': pd.array(numbers, dtype='int64[pyarrow]'),\n"
        "    's': pd.array(['x' * (n % 5) for n in numbers], dtype='string[pyarrow]')})\n"
        "lazy = pl.DataFrame({'n': numbers}).lazy().filter(pl.col('n') > 50).group_by('n').len().sort('n')\n"
        "base = duckdb.connect(); base.execute('create table t as select * from arrow'); base.execute('begin')\n"
        "base.execute('insert into t values (1000, ?)', ['mine'])\n"
        "def facts():\n"
        "    lengths = lazy.collect().to_dict(as_series=False)['len'][:5]\n"
        "    return (int(arrow['n'].sum()), int(arrow['s'].str.len().sum()), lengths,\n"
        "        base.execute('select count(*), sum(n), max(n) from t').fetchone())"
    )
    expected = kernel.run("facts()")

    def check() -> None:
        assert kernel.run("facts()") == expected

    survives(check, lambda: kernel.run("base.execute('rollback'); base.execute('begin')"))
    kernel.run("base.execute('rollback')")
    assert kernel.run("base.execute('select count(*) from t').fetchone()[0]") == "200000"
