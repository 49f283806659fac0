from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.engine.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    MalformedMessage,
    Message,
    read_varint,
    signed,
    varint,
    zigzag,
)

numbers = st.integers(1, (1 << 29) - 1)
fields = st.one_of(
    st.tuples(numbers, st.just(VARINT), st.integers(0, (1 << 64) - 1)),
    st.tuples(numbers, st.just(BYTES), st.binary(max_size=50)),
    st.tuples(numbers, st.just(FIXED64), st.binary(min_size=8, max_size=8)),
    st.tuples(numbers, st.just(FIXED32), st.binary(min_size=4, max_size=4)),
)


@given(st.lists(fields, max_size=20))
def test_what_is_encoded_is_parsed_again_in_order(entries: list[tuple[int, int, int | bytes]]) -> None:
    assert Message.parse(Message(entries).encode()).fields == entries


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    try:
        message = Message.parse(data)
    except MalformedMessage:
        return
    assert Message.parse(message.encode()).fields == message.fields


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_signed_numbers(value: int) -> None:
    assert signed(read_varint(varint(value), 0)[0]) == value
    assert zigzag(value << 1 if value >= 0 else (-value << 1) - 1) == value


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x08\x96\x01", [(1, VARINT, 150)]),
        (b"\x12\x07testing", [(2, BYTES, b"testing")]),
        (b"\x1a\x03\x08\x96\x01", [(3, BYTES, b"\x08\x96\x01")]),
    ],
)
def test_the_examples_of_the_format(data: bytes, expected: list[tuple[int, int, int | bytes]]) -> None:
    message = Message.parse(data)
    assert message.fields == expected
    assert message.encode() == data


def test_set_keeps_the_place_and_the_unknown() -> None:
    message = Message([(1, VARINT, 1), (9, BYTES, b"unknown"), (1, VARINT, 2), (3, VARINT, 4)])
    message.set(1, 7).set(5, "text").remove(3)
    assert message.fields == [(1, VARINT, 7), (9, BYTES, b"unknown"), (5, BYTES, b"text")]


def test_repeated_numbers_single_and_packed() -> None:
    assert Message([(4, VARINT, 1), (4, BYTES, varint(300) + varint(2))]).numbers(4) == [1, 300, 2]


def test_names_that_are_no_utf8_survive() -> None:
    name = b"caf\xe9"
    message = Message().set(6, name)
    assert Message().set(6, message.text(6)).blob(6) == name
