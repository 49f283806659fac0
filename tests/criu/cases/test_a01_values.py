"""A1: plain variables, aliases, a large DataFrame, an inline figure, what cells returned."""

from __future__ import annotations

import pytest
from live_kernel import LiveKernel

pytestmark = [pytest.mark.criu, pytest.mark.root]


def test_values_and_aliases(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import os; d = {'a': [1, 2], 'b': {3}}; alias = d['a']; big = 2**4000; text = 'hé' * 1000; token = os.urandom(16)"
    )
    token = kernel.run("token.hex()")
    kernel.run("'kept' * 2")
    number = kernel.run("print(max(Out))")

    def check() -> None:
        assert kernel.run("d, alias is d['a'], big == 2**4000, text == 'hé' * 1000") == (
            "({'a': [1, 2], 'b': {3}}, True, True, True)"
        )
        assert kernel.run("token.hex()") == token
        assert kernel.run(f"Out[{number}]") == "'keptkept'"
        assert kernel.run("\"'kept' * 2\" in In") == "True"

    survives(check, lambda: kernel.run("alias.append(9); d.clear(); token = b''; del text"))


def test_a_large_data_frame(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import numpy as np, pandas as pd\n"
        "n = 2_000_000; rng = np.random.default_rng()\n"
        "df = pd.DataFrame({'i': rng.integers(0, 1 << 40, n), 'f': rng.random(n), 'b': rng.random(n) < .5,\n"
        "    's': np.array(['alpha', 'beta', 'délta'], dtype=object)[rng.integers(0, 3, n)],\n"
        "    'c': pd.Categorical.from_codes(rng.integers(0, 3, n), ['lo', 'mid', 'hi']),\n"
        "    't': pd.to_datetime(rng.integers(1_500_000_000, 1_700_000_000, n), unit='s')})\n"
        "view = df['f'].to_numpy()[:10]\n"
        "facts = lambda: (int(pd.util.hash_pandas_object(df).sum()), [str(x) for x in df.dtypes], view.tolist())"
    )
    facts = kernel.run("facts()")

    def check() -> None:
        assert kernel.run("facts()") == facts

    survives(check, lambda: kernel.run("df['f'] += 1; df.loc[5, 's'] = 'x'"))


def test_an_inline_figure(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "%matplotlib inline\n"
        "import io, zlib, numpy as np, matplotlib.pyplot as plt\n"
        "fig, ax = plt.subplots(); line, = ax.plot(np.sin(np.arange(500) / 9)); plt.close(fig)\n"
        "def drawn():\n"
        "    file = io.BytesIO(); fig.savefig(file, format='png', metadata={'Software': None})\n"
        "    return zlib.crc32(file.getvalue())"
    )
    drawn = kernel.run("drawn()")

    def check() -> None:
        assert kernel.run("drawn(), line is ax.lines[0], ax.figure is fig") == f"({drawn}, True, True)"
        assert "Figure" in kernel.run("_ = plt.plot([3, 1, 2])")

    survives(check, lambda: kernel.run("line.set_ydata(np.zeros(500))"))
