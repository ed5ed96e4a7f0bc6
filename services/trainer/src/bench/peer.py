"""Training steps of the published package (PyPI `moshi` 0.2.13) in the shape of PersonaPlex, to set ours against.

The same work as ours: LoRA on every linear, activation checkpointing, cross entropy of text and 16 codebooks on random
ids, gradient clipping and AdamW on f32 masters of bf16 parameters, as the package's own fine-tuning code does it. Prints
one JSON line a batch size. Needs a CUDA device and the packages moshi, einops and sphn.
"""

import argparse
import json
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


class Step:
    def __init__(self, model, trained):
        self.model, self.trained = model, trained
        self.masters = [p.detach().float().clone() for p in trained]
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-6, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)

    def __call__(self, codes):
        out = self.model(codes)
        text_mask = out.text_mask & (codes[:, :1] >= 0)
        loss = cross_entropy(out.text_logits, codes[:, :1], text_mask)
        loss = loss + 0.5 * cross_entropy(out.logits, codes[:, 1:17], out.mask)
        loss.backward()
        for master, parameter in zip(self.masters, self.trained):
            master.grad = parameter.grad.float()
            parameter.grad = None
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            for master, parameter in zip(self.masters, self.trained):
                parameter.copy_(master)
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--batch", type=int, nargs="+", required=True)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()
    model, trained = build(args.rank)
    step = Step(model, trained)
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
            losses.append(step(codes))
            torch.cuda.synchronize()
            if i:
                times.append(time.perf_counter() - start)
        median = statistics.median(times)
        report = {
            "batch": batch,
            "ms": median * 1e3,
            "frames_per_s": batch * args.frames / median,
            "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
            "trained": sum(p.numel() for p in trained),
            "first_loss": losses[0],
            "last_loss": losses[-1],
        }
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
