"""finetune/b_loss: masked, weighted losses over drawn logits."""

from pathlib import Path

import torch

from parity.files import finite, generator, integers, normal, save, save_json
from parity.losses import audio_weights, text_weights, weighted
from parity.shapes import DELAYS

SEED = 20260401
GRADIENTS = ("text_p0_c0_w1.0", "text_p1_c1_w0.0", "text_p1_c1_w0.5", "audio_q16_p1_w100.0")
PADDING = [3, 0]


def make(out: Path, shape, seed: int) -> None:
    folder, sizes = out / "finetune/b_loss", shape.finetune
    data = draw(generator(seed, "b_loss"), sizes)
    results, gradients = cases(data, data["prompt_lengths"])
    save(folder / "inputs.safetensors", {k: v for k, v in data.items() if torch.is_tensor(v)}, integer=torch.int64)
    save(folder / "grads.safetensors", gradients)
    batch, streams, frames = data["audio_codes"].shape
    save_json(folder / "expected.json", {
        "B": batch, "K": streams, "T": frames, "card": sizes.loss_card, "text_card": sizes.loss_text_card,
        "delays": DELAYS[1:], "prompt_lengths": data["prompt_lengths"], "text_padding_ids": PADDING,
        "results": results,
    })


def draw(g, sizes) -> dict:
    """Logits, codes and masks; row 1 ends early, as in a padded batch."""
    frames, batch = sizes.loss_frames, 2
    end = frames - frames // 4
    text = integers(g, sizes.loss_text_card, batch, 1, frames, low=4)
    kind = torch.rand(text.shape, generator=g)
    text = torch.where(kind < 0.6, 3, torch.where(kind < 0.7, 0, text))
    audio = integers(g, sizes.loss_card, batch, 16, frames)
    text[1, :, end:], audio[1, :, end:] = -1, -1
    text_logits = normal(g, batch, 1, frames, sizes.loss_text_card, std=2)
    audio_logits = normal(g, batch, 16, frames, sizes.loss_card, std=2)
    audio_mask = audio != -1
    for codebook, delay in enumerate(DELAYS[1:]):
        if delay:
            audio_logits[:, codebook, -delay:] = torch.nan
            audio_mask[:, codebook, -delay:] = False
    context = torch.zeros(batch, frames, dtype=torch.bool)
    context[0, 9:14] = True
    context[1, 6:8] = True
    lengths = integers(g, 7, 2, low=2).tolist()
    return {"text_logits": text_logits, "audio_logits": audio_logits, "text_codes": text, "audio_codes": audio,
            "text_mask": text != -1, "audio_mask": audio_mask, "context_mask": context, "prompt_lengths": lengths}


def cases(data: dict, lengths: list) -> tuple:
    results, gradients = [], {}
    for name, stream, record, run in every(data, lengths):
        logits = data[f"{stream}_logits"].clone().requires_grad_(True)
        loss, total = run(logits)
        results.append({"name": name, "stream": stream, **record, "loss": finite(float(loss.detach())), "weight_sum": total})
        if name in GRADIENTS:
            loss.backward()
            gradients[name] = logits.grad
    return results + per_codebook(data, lengths) + [{
        "name": "degenerate_all_padding_w0", "stream": "text", "reference_loss": "nan", "required_loss": 0.0,
        "note": "the reference divides 0 by 0; the product returns 0 with zero gradients",
    }], gradients


def outside_prompts(data: dict, mask: torch.Tensor, lengths: list | None) -> torch.Tensor:
    if lengths is None:
        return mask
    frames = torch.arange(mask.shape[-1])
    return mask & (frames >= torch.tensor(lengths)[:, None])[:, None]


def every(data: dict, lengths: list):
    """Cases as (name, stream, what they record, a function from logits to loss and weight)."""
    for p, prompts in ((0, None), (1, lengths)):
        for c in (0, 1):
            mask = outside_prompts(data, data["text_mask"].bool(), prompts)
            if c:
                mask = mask & ~data["context_mask"].bool()[:, None]
            for w in (1.0, 0.5, 0.03, 0.0):
                weights = text_weights(data["text_codes"], mask, w, PADDING)
                record = {"prompt_lengths": prompts, "context_mask": bool(c), "text_padding_weight": w}
                yield (f"text_p{p}_c{c}_w{w}", "text", record,
                       lambda x, weights=weights: weighted(x, data["text_codes"], weights))
    for q in (8, 16):
        for p, prompts in ((0, None), (1, lengths)):
            mask = outside_prompts(data, data["audio_mask"].bool(), prompts)[:, :q]
            for w in (1.0, 4.0, 10.0, 100.0):
                for suffix, codebooks in (("", [0]), ("_per_stream", [0, 8]))[: 1 if q == 8 else 2]:
                    weights = audio_weights(mask, w, codebooks)
                    record = {"prompt_lengths": prompts, "dep_q": q, "first_codebook_weight_multiplier": w,
                              "multiplier_on": f"index {' and '.join(map(str, codebooks))}"}
                    yield (f"audio_q{q}_p{p}_w{w}{suffix}", "audio", record,
                           lambda x, q=q, weights=weights: weighted(x[:, :q], data["audio_codes"][:, :q], weights))


def per_codebook(data: dict, lengths: list) -> list:
    out = []
    for p, prompts in ((0, None), (1, lengths)):
        mask = outside_prompts(data, data["audio_mask"].bool(), prompts)
        means = []
        for k in range(mask.shape[1]):
            one = slice(k, k + 1)
            means.append(float(weighted(data["audio_logits"][:, one], data["audio_codes"][:, one], mask[:, one].float())[0]))
        out.append({"name": f"audio_q16_p{p}_w1.0_per_codebook", "stream": "audio", "per_codebook": means})
    return out
