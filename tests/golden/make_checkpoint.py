"""personaplex/checkpoint: names and shapes of the full-size files, from models without memory (device meta).

These sizes are the published ones whatever shape the rest of a tree has.
"""

import re
from pathlib import Path

import torch
from moshi.models.loaders import _lm_kwargs, get_mimi
from moshi.models.lm import LMModel

from parity import codec, lm
from parity.files import save_json

PER_STEP = re.compile(r"(gating|linears|depformer_in|depformer_emb)\.(\d+)\.")


def names(published, state: dict) -> dict:
    return {name: list(value.shape) for name, value in published(state).items()}


def language_model(steps: int) -> dict:
    config = {k: v for k, v in (_lm_kwargs | {"dep_q": steps}).items()}
    with torch.device("meta"):
        model = LMModel(device="meta", dtype=torch.bfloat16, **config)
    return names(lm.published_names, model.state_dict())


def rule(name: str, shape: list, small: dict) -> dict | None:
    """How a tensor of a model of sixteen steps comes from a file of eight; None when the file has it."""
    if name in small and small[name] == shape:
        return None
    if name in small:
        return {"rule": "concat_twice_dim0", "source": name}
    group, index = PER_STEP.search(name).groups()
    source = PER_STEP.sub(f"{group}.{int(index) - 8}.", name)
    if int(index) < 8 or source not in small:
        return {"rule": "absent_upstream_fails", "source": None}
    return {"rule": "copy", "source": source}


def make(out: Path, shape, seed: int) -> None:
    folder = out / "personaplex/checkpoint"
    full, small = language_model(16), language_model(8)
    save_json(folder / "personaplex_names.json", full)
    with torch.device("meta"):
        mimi = get_mimi(None, device="meta")
    save_json(folder / "mimi_names.json", names(codec.published_names, mimi.state_dict()))
    rules = {name: rule(name, wanted, small) for name, wanted in full.items()}
    save_json(folder / "dep8_to_dep16.json", {name: r for name, r in rules.items() if r})
