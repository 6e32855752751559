"""What a trial's process says of its failure, and whether another attempt is worth it."""

import json
import os

import pytest

from harness.errors import Diverged, UserError
from harness.executors.worker import FAILED, REFUSED, Pipe, _failed


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (Diverged("qmix: loss td is NaN at env step 12,345"), REFUSED, "qmix: loss td is NaN at env step 12,345"),
        (UserError("no such engine here"), REFUSED, "no such engine here"),
        (ValueError("the sky is\nfalling"), FAILED, "ValueError: the sky is falling"),
    ],
)
def test_a_failure_whose_line_says_all_is_final(error: Exception, code: int, reason: str) -> None:
    """The runner tries again what ends with FAILED, and nothing that ends with REFUSED."""
    ours, theirs = os.pipe()
    try:
        assert _failed({}, error, Pipe(theirs)) == code
        assert json.loads(os.read(ours, 65536))["reason"] == reason
    finally:
        os.close(ours)
        os.close(theirs)
