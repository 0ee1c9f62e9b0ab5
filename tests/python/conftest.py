"""Fixtures for tests that compare the package with the program."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

# The program's tests have helpers that these tests import.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "end_to_end"))
import train_runs  # noqa: E402


@pytest.fixture(scope="session")
def headroom(tmp_path_factory):
    """Runs `headroom ARGUMENTS --json`; returns the parsed output."""
    if "HEADROOM_PROGRAM" not in os.environ:
        pytest.skip("HEADROOM_PROGRAM does not name the program headroom")
    environment = {**os.environ, "HEADROOM_CACHE": str(tmp_path_factory.mktemp("cache"))}

    def run(*arguments):
        done = subprocess.run([os.environ["HEADROOM_PROGRAM"], *map(str, arguments), "--json"], env=environment,
                              capture_output=True, text=True, timeout=train_runs.PATIENCE, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run
