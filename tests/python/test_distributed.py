"""On two Gloo ranks, DistributedDataParallel and FSDP2 give the gradients of one rank; sharded models are saved whole."""

import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import headroom_torch as ht

RANKS = 2


def model():
    return ht.LanguageModel(vocabulary_size=256, n_layers=2, d_model=24, context_length=16, seed=3,
                            attention=dict(n_heads=2, d_head=8, projection="experts", n_experts=4, top_k=2),
                            mlp=dict(d_hidden=32))


def batch():
    return torch.randint(50, (4, 11), generator=torch.Generator().manual_seed(0))


def loss_of(module, text):
    logits = module(text[:, :-1])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def expected():
    whole = model()
    loss_of(whole, batch()).backward()
    return {name: p.grad for name, p in whole.named_parameters()}


def work(rank, store, way):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, init_method=f"file://{store}")
    mine = batch()[2 * rank:2 * rank + 2]
    module = model()
    if way == "ddp":
        wrapped = DistributedDataParallel(module)
    else:
        mesh = init_device_mesh("cpu", (RANKS,))
        for block in module.blocks:
            fully_shard(block, mesh=mesh)
        wrapped = fully_shard(module, mesh=mesh)
        assert all(p.to_local().numel() < p.numel() for p in module.parameters())
    loss_of(wrapped, mine).backward()
    for name, gradient in expected().items():
        mean = module.get_parameter(name).grad
        mean = mean if way == "ddp" else mean.full_tensor()
        torch.testing.assert_close(mean, gradient, atol=1e-6, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}")
    if way == "fsdp2":
        module.save_checkpoint(f"{store}.safetensors", tokenizer=ht.Tokenizer.bytes())
        dist.barrier()
        saved = ht.LanguageModel.from_checkpoint(f"{store}.safetensors").state_dict()
        assert all(torch.equal(saved[name], value) for name, value in model().state_dict().items())
    dist.destroy_process_group()
    os._exit(0)  # Gloo's threads may still release tensors; in an interpreter that is shutting down, that aborts


@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_two_ranks_have_the_gradients_of_one(way, tmp_path):
    mp.spawn(work, (tmp_path / "store", way), nprocs=RANKS)
