"""Training steps of the published package (PyPI `moshi` 0.2.13) in the full shape, to set `full_shape train` against.

The same work as ours: LoRA on every linear, activation checkpointing, cross entropy of text and 16 codebooks on random
ids, one plain descent step. Needs a CUDA device and the packages moshi, einops and sphn.
"""

import argparse
import os
import statistics
import time

os.environ["NO_TORCH_COMPILE"] = "1"

import torch
import torch.nn.functional as F
from moshi.models import loaders
from moshi.models.lm import LMModel
from moshi.modules.lora import replace_all_linear_with_lora


def build(rank):
    kwargs = dict(loaders._lm_kwargs) | {"dep_q": 16, "gradient_checkpointing": True}
    kwargs.pop("depformer_causal", None)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    model = LMModel(device="cuda", dtype=torch.bfloat16, **kwargs)
    torch.set_default_dtype(torch.float32)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    replace_all_linear_with_lora(model, rank, 2.0)
    trained = []
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            if name.endswith("lora_B.weight"):
                torch.nn.init.zeros_(parameter)
            parameter.requires_grad_(True)
            trained.append(parameter)
        else:
            parameter.requires_grad_(False)
    return model.train(), trained


def cross_entropy(logits, targets, mask):
    return F.cross_entropy(logits[mask].float(), targets[mask])


def step(model, trained, codes):
    out = model(codes)
    text_mask = out.text_mask & (codes[:, :1] >= 0)
    loss = cross_entropy(out.text_logits, codes[:, :1], text_mask)
    loss = loss + cross_entropy(out.logits, codes[:, 1:17], out.mask)
    loss.backward()
    with torch.no_grad():
        for parameter in trained:
            parameter -= 1e-4 * parameter.grad
            parameter.grad = None
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=128)
    parser.add_argument("--batch", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--frames", type=int, default=750)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    model, trained = build(args.rank)
    print(f"peer: {sum(p.numel() for p in trained) / 1e6:.1f} M trained")
    for batch in args.batch:
        generator = torch.Generator("cpu").manual_seed(2)
        text = torch.randint(0, 32000, (batch, 1, args.frames), generator=generator)
        audio = torch.randint(0, 2048, (batch, 16, args.frames), generator=generator)
        codes = torch.cat([text, audio], 1).cuda()
        torch.cuda.reset_peak_memory_stats()
        times, losses = [], []
        for i in range(args.steps + 1):
            torch.cuda.synchronize()
            start = time.perf_counter()
            losses.append(step(model, trained, codes))
            torch.cuda.synchronize()
            if i:
                times.append(time.perf_counter() - start)
        median = statistics.median(times)
        peak = torch.cuda.max_memory_allocated() / 2**30
        print(
            f"peer: batch {batch}, {args.frames} frames: {median * 1e3:.1f} ms, {batch * args.frames / median:.0f} "
            f"frames/s, peak {peak:.1f} GiB, loss {losses[0]:.3f} to {losses[-1]:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
