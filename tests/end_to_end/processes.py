"""Starts the ranks of a distributed run as torchrun, Slurm or a script does."""

import json
import socket
import subprocess
import sys

import torch.distributed as dist

import train_runs


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def script(rank, n, port):
    """Returns the variables that a user sets by hand."""
    return {"RANK": rank, "WORLD_SIZE": n, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def srun(rank, n, port):
    """Returns the variables of a Slurm job step on this machine."""
    return {"SLURM_PROCID": rank, "SLURM_NTASKS": n, "SLURM_STEP_ID": 0, "SLURM_JOB_ID": 7,
            "SLURM_JOB_NODELIST": "localhost", "MASTER_PORT": port}


class Group:
    """Starts `n` ranks of the program with these arguments.

    This process hosts the store that torchrun would host. With `launcher`, rank 0 hosts the store. `more[rank]` are
    additional arguments of one rank, `before[rank]` is a command that starts the rank.
    """

    def __init__(self, n, folder, *arguments, restarts=0, more=None, before=None, launcher=None):
        self.launcher = launcher
        if launcher:
            self.port = free_port()
        else:
            self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.ranks = [self._start(rank, n, folder, restarts, [*(before or {}).get(rank, []), train_runs.program(),
                                                              *arguments, *(more or {}).get(rank, [])])
                      for rank in range(n)]

    def _start(self, rank, n, folder, restarts, command):
        variables = self.launcher(rank, n, self.port) if self.launcher else {
            **script(rank, n, self.store.port), "LOCAL_WORLD_SIZE": n, "TORCHELASTIC_USE_AGENT_STORE": True,
            "TORCHELASTIC_RESTART_COUNT": restarts}
        environment = {**train_runs.environment(folder), **{name: str(value) for name, value in variables.items()}}
        return subprocess.Popen([*map(str, command)], env=environment, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(self):
        """Returns the status, stdout and stderr of each rank."""
        ended = [(*rank.communicate(timeout=train_runs.PATIENCE), rank.returncode) for rank in self.ranks]
        return [(status, out, err) for out, err, status in ended]

    def json(self):
        """Returns the JSON of rank 0; checks that all ranks succeed and the others print nothing."""
        ended = self.finish()
        assert [status for status, _, _ in ended] == [0] * len(ended), ended
        assert all(out == "" for _, out, _ in ended[1:]), "only rank 0 prints"
        return json.loads(ended[0][1])


def train(n, config, out, *more, **how):
    """Starts the ranks of a training run."""
    return Group(n, config.parent, "train", config, "--out", out, *more, **how)


def run(n, config, out, *more, **how):
    """Trains on `n` ranks; returns the JSON of rank 0."""
    return train(n, config, out, "--json", *more, **how).json()


def torchrun(n, *options):
    """Returns the beginning of a command line that starts torchrun."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", str(n),
            *options]
