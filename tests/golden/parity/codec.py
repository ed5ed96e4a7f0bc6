"""The codec of PyPI's `moshi` with weights drawn here: whole signals, streams, and how clear its choices are."""

import math

import torch
from moshi.models.loaders import get_mimi

from .files import generator, normal

FRAME = 1920
CODEBOOK_DECAY = 0.8
EMPTY = 5  # this centroid of every codebook has no usage: the floor of the division decides


def build(config: dict, levels: int = 8, context: int | None = None):
    """An evaluating codec without weights of its own."""
    config = config | {"transformer": config["transformer"] | ({"context": context} if context else {})}
    return get_mimi(None, config, device="cpu", num_codebooks=levels)


def published_names(state: dict) -> dict:
    """Attention matrices under the published checkpoint's names."""
    return {n.replace("in_projs.0.weight", "in_proj_weight").replace("out_projs.0.weight", "out_proj.weight"): v
            for n, v in state.items()}


def draw_weights(codec, seed: int) -> dict:
    """Weights by name, drawn in sorted order, scaled so that signals neither vanish nor grow. Layer scales are near
    0.3 instead of 0.01 so that the transformers matter."""
    shapes = {n: tuple(v.shape) for n, v in published_names(codec.state_dict()).items()}
    g, out = generator(seed, "mimi"), {}
    for name in sorted(shapes):
        out[name] = _draw(g, name, shapes[name])
    for name in [n for n in out if n.endswith("cluster_usage")]:
        level = int(name.split("layers.")[1].split(".")[0]) + (1 if "rvq_rest" in name else 0)
        usage, total = out[name], name.replace("cluster_usage", "embedding_sum")
        usage[EMPTY] = 0.0
        out[total] = out[total] * CODEBOOK_DECAY ** max(level - 1, 0) * usage[:, None]
    return out


def _draw(g, name: str, shape: tuple) -> torch.Tensor:
    if name.endswith("_initialized"):
        return torch.ones(shape)
    if name.endswith("cluster_usage"):
        return torch.rand(shape, generator=g) * 2.5 + 0.5
    if name.endswith("embedding_sum"):
        return normal(g, *shape)
    if "layer_scale" in name:
        return normal(g, *shape, std=0.2, mean=0.3)
    if "norm" in name:
        return normal(g, *shape, std=0.2, mean=1.0 if name.endswith("weight") else 0.0)
    if name.endswith("bias"):
        return normal(g, *shape, std=0.1)
    if name.startswith("upsample"):
        return normal(g, *shape, std=0.3, mean=0.6)
    if "convtr" in name:
        return normal(g, *shape, std=1.25 / math.sqrt(2 * shape[0]))
    return normal(g, *shape, std=1.25 / math.sqrt(math.prod(shape[1:])))


def load(codec, weights: dict):
    codec.load_state_dict(weights, strict=True)
    return codec


def draw_wave(g: torch.Generator, batch: int, samples: int) -> torch.Tensor:
    """`[B, 1, samples]`: gliding tones with noise under a slow envelope, within -0.5..0.5."""
    time = torch.arange(samples) / 24000
    pick = lambda low, high: torch.rand((batch, 1), generator=g) * (high - low) + low
    wave = torch.zeros(batch, samples)
    for _ in range(4):
        sweep = pick(80, 2500) * time + pick(-900, 900) * time**2
        wave += pick(0.2, 1.0) * torch.sin(2 * math.pi * (sweep + pick(0, 1)))
    wave += 0.3 * torch.randn((batch, samples), generator=g)
    wave *= 0.6 + 0.4 * torch.sin(2 * math.pi * pick(1, 5) * time + pick(0, 6))
    return (0.5 * wave / wave.abs().amax(-1, keepdim=True))[:, None]


@torch.no_grad()
def whole(codec, wave: torch.Tensor) -> dict:
    """Every stage of encoding and decoding a whole signal."""
    stages = {"wave": wave}
    stages["seanet_out"] = codec.encoder(wave)
    (stages["encoder_transformer_out"],) = codec.encoder_transformer(stages["seanet_out"])
    stages["latent"] = codec.downsample(stages["encoder_transformer_out"])
    stages["codes"] = codec.quantizer.encode(stages["latent"])
    stages["quantized"] = codec.decode_latent(stages["codes"])
    stages["upsampled"] = codec.upsample(stages["quantized"])
    (stages["decoder_transformer_out"],) = codec.decoder_transformer(stages["upsampled"])
    stages["decoded"] = codec.decoder(stages["decoder_transformer_out"])
    return stages


@torch.no_grad()
def stream_encode(codec, wave: torch.Tensor) -> tuple:
    """Latents and codes, frame by frame from a fresh state."""
    latents = []
    with codec.streaming(wave.shape[0]):
        for frame in wave.split(FRAME, -1):
            latents.append(codec.encode_to_latent(frame, quantize=False))
    latent = torch.cat(latents, -1)
    return latent, codec.quantizer.encode(latent)


@torch.no_grad()
def stream_decode(codec, codes: torch.Tensor) -> torch.Tensor:
    with codec.streaming(codes.shape[0]):
        return torch.cat([codec.decode(code) for code in codes.split(1, -1)], -1)


@torch.no_grad()
def margins(codec, latent: torch.Tensor) -> torch.Tensor:
    """Per signal and level, the smallest difference of distance between the nearest and the second nearest centroid:
    `[B, levels]`."""
    rows = []
    for branch in (codec.quantizer.rvq_first, codec.quantizer.rvq_rest):
        rest = branch.input_proj(latent).transpose(1, 2)
        for layer in branch.vq.layers[: branch.n_q]:
            centroids = layer.embedding
            distances = torch.cdist(rest, centroids.expand(rest.shape[0], -1, -1))
            two = distances.topk(2, -1, largest=False)
            rows.append(two.values.diff(dim=-1)[..., 0].amin(-1))
            rest = rest - torch.nn.functional.embedding(two.indices[..., 0], centroids)
    return torch.stack(rows, 1)
