#!/usr/bin/env python3
"""Makes a golden tree from PyPI's `moshi` alone, laid out as tests/golden.

Usage: python make_all.py --out DIR [--seed N] [--shape published|random] [--sets NAME,NAME]

Without --seed every set takes its published seed. With `--shape random` the sizes are drawn from the seed. The numbers
are of the same kind as the committed ones and are read by the same tests (PPX_GOLDEN_DIR=DIR); they are not the
committed bytes, because weights and inputs are drawn here. Needs torch 2.11.0 and requirements.txt; `make parity-live`
sets that up. Sets that other software made (speech, e_stats, interleaver, splice) are not made here.
"""

import argparse
import importlib
import importlib.metadata
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("NO_TORCH_COMPILE", "1")

# In this order: end to end needs both models. With each set the name of its published seed.
SETS = {"units": "SEED", "lm_tiny": "WEIGHT_SEED", "mimi_tiny": "WEIGHT_SEED", "e2e_tiny": "SEED", "checkpoint": None,
        "ogg_opus": "SEED", "c_lora": "WEIGHT_SEED", "b_loss": "SEED", "d_optim": "SEED"}

UNCLEAR = 3  # exit status: another seed is needed


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="an empty or new folder")
    parser.add_argument("--seed", type=int, help="default: the published seed of each set, and 0 for random sizes")
    parser.add_argument("--shape", choices=("published", "random"), default="published")
    parser.add_argument("--sets", default=",".join(SETS), help="default: all")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    chosen = options.sets.split(",")
    unknown = sorted(set(chosen) - set(SETS))
    if unknown:
        print(f"unknown sets {', '.join(unknown)}; known: {', '.join(SETS)}", file=sys.stderr)
        return 2
    import torch

    from parity import shapes
    from parity.files import Unclear, checksums, save_json

    # One thread and a fixed order of additions: the same seed gives the same bytes.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    shape = shapes.draw(options.seed or 0) if options.shape == "random" else shapes.Shape()
    print(json.dumps(shape.as_dict()))
    made = {}
    for name in (n for n in SETS if n in chosen):
        module = importlib.import_module(f"make_{name}")
        seed = options.seed
        if seed is None:
            seed = getattr(module, SETS[name]) if SETS[name] else 0
        started = time.monotonic()
        try:
            module.make(options.out, shape, seed)
        except Unclear as reason:
            print(f"{name}: seed {seed}: {reason}; take another seed", file=sys.stderr)
            return UNCLEAR
        made[name] = seed
        print(f"{name}: seed {seed}, {time.monotonic() - started:.1f} s", flush=True)
    if (options.out / "personaplex").is_dir():
        checksums(options.out / "personaplex")
    save_json(options.out / "generated.json", {
        "seeds": made, "shape": json.loads(json.dumps(shape.as_dict())), "torch": torch.__version__,
        "moshi": importlib.metadata.version("moshi"),
    })
    return 0


if __name__ == "__main__":
    sys.exit(main())
