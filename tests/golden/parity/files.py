"""Writing golden files and drawing reproducible numbers."""

import hashlib
import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


class Unclear(RuntimeError):
    """No candidate of a seed chooses clearly: rounding could turn a choice. Another seed is needed."""


def generator(seed: int, *what) -> torch.Generator:
    """A CPU generator that depends on the seed and on what is drawn, not on the order in which sets are made."""
    text = ":".join(str(part) for part in (seed, *what))
    return torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little"))


def normal(g: torch.Generator, *shape: int, std: float = 1.0, mean: float = 0.0) -> torch.Tensor:
    return torch.randn(shape, generator=g) * std + mean


def integers(g: torch.Generator, high: int, *shape: int, low: int = 0) -> torch.Tensor:
    """Uniform in `low..high` (end excluded)."""
    return torch.randint(low, high, shape, generator=g)


def save(path: Path, tensors: dict, integer=torch.int32) -> None:
    """Integers as `integer`, booleans as u8, floats as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    out = {}
    for name, value in tensors.items():
        value = value.detach()
        if value.dtype == torch.bool:
            value = value.to(torch.uint8)
        elif value.dtype in (torch.int64, torch.int32, torch.int16):
            value = value.to(integer)
        out[name] = value.contiguous().clone()
    save_file(out, str(path))


def load(path: Path) -> dict:
    return load_file(str(path))


def save_json(path: Path, value) -> None:
    """JSON has no NaN and no infinity: an attempt to write one is a fault of the script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return value


def checksums(folder: Path) -> None:
    """`SHA256SUMS` of every file below the folder."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  ./{p.relative_to(folder)}" for p in files]
    (folder / "SHA256SUMS").write_text("\n".join(lines) + "\n")
