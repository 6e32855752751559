"""Scalars out of TensorBoard's event files, without TensorBoard.

A file is a sequence of records: length (uint64), its checksum (uint32), that many bytes, their checksum (uint32). The
bytes are a protocol buffer ``Event``: step is field 2, summary field 5; of a summary field 1 are values; of a value tag
is field 1, simple_value field 2 (float32), tensor field 8 (dtype 1, float_val 5, double_val 6, content 4).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from harness.errors import UserError

FLOAT, DOUBLE = 1, 2
"""``DataType`` of a tensor."""


def scalars(path: Path) -> Iterator[tuple[str, int, float]]:
    """(tag, step, value) in the order of the file, without a record cut off at the end; ``UserError`` when damaged."""
    try:
        for record in _records(path.read_bytes()):
            yield from _event(record)
    except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
        raise UserError(f"{path}: not an event file of TensorBoard, or damaged ({error})") from error


def _records(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if at + 16 + length > len(data):
            return
        yield data[at + 12 : at + 12 + length]
        at += 16 + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of a message: an int for a varint, else the raw bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        yield number, data[at : at + size]
        at += size


def _event(record: bytes) -> Iterator[tuple[str, int, float]]:
    step, summaries = 0, []
    for number, value in _fields(record):
        if number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in _fields(summary):
            if number == 1 and isinstance(value, bytes):
                tag, scalar = _value(value)
                if scalar is not None:
                    yield tag, step, scalar


def _value(data: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, value in _fields(data):
        if isinstance(value, bytes):
            if number == 1:
                tag = value.decode()
            elif number == 2:
                scalar = float(struct.unpack("<f", value)[0])
            elif number == 8:
                scalar = _tensor(value)
    return tag, scalar


def _tensor(data: bytes) -> float | None:
    """A tensor of one float; None for any other."""
    kind, content = 0, b""
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes):
            content = value
    form = {FLOAT: "<f", DOUBLE: "<d"}.get(kind)
    if form is None or len(content) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, content)[0])
