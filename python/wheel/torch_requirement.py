"""Provides the package's only dependency: torch of the minor version that is installed where the package is built."""

from importlib.metadata import version

__all__ = ["dynamic_metadata"]


def dynamic_metadata(field, settings=None):
    assert field == "dependencies"
    major, minor, *_ = version("torch").split(".")
    return [f"torch=={major}.{minor}.*"]
