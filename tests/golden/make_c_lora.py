"""finetune/c_lora: adapters on a small language model: logits, losses, gradients, merged weights."""

import copy
from pathlib import Path

import torch
from moshi.modules.lora import LoRALinear, replace_all_linear_with_lora

from parity import lm
from parity.files import finite, generator, normal, save, save_json
from parity.losses import audio_weights, text_weights, weighted

WEIGHT_SEED = 11
PADDING_WEIGHT, FIRST_CODEBOOK, LAMBDA = 0.5, 10.0, 1e-4


def make(out: Path, shape, seed: int) -> None:
    folder, sizes = out / "finetune/c_lora", shape.finetune
    config = {k: v for k, v in sizes.lm().config().items() if k != "depformer_causal"} | {"depformer_context": 16}
    base = lm.build(config)
    weights = lm.draw_weights(base, seed, gain=1.0, spread=0.1, embedding=0.5, head=1.0)
    lm.load(base, weights)
    codes = lm.draw_codes(seed, sizes.lm(), 2, sizes.frames, holes=False)
    codes[1, :, sizes.row1_frames:] = -1
    every = with_adapters(base, "all", sizes.rank, sizes.scaling)
    adapters = draw_adapters(every, generator(seed, "adapters"))
    data = Data(base, codes, adapters, sizes.rank, sizes.scaling)
    save(folder / "base_personaplex_names.safetensors", weights)
    io, runs = data.outputs("base", base), {"base": data.losses(base)}
    for name in ("all", "backbone"):
        model = data.adapted(name)
        mine, gradients, record = data.run(name, model)
        io |= mine
        runs[name] = record
        save(folder / f"lora_{name}.safetensors", adapter_tensors(model))
        save(folder / f"grads_{name}.safetensors", gradients)
    save(folder / "merged_all_personaplex_names.safetensors", lm.published_names(merged(data.adapted("all"))))
    save(folder / "io.safetensors", io | {"codes": codes}, integer=torch.int64)
    save_json(folder / "expected.json", {
        "config": config, "rank": sizes.rank, "scaling": sizes.scaling, "text_padding_weight": PADDING_WEIGHT,
        "first_codebook_weight_multiplier": FIRST_CODEBOOK, "runs": runs,
    })


def with_adapters(base, where: str, rank: int, scaling: float):
    """A copy of the model with adapters on every linear, or only on the backbone's and the text head."""
    model = copy.deepcopy(base)
    if where == "all":
        replace_all_linear_with_lora(model, rank, scaling)
    else:
        replace_all_linear_with_lora(model.transformer, rank, scaling)
        head = torch.nn.ModuleDict({"text_linear": model.text_linear})
        replace_all_linear_with_lora(head, rank, scaling)
        model.text_linear = head["text_linear"]
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    return model


def draw_adapters(model, g) -> dict:
    """A as the package initialises it (uniform within 1/sqrt(inputs)), B normal so that it is not zero."""
    out = {}
    for name, value in sorted(adapter_tensors(model).items()):
        if "lora_A" in name:
            out[name] = (torch.rand(value.shape, generator=g) * 2 - 1) / value.shape[1] ** 0.5
        else:
            out[name] = normal(g, *value.shape, std=0.05)
    return out


def adapter_tensors(model) -> dict:
    return {n: p.detach() for n, p in model.named_parameters() if "lora_" in n}


def merged(model) -> dict:
    """The model's weights with `W + scaling * B A` in place of each adapted one."""
    out = {}
    adapted = {n: m for n, m in model.named_modules() if isinstance(m, LoRALinear)}
    for name, value in model.state_dict().items():
        if "lora_" in name:
            continue
        if name.endswith(".frozen_W.weight"):
            module = adapted[name.removesuffix(".frozen_W.weight")]
            update = module.lora_B.weight @ module.lora_A.weight
            value, name = value + module.scaling * update, name.replace(".frozen_W", "")
        out[name] = value
    return {n: v.detach() for n, v in out.items()}


class Data:
    """A base model, codes and adapters, and what a training step makes of them."""

    def __init__(self, base, codes, adapters: dict, rank: int, scaling: float):
        self.base, self.codes, self.adapters, self.rank, self.scaling = base, codes, adapters, rank, scaling

    def adapted(self, where: str):
        model = with_adapters(self.base, where, self.rank, self.scaling)
        mine = adapter_tensors(model)
        missing = model.load_state_dict({n: self.adapters[n] for n in mine}, strict=False).unexpected_keys
        if missing:
            raise RuntimeError(f"adapters without a place: {missing}")
        return model

    @torch.no_grad()
    def outputs(self, run: str, model) -> dict:
        out = model(self.codes)
        clean = lambda logits, mask: torch.where(mask[..., None], logits, torch.nan_to_num(logits))
        return {f"{run}_text_logits": clean(out.text_logits, out.text_mask),
                f"{run}_audio_logits": clean(out.logits, out.mask),
                "text_mask": out.text_mask, "audio_mask": out.mask}

    def both_losses(self, model) -> tuple:
        out = model(self.codes)
        text = text_weights(self.codes[:, :1], out.text_mask, PADDING_WEIGHT)
        audio = audio_weights(out.mask, FIRST_CODEBOOK)
        return (weighted(out.text_logits, self.codes[:, :1], text)[0],
                weighted(out.logits, self.codes[:, 1:], audio)[0])

    @torch.no_grad()
    def losses(self, model, prefix: str = "") -> dict:
        text, audio = self.both_losses(model)
        return {f"{prefix}text_loss": finite(float(text)), f"{prefix}audio_loss": finite(float(audio))}

    def gradients(self, model) -> tuple:
        model.zero_grad()
        text, audio = self.both_losses(model)
        loss = text + audio
        loss.backward()
        return float(loss.detach()), {n: p.grad.clone() for n, p in model.named_parameters() if "lora_" in n}

    def run(self, name: str, model) -> tuple:
        loss, gradients = self.gradients(model)
        again = copy.deepcopy(model)
        again.transformer.checkpointing = again.depformer.checkpointing = True
        _, recomputed = self.gradients(again)
        difference = max(float((recomputed[n] - g).abs().max()) for n, g in gradients.items())
        tensors = adapter_tensors(model)
        squares = sum(float(t.double().pow(2).sum()) for n, t in tensors.items() if "lora_B" in n)
        norm = sum(float(g.double().pow(2).sum()) for g in gradients.values()) ** 0.5
        record = self.losses(model) | {
            "loss": loss, "grad_global_norm": norm, "n_lora_tensors": len(tensors),
            "n_lora_params": sum(t.numel() for t in tensors.values()), "sum_sq_lora_B": squares,
            "l2_term_for_lambda_1e_4": LAMBDA * squares, "segmented_backward_max_grad_diff": difference,
        } | self.losses(copy.deepcopy(model).to(torch.bfloat16), "bf16_")
        return self.outputs(name, model), gradients, record
