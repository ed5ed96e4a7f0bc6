#!/usr/bin/env python3
"""Replays the inputs of a golden tree through PyPI's package and compares every number that the tree holds.

Usage: python check_given.py TREE

This proves the generators: what they compute from a tree's weights and inputs is what the published package computed.
Expected differences are left out and counted: the logits and choices of the last codebook (the published ring loses a
key in the last depformer step), the ragged last frame, and the codec's stream past its window.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch

from make_e2e_tiny import Pair, talk
from make_lm_tiny import WINDOW, Models, run
from make_b_loss import cases
from make_c_lora import Data, merged
from make_d_optim import STEPS, table, trace
from make_mimi_tiny import SHORT_WINDOW
import make_checkpoint
from parity import codec as mimi
from parity import lm
from parity.files import load

FAILED = []


def compare(what: str, found: torch.Tensor, wanted: torch.Tensor, tolerance: float = 0.0) -> None:
    if found.shape != wanted.shape:
        FAILED.append(what)
        print(f"  {what}: shape {tuple(found.shape)}, given {tuple(wanted.shape)}")
        return
    difference = float((found.double() - wanted.double()).abs().max()) if wanted.numel() else 0.0
    if not difference <= tolerance:
        FAILED.append(what)
    print(f"  {what}: {difference:.2e}{'' if difference <= tolerance else '   DIFFERS'}")


def calls_of(data: dict) -> list:
    """The calls of a generation from its `in_*` tensors."""
    count = data["out"].shape[0]
    calls = []
    for n in range(count):
        call = {"user": data["in_user"][n].long()}
        for name, key in (("agent", "in_agent"), ("text", "in_text")):
            if key in data and (data[key][n] >= 0).any():
                call[name] = data[key][n].long()
        calls.append(call)
    return calls


def check_lm(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())["config"]
    models = Models(config, load(folder / "weights.safetensors"))
    for name, model, tolerance in (("forward_f32", models.full, 1e-5), ("forward_bf16", models.half, 0.0),
                                   (f"forward_ctx{WINDOW}_f32", models.window(WINDOW), 1e-5)):
        given = load(folder / f"{name}.safetensors")
        found = lm.forward_stages(model, given["codes"].long())
        for key, wanted in given.items():
            compare(f"{name}.{key}", found[key], wanted, tolerance if wanted.is_floating_point() else 0.0)
    for name in ("gen_plain", "gen_batch2", "gen_prompt", "gen_injection", f"gen_ctx{WINDOW}"):
        given = load(folder / f"{name}.safetensors")
        model = models.short if name == f"gen_ctx{WINDOW}" else models.full
        found = run(model, calls_of(given)).log.tensors()
        for key, wanted in given.items():
            if key == "n_prompt_calls":
                continue
            value = found[key]
            if key in ("sampled_audio", "audio_logits"):
                value, wanted = value[:, :, :-1], wanted[:, :, :-1]
            compare(f"{name}.{key}", value, wanted, 1e-4 if wanted.is_floating_point() else 0.0)
    check_voice(folder, models)


def check_voice(folder: Path, models: Models) -> None:
    saved, given = torch.load(folder / "voice.pt"), load(folder / "voice_pt.safetensors")
    prompt = load(folder / "gen_prompt.safetensors")
    frames = given["embeddings"].shape[0] + 1
    live = run(models.full, calls_of(prompt)[:frames])
    compare("voice.embeddings", torch.stack(live.log.embeddings), given["embeddings"], 1e-6)
    compare("voice.cache", live.ring, given["cache"])
    for key, value in saved.items():
        compare(f"voice.pt.{key} {value.dtype}", value.float(), given[key].float())


def check_mimi(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    weights = load(folder / "weights.safetensors")
    build = lambda **changes: mimi.load(mimi.build(config, **changes), weights)
    codec, given = build(), load(folder / "codec_12f.safetensors")
    found = mimi.whole(codec, given["wave"])
    latent, codes = mimi.stream_encode(codec, given["wave"])
    found |= {"stream_latent": latent, "stream_codes": codes, "stream_decoded": mimi.stream_decode(codec, codes),
              "stream_decoded_of_codes": mimi.stream_decode(codec, found["codes"])}
    for key, wanted in given.items():
        compare(f"codec_12f.{key}", found[key], wanted, 1e-5)
    given = load(folder / "codec_batch2_5f.safetensors")
    latent, codes = mimi.stream_encode(codec, given["wave"])
    compare("codec_batch2_5f.stream_latent", latent, given["stream_latent"], 1e-5)
    compare("codec_batch2_5f.stream_codes", codes, given["stream_codes"])
    given = load(folder / "codec_ragged.safetensors")
    compare("codec_ragged.codes but the last", codec.encode(given["wave"])[..., :-1], given["codes"][..., :-1])
    given = load(folder / "codec_ctx10.safetensors")
    short = build(context=SHORT_WINDOW)
    found = mimi.whole(short, given["wave"]) | {"decoded": short.decode(given["decode_codes"].long())}
    for key in ("latent", "codes", "decoded"):
        compare(f"codec_ctx10.full_{key}", found[key], given[f"full_{key}"], 1e-5)
    given = load(folder / "codec_12codebooks.safetensors")
    compare("codec_12codebooks.codes", build(levels=config["quantizer"]["n_q"]).encode(given["wave"]), given["codes"])


def check_e2e(folder: Path) -> None:
    given = load(folder / "e2e_tiny/e2e.safetensors")
    text = json.loads((folder / "e2e_tiny/config.json").read_text())["text_prompt_tokens"]
    found, _ = talk(Pair(folder), given["voice_wave"][None, None], given["user_wave"][None, None], text)
    for key in ("voice_codes", "user_codes", "out_tokens"):
        compare(f"e2e.{key}", found[key][0], given[key])
    compare("e2e.out_wave", found["out_wave"][0, 0], given["out_wave"], 1e-4)


def check_json(what: str, found, wanted, relative: float = 1e-6) -> None:
    """Numbers within a relative tolerance, everything else equal; texts that only explain are not compared."""
    if isinstance(wanted, dict):
        for key in wanted:
            if key not in ("note", "multiplier_on", "grad_has_nan_at_nan_logits"):
                check_json(f"{what}.{key}", found.get(key), wanted[key], relative)
    elif isinstance(wanted, list) and isinstance(found, (list, tuple)) and len(found) == len(wanted):
        for i, (a, b) in enumerate(zip(found, wanted)):
            check_json(f"{what}[{i}]", a, b, relative)
    elif isinstance(wanted, float) and isinstance(found, float):
        if abs(found - wanted) > relative * abs(wanted) + 1e-12:
            FAILED.append(f"{what}: {found}, given {wanted}")
    elif found != wanted:
        FAILED.append(f"{what}: {found}, given {wanted}")


def check_c_lora(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    base = lm.load(lm.build(expected["config"]), load(folder / "base_personaplex_names.safetensors"))
    io = load(folder / "io.safetensors")
    data = Data(base, io["codes"].long(), load(folder / "lora_all.safetensors"), expected["rank"], expected["scaling"])
    found, runs = data.outputs("base", base), {"base": data.losses(base)}
    for name in ("all", "backbone"):
        outputs, gradients, runs[name] = data.run(name, data.adapted(name))
        found |= outputs
        wanted = load(folder / f"grads_{name}.safetensors")
        apart = max(float((gradients[n] - w).abs().max()) for n, w in wanted.items())
        compare(f"c_lora.grads_{name} {len(gradients)} tensors", torch.tensor(apart), torch.tensor(0.0), 1e-6)
    for key, wanted in io.items():
        if key != "codes":
            compare(f"c_lora.{key}", found[key], wanted, 1e-5)
    whole = lm.published_names(merged(data.adapted("all")))
    wanted = load(folder / "merged_all_personaplex_names.safetensors")
    apart = max(float((whole[n] - w).abs().max()) for n, w in wanted.items())
    compare(f"c_lora.merged {len(whole)} tensors", torch.tensor(apart), torch.tensor(0.0), 1e-6)
    check_json("c_lora.runs", runs, expected["runs"], 1e-5)


def check_b_loss(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text())
    results, gradients = cases(load(folder / "inputs.safetensors"), expected["prompt_lengths"])
    named = {case["name"]: case for case in results}
    check_json("b_loss", named, {case["name"]: case for case in expected["results"]}, 1e-5)
    for name, wanted in load(folder / "grads.safetensors").items():
        compare(f"b_loss.{name}", gradients[name], wanted, 1e-7)


def check_d_optim(folder: Path) -> None:
    for given in json.loads((folder / "onecycle.json").read_text())["tables"]:
        at = given.get("step_index", [])
        mine = table(given["total_steps"], given["pct_start"], given["max_lr"])
        if "error" in given:
            check_json("d_optim.onecycle", mine, given)
            continue
        place = {step: i for i, step in enumerate(mine["step_index"])}
        shared = [i for i, step in enumerate(at) if step in place]
        for key in ("lr", "beta1"):
            check_json(f"d_optim.{key}", [mine[key][place[at[i]]] for i in shared], [given[key][i] for i in shared], 1e-12)
        check_json("d_optim.phases", mine["phases"], given["phases"])
    given = load(folder / "trace.safetensors")
    record = json.loads((folder / "trace.json").read_text())
    for name, kind, micro in (("f32_1", torch.float32, 1), ("f32_2", torch.float32, 2),
                              ("bf16_1", torch.bfloat16, 1), ("bf16_2", torch.bfloat16, 2)):
        with torch.enable_grad():
            steps, found = trace(given, kind, micro)
        tolerance = 2e-6 if kind == torch.float32 else 2e-3
        for key, value in found.items():
            compare(f"d_optim.{name}.{key}", value, given[f"{name}.{key}"], tolerance)
        check_json(f"d_optim.{name}", steps, record["traces"][name], 1e-5 if kind == torch.float32 else 1e-2)
        check_json("d_optim.steps", len(steps), STEPS)


def check_checkpoint(folder: Path) -> None:
    out = folder.parent.parent
    read = lambda root, name: json.loads((root / f"personaplex/checkpoint/{name}").read_text())
    with tempfile.TemporaryDirectory() as mine:
        make_checkpoint.make(Path(mine), None, 0)
        for name in ("personaplex_names.json", "mimi_names.json", "dep8_to_dep16.json"):
            check_json(f"checkpoint.{name}", read(Path(mine), name), read(out, name))
            check_json(f"checkpoint.{name} count", len(read(Path(mine), name)), len(read(out, name)))


def main() -> int:
    torch.set_num_threads(1)
    tree = Path(sys.argv[1])
    with torch.no_grad():
        for name, check in (("lm_tiny", check_lm), ("mimi_tiny", check_mimi)):
            print(name)
            check(tree / "personaplex" / name)
        print("e2e_tiny")
        check_e2e(tree / "personaplex")
        check_checkpoint(tree / "personaplex/checkpoint")
    print("finetune")
    check_c_lora(tree / "finetune/c_lora")
    check_b_loss(tree / "finetune/b_loss")
    check_d_optim(tree / "finetune/d_optim")
    print(f"{len(FAILED)} differences" + "".join(f"\n  {what}" for what in FAILED))
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
