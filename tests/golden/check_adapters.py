#!/usr/bin/env python3
"""Loads adapters and a fully trained model that the product wrote into PyPI's `moshi` and compares logits.

Usage: python check_adapters.py TREE FOLDER

TREE is a golden tree, FOLDER what `cargo run -p personaplex --example adapters_for_reference -- TREE FOLDER` wrote for it.
The package reads each adapter the way its server does (`--lora-weight`, `--config-path`), once keeping it apart and once
fusing it, and must give the logits of the product's unmerged model, of its merged model, and of both while they serve a
conversation. The fully trained model is read as a base.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("NO_TORCH_COMPILE", "1")

import torch
from moshi.models import loaders
from moshi.modules.lora import LoRALinear

from parity.files import load

# As the golden tests of forward passes and of streaming generation.
FORWARD, SERVED = 2e-5, 2e-4


def load_package(base: Path, adapter: Path, fuse: bool):
    """The path of the package's server, which wants names of a codec and a tokenizer that are not opened here."""
    info = loaders.CheckpointInfo.from_hf_repo(
        "none", str(base), str(base), str(base), lora_weights=str(adapter / "lora.safetensors"),
        config_path=str(adapter / "config.json"))
    model = info.get_moshi(device="cpu", dtype=torch.float32, fuse_lora=fuse)
    apart = sum(isinstance(module, LoRALinear) for module in model.modules())
    if (apart == 0) != fuse:
        raise RuntimeError(f"{apart} linears have an adapter apart, fuse_lora is {fuse}")
    return model


@torch.no_grad()
def forward(model, codes: torch.Tensor) -> dict:
    out = model(codes)
    return {"text": (out.text_logits[:, 0], out.text_mask[:, 0]), "audio": (out.logits, out.mask)}


@torch.no_grad()
def decide(model, rows: torch.Tensor) -> dict:
    """Logits of all rows but the first two of a conversation `[17, N + 2]`, from the rows before and their own values."""
    rows = rows.long()[None]
    hidden, text = model.forward_text(rows[..., :-1])
    audio = model.forward_depformer_training(rows[..., 1:], hidden)
    return {"text": text[0, 0, 1:], "audio": audio[0, :8, 1:].transpose(0, 1)}


def difference(found: torch.Tensor, wanted: torch.Tensor, mask=None) -> float:
    if found.shape != wanted.shape:
        raise RuntimeError(f"shape {tuple(found.shape)}, the package's is {tuple(wanted.shape)}")
    if mask is not None:
        found, wanted = found[mask], wanted[mask]
    return float((found.double() - wanted.double()).abs().max())


def compare(ours: dict, run: str, model, wanted: dict, what: str) -> bool:
    served = decide(model, ours[f"{run}_served_rows"])
    whole = max(difference(ours[f"{run}_{n}"], *wanted[n]) for n in ("text", "audio"))
    steps = max(difference(ours[f"{run}_served_{n}"], served[n]) for n in ("text", "audio"))
    good = whole <= FORWARD and steps <= SERVED
    print(f"  {what}: forward {whole:.1e}, serving {steps:.1e}{'' if good else '   DIFFERS'}")
    return good


def check_adapter(base: Path, codes: torch.Tensor, folder: Path, plain: dict) -> bool:
    ours, good = load(folder / "logits.safetensors"), True
    for fuse in (False, True):
        model = load_package(base, folder / "adapter", fuse)
        wanted = forward(model, codes)
        for run in ("unmerged", "merged"):
            there = "fused" if fuse else "apart"
            good &= compare(ours, run, model, wanted, f"{folder.name}, {run} here, {there} there")
    return good and moved(ours, "unmerged", plain)


def check_whole(config: dict, codes: torch.Tensor, folder: Path, plain: dict) -> bool:
    ours = load(folder / "logits.safetensors")
    model = load_plain(folder / "consolidated.safetensors", config)
    good = compare(ours, "whole", model, forward(model, codes), "every tensor")
    return good and moved(ours, "whole", plain)


def load_plain(path: Path, config: dict):
    return loaders.get_moshi_lm(str(path), lm_kwargs=config, device="cpu", dtype=torch.float32)


def moved(ours: dict, run: str, plain: dict) -> bool:
    """What does next to nothing would prove nothing."""
    least = min(difference(ours[f"{run}_{n}"], *plain[n]) for n in ("text", "audio"))
    print(f"  {run} differs from the base by {least:.1e}")
    return least > 100 * FORWARD


def main() -> int:
    tree, folder = Path(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    data = tree / "finetune/c_lora"
    base = data / "base_personaplex_names.safetensors"
    config = json.loads((data / "expected.json").read_text())["config"]
    codes = load(data / "io.safetensors")["codes"].long()
    plain = forward(load_plain(base, config), codes)
    cases = sorted(path for path in folder.iterdir() if (path / "adapter").is_dir())
    if not cases:
        raise RuntimeError(f"no adapters in {folder}")
    results = [check_adapter(base, codes, case, plain) for case in cases]
    results.append(check_whole(config, codes, folder / "whole", plain))
    print(f"  models trained here: {sum(results)} equal, {len(results) - sum(results)} different")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
