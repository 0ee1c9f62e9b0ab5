"""Trains a language model with FSDP2 on several ranks, and saves a distributed checkpoint and a Headroom checkpoint.

    torchrun --nproc-per-node 2 examples/fsdp2.py --checkpoint checkpoint --save sharded.safetensors
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import headroom_torch


def make_model(mesh, seed):
    model = headroom_torch.LanguageModel(
        vocabulary_size=256, n_layers=2, d_model=64, context_length=32, seed=seed,
        attention=dict(n_heads=2, d_head=16, projection="experts", n_experts=4, top_k=2), mlp=dict(d_hidden=128))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main(folder, steps, save):
    dist.init_process_group("gloo")
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (dist.get_world_size(),))
    text = torch.tensor(list(open(__file__, "rb").read()))
    model = make_model(mesh, seed=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draw = torch.Generator().manual_seed(rank)  # each rank reads different parts of the text
    for _ in range(steps):
        begin = torch.randint(len(text) - 33, (8,), generator=draw)
        batch = torch.stack([text[i:i + 33] for i in begin])
        loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dcp.save(get_model_state_dict(model), checkpoint_id=folder)
    if save:  # all ranks gather, rank 0 writes
        model.save_checkpoint(save, tokenizer=headroom_torch.Tokenizer.bytes())

    again = make_model(mesh, seed=2)
    state = get_model_state_dict(again)
    dcp.load(state, checkpoint_id=folder)
    set_model_state_dict(again, state)
    same = torch.equal(model(batch[:, :-1]), again(batch[:, :-1]))
    if rank == 0:
        print(f"{dist.get_world_size()} processes, loss {loss:.2f} after {steps} steps; "
              f"the checkpoint gives {'the same' if same else 'ANOTHER'} model")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save", help="Headroom checkpoint to write")
    arguments = parser.parse_args()
    main(arguments.checkpoint, arguments.steps, arguments.save)
    # Gloo's threads may still release tensors, and PyTorch aborts if the interpreter is finalized then (its issue 190489).
    sys.stdout.flush()
    os._exit(0)
