"""Assertions of the modules that the model test is made of are explained like those of a test."""

import pytest

pytest.register_assert_rewrite("machine", "model")
