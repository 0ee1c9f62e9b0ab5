"""Trains a language model whose parameters, gradients and optimizer state FSDP2 shards over the ranks.

    torchrun --standalone --nproc-per-node 8 -m headroom_torch.train mine.toml --out runs/large

The engine reads the config and the data, decides when to validate, log and save, and writes the run folder. This module
computes: its class Trainer has the functions that src/training/train/loop/sharded.h calls.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import json
import os
import pathlib
import shlex
import shutil
import sys
import traceback

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from ._library import ops
from .models import LanguageModel
from .modules import _describe, _value, initial_values


class TrainedModel(LanguageModel):
    """A language model whose forward() returns losses, so that FSDP's hooks run."""

    def forward(self, tokens, targets, each=False):
        """The mean cross-entropy of targets [B, T] and the balance losses; each: the cross-entropy of each target instead."""
        h, _, balance = self._hidden(tokens, None, self.training, self.implementation, None)
        shared = self.embed if self._options["model.tied_embeddings"] else None
        loss = self.head(h, shared, targets=targets, each=each, implementation=self.implementation)
        return loss if each else (loss, sum(balance))


def local(tensor):
    """Returns the rows that this rank owns."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class Trainer:
    def __init__(self, compiled: bool, recompute: bool):
        self.compiled, self.recompute = compiled, recompute
        self.writing = None  # the future of a checkpoint that is being written
        self.saved = None    # the step of the last checkpoint

    def newest(self, values, tensors):
        self.folder = pathlib.Path(values["folder"])
        step = self.steps()[-1]
        return dict(step=step, metadata=json.loads((self.folder / f"step_{step}" / "run.json").read_text())), []

    def steps(self):
        return sorted(int(path.name[5:]) for path in self.folder.glob("step_*"))

    def open(self, values, tensors):
        self.config = {key: _value(text) for key, text in values["config"].items()}
        self.folder = pathlib.Path(values["folder"])
        self.connect()
        settings = [f"{key}={text}" for key, text in values["config"].items() if key.startswith("model.")]
        description = _describe("model", "train", None, settings)
        self.model = TrainedModel._made(description, initial_values(description, device="meta"))
        self.model.implementation = self.config["train.implementation"]
        self.shard()
        if values["step"] == 0:
            self.initialise(description, tensors)
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = torch.optim.AdamW(self.parameters.values(), betas=self.config["train.betas"], fused=True,
                                           eps=self.config["train.epsilon"], weight_decay=self.config["train.weight_decay"])
        for parameter in self.parameters.values():
            self.optimizer.state[parameter] = dict(step=torch.tensor(float(values["step"])),
                                                   exp_avg=torch.zeros_like(parameter), exp_avg_sq=torch.zeros_like(parameter))
        if values["step"] > 0:
            dcp.load(self.state(), checkpoint_id=self.folder / f"step_{values['step']}")
            self.saved = values["step"]
        return None, []

    def connect(self):
        self.rank, self.ranks, host, port, restarts = ops.launch()
        device = self.config["train.device"]
        cuda = device.startswith("cuda") or device == "auto" and torch.cuda.is_available()
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(self.device)
        store = dist.HashStore() if self.ranks == 1 else dist.TCPStore(host, port, is_master=False)
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", rank=self.rank, world_size=self.ranks,
                                store=dist.PrefixStore(f"headroom_torch/{restarts}", store),
                                timeout=datetime.timedelta(seconds=self.config["train.timeout"]))
        self.saving_group = dist.new_group(backend="gloo")

    def shard(self):
        mesh = init_device_mesh(self.device.type, (self.ranks,))
        narrow = self.config["train.precision"] == "bf16"
        policy = (MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32) if narrow
                  else MixedPrecisionPolicy())
        self.precision = (functools.partial(torch.autocast, self.device.type, torch.bfloat16) if narrow
                          else contextlib.nullcontext)
        for block in self.model.blocks:
            if self.compiled:
                block.forward = torch.compile(block.forward)
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(self.model, mesh=mesh)
        if self.recompute:
            self.model._checkpoint = functools.partial(checkpoint, use_reentrant=False)
        self.model.to_empty(device=self.device)

    def own(self, value):
        """Returns the rows of a whole parameter that FSDP gives to this rank."""
        chunks = value.chunk(self.ranks)
        return chunks[self.rank] if self.rank < len(chunks) else value[:0]

    @torch.no_grad()
    def initialise(self, description, initial):
        """Copies the initial values: whole tensors if given, otherwise random ones."""
        shards = ([self.own(value) for value in initial] or
                  ops.initial_shards(description, self.config["train.seed"], self.rank, self.ranks))
        for tensor, shard in zip(self.model._tensors(), shards, strict=True):
            local(tensor).copy_(shard)

    def step(self, values, tensors):
        config, micro_batches = self.config, values["micro_batches"]
        torch.manual_seed(hash((config["train.seed"], values["step"], self.rank)))
        parts = config["train.accumulate"]
        sums = torch.zeros(4, dtype=torch.float64)  # cross-entropy, regulariser, gradient norm, stop
        for tokens in (tensors[0].chunk(parts)[index].to(self.device) for index in micro_batches):
            with self.precision():
                cross_entropy, regulariser = self.model(tokens[:, :-1], tokens[:, 1:])
            # All micro-batches have as many targets. FSDP divides the sum of the ranks' gradients by their number.
            ((cross_entropy + regulariser) * (self.ranks / parts)).backward()
            sums[0] += cross_entropy.item() / parts
            sums[1] += float(regulariser) / parts
        sums[3] = values["stop"]
        dist.all_reduce(sums)
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        norm = sums[2] = float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        if sums.isfinite().all():
            if 0 < config["train.clip_norm"] < norm:
                torch._foreach_mul_([local(gradient) for gradient in gradients], config["train.clip_norm"] / norm)
            self.optimizer.param_groups[0]["lr"] = values["learning_rate"]
            self.optimizer.step()
        self.optimizer.zero_grad()
        if self.rank == 0 and self.writing and self.writing.done():
            self.finish_writing()
        return None, [sums]

    def losses(self, values, tensors):
        """Gives each rank the same number of rows of the batch; beyond the batch's end, the last row is repeated."""
        tokens, targets = tensors
        share = -(-len(tokens) // self.ranks)
        rows = torch.arange(self.rank * share, (self.rank + 1) * share).clamp(max=len(tokens) - 1)
        self.model.eval()
        with self.precision():
            losses = self.model(tokens[rows].to(self.device), targets[rows].to(self.device), each=True)
        self.model.train()
        self.model.reshard()  # parameters outside of blocks would otherwise stay whole until a backward pass
        mine = torch.zeros(targets[rows].shape)
        mine[targets[rows] >= 0] = losses.float().cpu()
        gathered = [torch.empty_like(mine) for _ in range(self.ranks)]
        dist.all_gather(gathered, mine)
        return None, [torch.cat(gathered)[:len(tokens)][targets >= 0]]

    def state(self):
        state = {parameter: self.optimizer.state[parameter] for parameter in self.parameters.values()}
        return {"model": self.parameters, "buffers": dict(self.model.named_buffers()),
                **{key: {name: state[parameter][key] for name, parameter in self.parameters.items()}
                   for key in ("exp_avg", "exp_avg_sq")}}

    def save(self, values, tensors):
        """Starts to write sharded/step_N, under a temporary name until it is complete."""
        if self.saved != values["step"]:
            self.finish_writing()
            self.saved, self.keep = values["step"], values["keep"]
            incoming = self.folder.with_suffix(".incoming")
            if self.rank == 0:
                shutil.rmtree(incoming, ignore_errors=True)
                incoming.mkdir()
                (incoming / "run.json").write_text(json.dumps(values["metadata"]))
            dist.barrier()
            self.writing = dcp.async_save(self.state(), checkpoint_id=incoming, process_group=self.saving_group)
        if values["wait"]:
            self.finish_writing()
        return None, []

    def finish_writing(self):
        if self.writing is None:
            return
        self.writing.result()  # on rank 0: all ranks have written
        self.writing = None
        if self.rank == 0:
            self.folder.mkdir(exist_ok=True)
            shutil.rmtree(self.folder / f"step_{self.saved}", ignore_errors=True)  # of a run that diverged from this one
            self.folder.with_suffix(".incoming").rename(self.folder / f"step_{self.saved}")
            for step in self.steps()[:-self.keep]:
                shutil.rmtree(self.folder / f"step_{step}")

    def shards(self, values, tensors):
        """Returns the parts of the engine's checkpoint that this rank owns: [name, first element] and values."""
        places, values = [], []
        for name, tensor in dict(self.model.named_parameters(), **dict(self.model.named_buffers())).items():
            state = self.optimizer.state.get(tensor, {})
            for key, value in (("model.", tensor), ("optimizer.m.", state.get("exp_avg")), ("optimizer.v.", state.get("exp_avg_sq"))):
                sharded = isinstance(value, DTensor)
                if value is not None and local(value).numel() > 0 and (sharded or self.rank == 0):
                    begin = self.rank * -(-len(value) // self.ranks) * value[:1].numel() if sharded else 0
                    places.append([key + name, begin])
                    values.append(local(value).detach().contiguous())
        return places, values


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m headroom_torch.train", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Train a language model whose parameters, gradients and optimizer state are sharded over the ranks "
                    "(FSDP2),\nand write a run folder that all commands of headroom read.",
        epilog="example:\n  torchrun --standalone --nproc-per-node 8 -m headroom_torch.train switchhead/wt103_47m \\\n"
               "    --out runs/large --set train.batch_size=64")
    parser.add_argument("config", metavar="CONFIG", help="TOML file or recipe, as for headroom train")
    parser.add_argument("--out", default="", metavar="DIR", help="run folder (default: runs/CONFIG)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key of the config; repeatable")
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint, on any number of ranks")
    parser.add_argument("--recompute", action="store_true",
                        help="store only the inputs of blocks, and compute their activations again in the backward pass")
    parser.add_argument("--compile", action="store_true", help="compile each block with torch.compile")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    trainer = Trainer(options.compile, options.recompute)

    def call(function, values, tensors):
        try:
            result, made = getattr(trainer, function)(json.loads(values), tensors)
        except Exception:
            traceback.print_exc()
            raise
        return json.dumps(result), made

    library = torch.library.Library("headroom", "IMPL")
    library.impl("sharded_call", call, "CompositeImplicitAutograd")
    command = shlex.join(["python", "-m", "headroom_torch.train", *sys.argv[1:]])
    return ops.train_sharded(options.config, options.out, options.set, options.resume, options.json, command)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # Gloo's threads may still release tensors, which aborts an interpreter that is shutting down
