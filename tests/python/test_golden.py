"""The golden cases of attention layers and expert MLPs, run through the modules: results and gradients."""

import json
import math
import pathlib

import pytest
import torch
from safetensors.torch import load_file

import headroom_torch as ht

CASES = pathlib.Path(__file__).resolve().parent.parent / "golden" / "cases"


def position(options, dims):
    if options.get("position") == "rope":
        rope = options["rope"]
        return dict(position="rope", rope_fraction=rope["channels"] / dims["d_head"], rope_base=rope["base"])
    if options.get("position") == "relative":
        return dict(position="relative", rope_base=options["relative"]["base"],
                    position_bias=bool(options.get("position_bias")))
    return dict(position="none")


def chosen(flags):
    return [name for name, on in flags.items() if on]


def dense(options, dims):
    return {}


def switchhead(options, dims):
    return dict(projection="experts", experts=chosen(options["experts"]), n_experts=dims["E"], top_k=dims["k"],
                shared_selection=options["shared_selection"], gate=options["gate"])


def moa(options, dims):
    return dict(projection="routed_heads", n_experts=dims["E"], n_heads=dims["k"], top_k=dims["k"], gate=options["gate"],
                **{f"{kind}_coefficient": options["losses"].get(kind, 0.0) if options["losses"] else 0.0
                   for kind in ("switch", "cv", "z")})


def dcmha(options, dims):
    fixed = options["base"] == "static"
    low_rank, gates = chosen(options["low_rank"]), chosen(options["gates"])
    return dict(composition="dynamic" if low_rank or gates else "static", compose=chosen(options["compose"]),
                compose_low_rank=low_rank, compose_gates=gates, compose_static=fixed and bool(low_rank or gates),
                compose_skip=not fixed, compose_rank=dims.get("R", 1), compose_groups=dims["G"],
                compose_activation={"gelu_tanh": "gelu_tanh"}.get(options["activation"], "gelu"),
                qk_norm=bool(options.get("qk_norm")))


def keys(options, dims):
    single = dims["K_mix"] == 1 and options["keys"] == "own"
    return dict(keys="single" if single else options["keys"], n_mixtures=dims["K_mix"], prior=options["prior"],
                prior_clamp=bool(options["prior_clamp"]))


def mgk(options, dims):
    coefficients = options["coefficients"]
    return dict(score="gaussian_mixture", mixture_score=options["score"], mixing=options["mixing"],
                prior_update=options["prior_update"], mixture_epsilon=options["epsilon"] or 0.0,
                **({"mixture_coefficients": [c * math.sqrt(dims["d_head"]) for c in coefficients]} if coefficients else {}),
                **keys(options, dims))


def linear(options, dims):
    given = {name: options[name] for name in ("feature_map", "normaliser", "score_scale", "output_scale")}
    return dict(score="linear", normaliser_epsilon=options["epsilon"] or 0.0, prior_update="gradient",
                linear_mixing=options["mixing_point"] or "after_map", **given, **keys(options, dims))


FAMILIES = [dense, switchhead, moa, dcmha, mgk, linear]


def attention(case, family):
    options, dims = case["options"], case["dims"]
    place = dict(d_model=dims["d_model"], d_head=dims["d_head"], n_layers=1, context_length=dims["T"],
                 memory_length=dims["M"], bias=bool(options.get("bias")))
    heads = dict(n_heads=dims["H"]) if "H" in dims else {}
    scale = dict(scale=options["scale"]) if options.get("scale") == "learned" else {}
    window = dict(window=options["window"]) if options.get("window") else {}
    return ht.Attention(causal=options["causal"], cross=bool(options.get("cross")), **place, **heads, **scale, **window,
                        **position(options, dims), **family(options, dims))


def expert_mlp(case):
    dims = case["dims"]
    return ht.MLP(d_model=dims["d_model"], n_layers=1, kind="experts", d_hidden=dims["d_expert"], n_experts=dims["E"],
                  top_k=dims["k"], activation=case["options"]["activation"])


def error(result, expected, floor=0.0):
    return float((result.detach() - expected).abs().max()) / max(float(expected.abs().max()), floor)


def names():
    everything = [path for family in FAMILIES for path in sorted((CASES / family.__name__).glob("*.json"))]
    everything += sorted((CASES / "expert_ffn").glob("*.json"))
    # Excluded: routers alone, given noise, soft-E priors (trained by the command only).
    return [path for path in everything if not path.stem.startswith("loss_") and path.stem != "self_noisy"
            and "soft_e" not in path.stem]


def inputs(case, tensors):
    options, x = case["options"], tensors["in.x"].requires_grad_(True)
    given = {"memory": tensors.get("in.mem"), "source": tensors.get("in.source"),
             "source_value": tensors.get("in.source_value")}
    given = {name: t.requires_grad_(True) for name, t in given.items() if t is not None}
    leaves = {"in.x": x, **{{"memory": "in.mem"}.get(name, f"in.{name}"): t for name, t in given.items()}}
    if options.get("padding"):
        given["valid_keys"] = tensors["in.mask"] != 0
        if options["padding"].get("queries") == "zero":
            given["valid_queries"] = tensors["in.mask_query"] != 0
    return x, given, leaves


@pytest.mark.parametrize("path", names(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_case(path):
    case, tensors = json.loads(path.read_text()), load_file(path.with_suffix(".safetensors"))
    family = {f.__name__: f for f in FAMILIES}.get(path.parent.name)
    layer = attention(case, family) if family else expert_mlp(case)
    layer.load_state_dict({name.removeprefix("param."): t for name, t in tensors.items() if name.startswith("param.")})
    x, given, leaves = inputs(case, tensors)
    y, balance = layer(x, balance=True, **given)
    limit, objective = case["tolerance"], case["options"]["objective"]
    assert error(y, tensors["out"]) <= limit["out"]
    if objective is None or (objective["aux"] and "valid_queries" in given):  # MoA's own code counts padding in its losses
        return
    total = objective["out"] * (y * tensors["grad_out"]).sum()
    if objective["aux"] and family:  # moa: the case gives the coefficients
        assert error(balance, tensors["aux.total"].squeeze()) <= limit["out"]
        total = total + objective["aux"] * balance
    elif objective["aux"]:  # the MLP's balance loss, with the default coefficient
        total = total + objective["aux"] * balance * (case["options"]["losses"]["entropy"] / 1e-4)
    total.backward()
    expected = {name: t for name, t in tensors.items() if name.startswith("grad.")}
    largest = max(float(t.abs().max()) for t in expected.values())
    results = {**leaves, **{f"param.{name}": p for name, p in layer.named_parameters()}}
    for name, t in expected.items():
        result = results[name.removeprefix("grad.")].grad
        assert error(result, t, limit["grad_floor"] * largest) <= limit["grad"], name
