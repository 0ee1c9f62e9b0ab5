"""Ranks of a distributed run, started as torchrun starts them."""

import json
import os
import subprocess
import sys

import torch.distributed as dist

import train_runs


class Group:
    """`n` ranks of the program with these arguments; this process hosts the store that torchrun would host.

    `more[rank]` are arguments of one rank alone, `before[rank]` is the command that it is started through.
    """

    def __init__(self, n, folder, *arguments, restarts=0, more=None, before=None):
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.ranks = [self._start(rank, n, folder, restarts, [*(before or {}).get(rank, []), train_runs.program(),
                                                              *arguments, *(more or {}).get(rank, [])])
                      for rank in range(n)]

    def _start(self, rank, n, folder, restarts, command):
        environment = {**train_runs.environment(folder), "RANK": str(rank), "WORLD_SIZE": str(n),
                       "LOCAL_WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.store.port),
                       "TORCHELASTIC_RESTART_COUNT": str(restarts)}
        return subprocess.Popen([*map(str, command)], env=environment, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(self):
        """Status, stdout and stderr of each rank."""
        ended = [(*rank.communicate(timeout=train_runs.PATIENCE), rank.returncode) for rank in self.ranks]
        return [(status, out, err) for out, err, status in ended]


def run(n, config, out, *more, status=0):
    """Trains on `n` ranks; returns the JSON of rank 0, or the stderr of all ranks if another status is expected."""
    ended = Group(n, config.parent, "train", config, "--out", out, "--json", *more).finish()
    stderr = "".join(err for _, _, err in ended)
    if status != 0:
        assert any(code == status for code, _, _ in ended), f"{[code for code, _, _ in ended]}:\n{stderr}"
        return stderr
    assert all(code == 0 for code, _, _ in ended), stderr
    assert all(out == "" for _, out, _ in ended[1:]), "only rank 0 prints"
    return json.loads(ended[0][1])


def torchrun(n, *options):
    """The first words of a command line that starts torchrun."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", str(n),
            *options]
