"""Errors are ValueErrors with one sentence."""

import pytest


def assert_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence) as refusal:
        call()
    assert "\n" not in str(refusal.value)
