"""The language model of PyPI's `moshi` with weights drawn here, and its full-sequence forward with every stage."""

import torch
from moshi.models.lm import LMModel

from .files import generator, normal

STEPS = 16


def build(config: dict, dtype=torch.float32, **changes) -> LMModel:
    """An evaluating model without weights of its own; `changes` override configuration values."""
    arguments = {k: v for k, v in (config | changes).items() if k != "depformer_causal"}
    model = LMModel(device="cpu", dtype=dtype, **arguments)
    model.eval()
    return model


def published_names(state: dict) -> dict:
    """Per-step attention matrices of the package joined under the names of the published checkpoint."""
    out, groups = {}, {}
    for name, value in state.items():
        for per_step, joined in ((".in_projs.", ".in_proj_weight"), (".out_projs.", ".out_proj.weight")):
            if per_step in name:
                prefix, rest = name.split(per_step)
                groups.setdefault(prefix + joined, {})[int(rest.split(".")[0])] = value
                break
        else:
            out[name] = value
    for name, steps in groups.items():
        out[name] = torch.cat([steps[i] for i in sorted(steps)], 0)
    return out


def draw_weights(model: LMModel, seed: int, gain: float, spread: float, embedding: float, head: float) -> dict:
    """Weights by published name, drawn in sorted order: `gain / sqrt(inputs)` for linears, `head / sqrt(inputs)` for
    the output heads, `spread` around one for norms."""
    shapes = {name: tuple(value.shape) for name, value in published_names(model.state_dict()).items()}
    g, out = generator(seed, "lm"), {}
    for name in sorted(shapes):
        shape = shapes[name]
        if name.endswith("alpha"):
            out[name] = normal(g, *shape, std=spread, mean=1.0)
        elif "emb." in name:
            out[name] = normal(g, *shape, std=embedding)
        else:
            heads = name.startswith(("linears.", "text_linear."))
            out[name] = normal(g, *shape, std=(head if heads else gain) / shape[-1] ** 0.5)
    return out


def load(model: LMModel, weights: dict) -> LMModel:
    """Published names into the model, upcast or rounded to its dtype."""
    dtype = next(model.parameters()).dtype
    model.load_state_dict({name: value.to(dtype) for name, value in weights.items()}, strict=True)
    return model


def delayed_rows(model: LMModel, codes: torch.Tensor) -> torch.Tensor:
    """Codes `[B, 17, T]` as model rows `[B, 17, T + 1]`: every stream shifted by its delay, the initial row first."""
    first = torch.full_like(codes[:, :, :1], model.card)
    first[:, 0] = model.text_card
    rows = first.expand(-1, -1, codes.shape[2] + 1).clone()
    for stream, delay in enumerate(model.delays):
        rows[:, stream, 1 + delay:] = codes[:, stream, : codes.shape[2] - delay]
    return rows


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Per position in f32, zero where masked. `logits` `[B, K, T, V]`."""
    clean = torch.where(mask[..., None], logits.float(), 0.0)
    found = torch.nn.functional.cross_entropy(clean.flatten(0, 2), targets.clamp(min=0).flatten(), reduction="none")
    return torch.where(mask, found.view(mask.shape), 0.0)


@torch.no_grad()
def forward_stages(model: LMModel, codes: torch.Tensor) -> dict:
    """A full forward of `codes` `[B, 17, T]` with the output of every stage, all floats in f32."""
    batch, _, frames = codes.shape
    seen, hooks = {}, []

    def keep(name, module, before=False):
        def after_hook(_, arguments, output):
            seen[name] = output
        def before_hook(_, arguments):
            seen[name] = arguments[0]
        register = module.register_forward_pre_hook if before else module.register_forward_hook
        hooks.append(register(before_hook if before else after_hook))

    keep("embedding", model.transformer.layers[0], before=True)
    for i, layer in enumerate(model.transformer.layers):
        keep(f"backbone_layer{i}", layer)
    keep("hidden", model.out_norm)
    keep("depformer_in", model.depformer, before=True)
    keep("depformer_out", model.depformer)
    try:
        out = model(codes)
    finally:
        for hook in hooks:
            hook.remove()
    tensors = {name: value.float() for name, value in seen.items()}
    for name in ("depformer_in", "depformer_out"):
        tensors[name] = tensors[name].view(batch, frames, STEPS, -1)
    nan = torch.isnan(out.logits).any(-1)
    tensors |= {
        "codes": codes, "rows": delayed_rows(model, codes), "text_logits": out.text_logits.float(),
        "audio_logits": torch.where(nan[..., None], 0.0, out.logits.float()), "audio_nan": nan,
        "text_mask": out.text_mask, "audio_mask": out.mask,
        "text_ce": cross_entropy(out.text_logits, codes[:, :1], out.text_mask),
        "audio_ce": cross_entropy(out.logits, codes[:, 1:], out.mask),
    }
    return tensors


def draw_codes(seed, shape, batch: int, frames: int, holes: bool = True) -> torch.Tensor:
    """`[B, 17, T]`: mostly padding in the text, some entries absent (-1), the last row's end absent when there are
    several rows, as in a chunk that is shorter than its batch."""
    g = generator(seed, "codes", batch, frames)
    codes = integers_like(g, shape, batch, frames)
    if holes:
        absent = torch.rand(codes.shape, generator=g) < 0.02
        codes = torch.where(absent, -1, codes)
        if batch > 1:
            codes[-1, :, frames - frames // 4:] = -1
    return codes


def integers_like(g, shape, batch: int, frames: int) -> torch.Tensor:
    text = torch.randint(0, shape.text_card, (batch, 1, frames), generator=g)
    padded = torch.rand(text.shape, generator=g) < 0.6
    audio = torch.randint(0, shape.card, (batch, 16, frames), generator=g)
    return torch.cat([torch.where(padded, 3, text), audio], 1)
