"""A10: objects that are half-way through something: generators, decompressors, hashes, random numbers."""

from __future__ import annotations

import pytest
from live_kernel import LiveKernel

pytestmark = [pytest.mark.criu, pytest.mark.root]


def test_objects_go_on_where_they_were(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import bz2, hashlib, itertools, lzma, os, zlib\n"
        "base = int.from_bytes(os.urandom(4)); words = os.urandom(1 << 16)\n"
        "def squares():\n"
        "    for n in itertools.count():\n"
        "        yield base + n * n\n"
        "half = squares(); [next(half) for _ in range(10)]; expected = (base + n * n for n in itertools.count(10))\n"
        "packed = {module: module.compress(words) for module in (bz2, lzma, zlib)}\n"
        "openers = {bz2: bz2.BZ2Decompressor, lzma: lzma.LZMADecompressor, zlib: zlib.decompressobj}\n"
        "def begin():\n"
        "    global opened, digest\n"
        "    opened = {module: (one := openers[module](), one.decompress(data[:30000])) for module, data in packed.items()}\n"
        "    digest = hashlib.sha256(words[:1000])\n"
        "def finish(module):\n"
        "    opener, first = opened[module]; return first + opener.decompress(packed[module][30000:]) == words\n"
        "begin()"
    )

    def check() -> None:
        assert kernel.run("next(half) == next(expected), [finish(module) for module in packed]") == "(True, [True, True, True])"
        assert kernel.run("digest.update(words[1000:]); digest.digest() == hashlib.sha256(words).digest()") == "True"
        kernel.run("begin()")

    survives(check, lambda: kernel.run("next(half); next(expected); digest.update(b'x'); finish(zlib)"))


def test_random_numbers_continue(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import random, numpy as np, torch\n"
        "generator = np.random.default_rng(); torch_generator = torch.Generator(); torch_generator.seed()\n"
        "def draw():\n"
        "    return (random.random(), float(np.random.rand()), float(torch.rand(1)), float(generator.random()),\n"
        "        float(torch.rand(1, generator=torch_generator)))\n"
        "def peek():\n"
        "    states = (random.getstate(), np.random.get_state(), torch.get_rng_state(), generator.bit_generator.state,\n"
        "        torch_generator.get_state())\n"
        "    drawn = draw()\n"
        "    random.setstate(states[0]); np.random.set_state(states[1]); torch.set_rng_state(states[2])\n"
        "    generator.bit_generator.state = states[3]; torch_generator.set_state(states[4])\n"
        "    return drawn\n"
        "draw()"
    )
    expected = [kernel.run("peek()")]

    def check() -> None:
        assert kernel.run("draw()") == expected[0]
        expected[0] = kernel.run("peek()")

    survives(check, lambda: kernel.run("draw()"))
