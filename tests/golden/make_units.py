"""personaplex/units: rotary positions, norms, feed-forward, ring cache, delays, embedding, sampler, convolutions."""

from pathlib import Path

import torch
from moshi.models.lm_utils import ScaledEmbedding, _delay_sequence, _undelay_sequence
from moshi.modules.conv import StreamingConv1d, StreamingConvTranspose1d
from moshi.modules.gating import make_gating
from moshi.modules.rope import apply_rope
from moshi.modules.transformer import RingKVCache, RMSNorm

from parity.files import generator, integers, normal, save

SEED = 20260103
ROWS = 64  # of the sampler; with the k of its cases it is part of tensor names


def make(out: Path, shape, seed: int) -> None:
    folder, sizes = out / "personaplex/units", shape.units
    for name, unit in UNITS.items():
        with torch.no_grad():
            save(folder / f"{name}.safetensors", unit(generator(seed, name), sizes))


def rope(g, s) -> dict:
    q, k = (normal(g, 2, s.heads, s.rows, s.width) for _ in "qk")
    out = {"q": q, "k": k}
    for offset in (0, 7, 2990, 250000):
        at = torch.full((2,), offset)
        for kind, suffix in ((torch.float32, ""), (torch.bfloat16, "_bf16")):
            turned = apply_rope(q.to(kind), k.to(kind), at)
            for name, value in zip("qk", turned):
                out[f"{name}{suffix}_off{offset}"] = value.to(kind)
    return out


def norms(g, s) -> dict:
    x = normal(g, 2, 4, s.dim)
    for row, scale in ((1, 1e-4), (2, 1e-6)):
        x[0, row] *= scale
    x[1, 3] *= 300
    alpha, weight, bias = normal(g, 1, 1, s.dim, std=0.3, mean=1), normal(g, s.dim, std=0.3, mean=1), normal(g, s.dim, std=0.5)
    out = {"x": x, "x_bf16": x.bfloat16(), "alpha": alpha, "alpha_bf16": alpha.bfloat16(), "ln_weight": weight,
           "ln_bias": bias, "layer_norm": torch.nn.functional.layer_norm(x, (s.dim,), weight, bias, 1e-5)}
    for suffix in ("", "_bf16"):
        norm = RMSNorm(s.dim, eps=1e-8, dtype=torch.float32)
        norm.alpha = torch.nn.Parameter(out["alpha" + suffix])
        out["rms" + suffix] = norm(out["x" + suffix])
    return out


def feed_forward(g, s) -> dict:
    x = normal(g, 2, 3, s.dim)
    linear_in, linear_out = normal(g, 2 * s.hidden, s.dim, std=0.2), normal(g, s.dim, s.hidden, std=0.1)
    gelu = normal(g, 2, 3, s.dim)
    out = {"x": x, "linear_in": linear_in, "linear_out": linear_out}
    for name in list(out):
        out[f"{name}_bf16"] = out[name].bfloat16()
    for suffix in ("", "_bf16"):
        gate = make_gating("silu", s.dim, 3 * s.hidden // 2, dtype=out["x" + suffix].dtype)
        gate.linear_in.weight = torch.nn.Parameter(out["linear_in" + suffix])
        gate.linear_out.weight = torch.nn.Parameter(out["linear_out" + suffix])
        out["out" + suffix] = gate(out["x" + suffix])
    return out | {"gelu_in": gelu, "gelu_out": torch.nn.functional.gelu(gelu)}


def ring_cache(g, s) -> dict:
    """Single writes and then pairs. `*_fixed` is the package's bookkeeping, `*_reference` that of PersonaPlex, which
    counts one position too many and so takes the oldest key for one still to come."""
    heads, width, capacity = 2, 4, s.capacity
    lengths = [1] * s.single_writes + [2] * 3
    total = sum(lengths)
    q, k, v = (normal(g, 1, heads, total, width) for _ in "qkv")
    ring = RingKVCache(1, heads, width, capacity, device=torch.device("cpu"), dtype=torch.float32)
    running = torch.ones(1, dtype=torch.bool)
    rows, start = {n: [] for n in ("fixed", "reference", "attn_fixed", "attn_reference", "keys", "values")}, 0
    for length in lengths:
        at = slice(start, start + length)
        result = ring.complete(k[:, :, at], v[:, :, at], running)
        written = start + length
        slots = torch.arange(capacity)
        ahead = slots - written % capacity
        reference = torch.where(ahead <= 0, written + ahead, written + ahead - capacity)
        reference = torch.where(slots >= written, -1, reference)
        for name, positions in (("fixed", result.positions[0]), ("reference", reference)):
            rows[name].append(positions)
            apart = torch.arange(start, written)[:, None] - positions
            seen = (positions >= 0) & (apart >= 0) & (apart < capacity)
            rows[f"attn_{name}"].append(torch.nn.functional.scaled_dot_product_attention(
                q[:, :, at], result.keys, result.values, seen))
        rows["keys"].append(result.keys[0].clone())
        rows["values"].append(result.values[0].clone())
        start = written
    return {"q": q, "k": k, "v": v, "chunk_lengths": torch.tensor(lengths),
            "positions_fixed": torch.stack(rows["fixed"]), "positions_reference": torch.stack(rows["reference"]),
            "attn_fixed": torch.cat(rows["attn_fixed"], 2), "attn_reference": torch.cat(rows["attn_reference"], 2),
            "keys_after": torch.stack(rows["keys"]), "values_after": torch.stack(rows["values"])}


def delays(g, s) -> dict:
    streams = [0, 0, 1, 1, 0, 2]
    x, logits = integers(g, 50, 2, len(streams), s.rows + 2), normal(g, 2, len(streams), s.rows + 2, 3)
    pad = torch.full((2, len(streams), 1), 99)
    undelayed, mask = _undelay_sequence(streams, logits)
    nan = torch.isnan(undelayed).any(-1)
    return {"delays": torch.tensor(streams), "x": x, "pad": pad, "delayed": _delay_sequence(streams, x, pad),
            "logits": logits, "undelayed": torch.where(nan[..., None], 0.0, undelayed), "undelayed_nan": nan, "mask": mask}


def embedding(g, s) -> dict:
    table = ScaledEmbedding(10, 6)
    table.weight = torch.nn.Parameter(normal(g, 10, 6))
    ids = torch.tensor([[0, 9, -1, 3, -2]])
    return {"ids": ids, "weight": table.weight, "out": table(ids)}


def sampler(g, s) -> dict:
    """`noise` is used by rank: the best token takes the row's first value. The last case replays torch's generator."""
    logits, noise = normal(g, ROWS, s.vocabulary, std=2.5), torch.empty(ROWS, s.vocabulary).exponential_(1, generator=g)
    def choose(temperature, k, noise):
        values, indices = torch.softmax(logits / temperature, -1).topk(k, -1)
        return indices.gather(-1, (values / noise[:, :k]).argmax(-1, keepdim=True))[:, 0]
    seeded = torch.empty(ROWS, 150).exponential_(1, generator=torch.Generator().manual_seed(1234))
    return {"logits": logits, "noise": noise, "token_greedy": logits.argmax(-1),
            "token_t7_k25": choose(0.7, 25, noise), "token_t8_k150": choose(0.8, 150, noise),
            "token_t10_k200": choose(1.0, 200, noise), "seeded_exponential_64x150": seeded,
            "seeded_t8_k150": choose(0.8, 150, seeded)}


def conv(g, s) -> dict:
    """Each convolution over its whole input and over the same input in chunks."""
    inner, outer = s.channels_in, s.channels_out
    out = {}
    for name, batch, kernel, stride, dilation, chunks in (
        ("conv_k1", 1, 1, 1, 1, [2, 4]), ("conv_k3_d2", 1, 3, 1, 2, [1, 1, 2, 8]),
        ("conv_k7", 2, 7, 1, 1, [4, 8, 4, 8]), ("conv_k8_s4", 1, 8, 4, 1, [4, 8, 12])):
        module = StreamingConv1d(inner, outer, kernel, stride, dilation, causal=True)
        out |= both(g, name, module, module.conv.conv, normal(g, batch, inner, sum(chunks)), chunks)
    module = StreamingConv1d(inner, inner, 4, 2, causal=True, bias=False, pad_mode="replicate")
    out |= both(g, "down_replicate_k4_s2", module, module.conv.conv, normal(g, 1, inner, 12), [2, 2, 4, 4])
    module = StreamingConvTranspose1d(inner, outer, 8, 4, causal=True)
    out |= both(g, "convtr_k8_s4", module, module.convtr.convtr, normal(g, 1, inner, 6), [1, 2, 3])
    module = StreamingConvTranspose1d(inner, inner, 4, 2, groups=inner, bias=False, causal=True)
    return out | both(g, "up_depthwise_k4_s2", module, module.convtr.convtr, normal(g, 1, inner, 6), [1, 1, 4])


def both(g, name: str, module, inner, x: torch.Tensor, chunks: list) -> dict:
    inner.weight = torch.nn.Parameter(normal(g, *inner.weight.shape, std=0.4))
    out = {f"{name}.weight": inner.weight, f"{name}.x": x, f"{name}.chunks": torch.tensor(chunks)}
    if inner.bias is not None:
        inner.bias = torch.nn.Parameter(normal(g, *inner.bias.shape, std=0.4))
        out[f"{name}.bias"] = inner.bias
    out[f"{name}.y"] = module(x)
    with module.streaming(x.shape[0]):
        parts = [module(part) for part in x.split(chunks, -1)]
    return out | {f"{name}.y_stream": torch.cat(parts, -1),
                  f"{name}.y_stream_lengths": torch.tensor([part.shape[-1] for part in parts])}


UNITS = {"rope": rope, "norms": norms, "feed_forward": feed_forward, "ring_cache": ring_cache, "delays": delays,
         "embedding": embedding, "sampler": sampler, "conv": conv}
