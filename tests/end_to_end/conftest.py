"""Fixtures for tests that run the built program from outside."""

import json
import os
import pathlib
import subprocess

import pytest

import serving
import train_runs


class Program:
    def __init__(self, cache):
        self.environment = {**os.environ, "HEADROOM_CACHE": str(cache)}

    def __call__(self, *arguments, status=0, **options):
        """Runs `headroom ARGUMENTS` and checks its exit status; returns the finished process."""
        done = subprocess.run([train_runs.program(), *map(str, arguments)], env=self.environment, text=True,
                              timeout=train_runs.PATIENCE, stdin=subprocess.DEVNULL, **{"capture_output": True, **options})
        assert done.returncode == status, f"status {done.returncode} of headroom {arguments}:\n{done.stderr}"
        return done

    def json(self, *arguments, status=0):
        """Returns the JSON document on stdout; checks that stdout has nothing else."""
        out = self(*arguments, "--json", status=status).stdout
        assert out.count("\n") == 1 and out.endswith("\n"), out
        return json.loads(out)

    def refusal(self, *arguments, status=2):
        """Returns the line on stderr of a user error; checks that it is the only output."""
        done = self(*arguments, status=status)
        assert done.stdout == ""
        assert done.stderr.startswith("headroom: ") and done.stderr.count("\n") == 1, done.stderr
        return done.stderr


@pytest.fixture(scope="session")
def headroom(tmp_path_factory):
    return Program(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Returns the config of a tiny model, with its corpus next to it."""
    return train_runs.prepare(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def trained(headroom, tiny):
    """Returns a run folder."""
    out = tiny.parent / "run"
    headroom("train", tiny, "--out", out, "--set", "train.steps=6", "--quiet")
    return out


@pytest.fixture(scope="session")
def served(headroom, tmp_path_factory):
    """Returns the run folders of language models, by name."""
    folder = tmp_path_factory.mktemp("served")
    return {"routed": serving.train(headroom, folder, "routed", *serving.ROUTED),
            "pieces": serving.train(headroom, folder, "pieces", *serving.PIECES)}


@pytest.fixture(scope="module")
def server(served):
    with serving.Server(served["routed"], served["pieces"]) as running:
        yield running


def pytest_sessionfinish(session, exitstatus):
    """Lets pytest succeed if all tests of a file are skipped because a package is missing."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


@pytest.fixture
def counts_as_built():
    """Keeps run.sh from building the program that other tests are running; returns the environment that selects its build."""
    build = pathlib.Path(train_runs.program()).parents[1]
    mark = build / "built"
    before = mark.stat() if mark.exists() else None
    if before is not None:
        mark.touch()
    yield {"HEADROOM_PRESET": build.name}
    if before is not None:
        os.utime(mark, ns=(before.st_atime_ns, before.st_mtime_ns))
