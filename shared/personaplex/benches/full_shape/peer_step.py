"""One step of the published package's generator (PyPI `moshi` 0.2.13) in the shape of PersonaPlex, to set ours against.

Random weights, its compiled functions and CUDA graphs on, main transformer and 16 depformer steps with sampling, as the
package steps them. Prints one JSON line a batch size. Needs a CUDA device and the packages moshi, einops and sphn.
"""

import argparse
import json
import statistics
import time

import torch
from moshi.models import LMGen, loaders
from moshi.models.lm import LMModel


def build():
    kwargs = dict(loaders._lm_kwargs) | {"dep_q": 16}
    kwargs.pop("depformer_causal", None)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    model = LMModel(device="cuda", dtype=torch.bfloat16, **kwargs)
    torch.set_default_dtype(torch.float32)
    return model.eval()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, nargs="+", required=True)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--warm-up", type=int, required=True)
    args = parser.parse_args()
    model = build()
    for sessions in args.sessions:
        generator = LMGen(model, temp=0.8, temp_text=0.7, top_k=250, top_k_text=25)
        times = []
        with torch.no_grad(), generator.streaming(sessions):
            # The user's codes too are the model's own: it takes none where all 16 codebooks are predicted.
            codes = torch.zeros(sessions, model.n_q - model.dep_q, 1, dtype=torch.long, device="cuda")
            for frame in range(args.warm_up + args.frames):
                torch.cuda.synchronize()
                start = time.perf_counter()
                generator.step(codes)
                torch.cuda.synchronize()
                if frame >= args.warm_up:
                    times.append((time.perf_counter() - start) * 1e3)
        times.sort()
        median, p95 = statistics.median(times), times[min(len(times) - 1, int(len(times) * 0.95))]
        print(json.dumps({"sessions": sessions, "median_ms": median, "p95_ms": p95}), flush=True)
        del generator
        torch.cuda.empty_cache()


main()
