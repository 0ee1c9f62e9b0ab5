"""The package's one dependency: torch of the minor version that is installed where it is built."""

from importlib.metadata import version

__all__ = ["dynamic_metadata"]


def dynamic_metadata(field, settings=None):
    assert field == "dependencies"
    major, minor, *_ = version("torch").split(".")
    return [f"torch=={major}.{minor}.*"]
