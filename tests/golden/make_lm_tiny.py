"""personaplex/lm_tiny: full forwards, greedy generations, a saved voice prompt."""

from pathlib import Path

import torch

from parity import lm
from parity.files import Unclear, generator, integers, load, save, save_json
from parity.stream import Caller, prompt_calls

SILENCE = [948, 243, 1178, 546, 1736, 1030, 1978, 2008]
SINE = [430, 1268, 381, 1611, 1095, 1495, 56, 472]
WEIGHT_SEED = 20260101
USED_MARGIN, ANY_MARGIN = 4e-3, 1e-3
CANDIDATES, ROUNDS = 24, 20
WINDOW = 8  # the window that file names state


def make(out: Path, shape, seed: int) -> None:
    folder, sizes = out / "personaplex/lm_tiny", shape.lm
    config = sizes.config()
    weights = lm.draw_weights(lm.build(config), seed, gain=1.3, spread=0.2, embedding=0.6, head=4.0)
    save(folder / "weights.safetensors", {n: w.to(torch.bfloat16) for n, w in weights.items()})
    models = Models(config, load(folder / "weights.safetensors"))
    forwards(folder, models, sizes, seed)
    constants = {"silence": [t % sizes.card for t in SILENCE], "sine": [t % sizes.card for t in SINE]}
    checks = plain(folder, models, shape, seed) | prompted(folder, models, shape, seed, constants)
    save_json(folder / "config.json", {
        "checks": checks, "config": config, "silence_tokens": constants["silence"],
        "sine_tokens": constants["sine"], "weight_seed": seed,
        "weights_dtype": "bf16 (values are exactly representable; the numbers were computed after an upcast to f32)",
    })


class Models:
    """The model in f32, in f32 with other windows, and in bf16, all with the same weights."""

    def __init__(self, config: dict, weights: dict):
        self.config, self.weights = config, weights
        self.full = self.window(config["context"])
        # The published generator loses a key once its ring is full: its window of 8 is a right one of 7.
        self.short = self.window(WINDOW - 1)
        # The package makes some norms f32 whatever was asked for; the product rounds everything.
        self.half = lm.load(lm.build(config, torch.bfloat16).to(torch.bfloat16), weights)

    def window(self, context: int):
        return lm.load(lm.build(self.config, context=context), self.weights)


def forwards(folder: Path, models: Models, sizes, seed: int) -> None:
    codes = lm.draw_codes(seed, sizes, 2, sizes.frames)
    save(folder / "forward_f32.safetensors", lm.forward_stages(models.full, codes))
    save(folder / "forward_bf16.safetensors", lm.forward_stages(models.half, codes))
    codes = lm.draw_codes(seed, sizes, 1, sizes.long_frames)
    save(folder / f"forward_ctx{WINDOW}_f32.safetensors", lm.forward_stages(models.window(WINDOW), codes))


def run(model, calls: list) -> Caller:
    """Plays calls (keyword arguments of `Caller.call`) in a fresh state."""
    batch = next(v.shape[0] for c in calls for v in c.values() if v is not None)
    with Caller(model, batch) as caller:
        for call in calls:
            caller.call(**call)
    return caller


def user_calls(users: torch.Tensor) -> list:
    """`users` `[B, N, 8]`."""
    return [{"user": users[:, n]} for n in range(users.shape[1])]


def first_clear(players, seed: int, what: str, draw):
    """The first candidate all of whose generations choose clearly. `draw(g, n)` draws n candidates, `players` are
    functions from candidates to `Caller`s; also returns how many candidates were looked at."""
    for attempt in range(ROUNDS):
        candidates = draw(generator(seed, what, attempt), CANDIDATES)
        clear = torch.ones(CANDIDATES, dtype=torch.bool)
        for play in players:
            text, audio, every = play(candidates).margins()
            clear &= (torch.minimum(text, audio) >= USED_MARGIN) & (every >= ANY_MARGIN)
        if clear.any():
            index = int(clear.nonzero()[0])
            return tuple(c[index:index + 1] for c in candidates), attempt * CANDIDATES + index + 1
    raise Unclear(f"{what}: no candidate of {ROUNDS * CANDIDATES} chooses clearly")


def margin(caller: Caller) -> list:
    text, audio, _ = caller.margins()
    return [float(text.min()), float(audio.min())]


def plain(folder: Path, models: Models, shape, seed: int) -> dict:
    calls = shape.generation.calls
    draw = lambda g, n: (integers(g, shape.lm.card, n, calls, 8),)
    play = lambda model: lambda candidates: run(model, user_calls(candidates[0]))
    (user,), tried = first_clear([play(models.full), play(models.short)], seed, "gen_plain", draw)
    (other,), tried_other = first_clear([play(models.full)], seed, "gen_batch2", draw)
    one, short = run(models.full, user_calls(user)), run(models.short, user_calls(user))
    two = run(models.full, user_calls(torch.cat([user, other])))
    save(folder / "gen_plain.safetensors", one.log.tensors())
    save(folder / f"gen_ctx{WINDOW}.safetensors", short.log.tensors())
    both = two.log.tensors()
    keep = ("hidden", "in_user", "out", "out_valid", "text_logits")
    save(folder / "gen_batch2.safetensors", {k: both[k] for k in keep})
    alone = one.log.tensors()
    difference = float((both["hidden"][:, 0] - alone["hidden"][:, 0]).abs().max())
    if not torch.equal(both["out"][:, 0], alone["out"][:, 0]):
        raise RuntimeError("a conversation differs from itself in a batch")
    narrow = stream_against_whole(models.short, short)
    wide = stream_against_whole(models.window(WINDOW), short)["hidden"] > 1e-4
    return {
        "gen_plain": {"margin_text_audio": margin(one), "candidates": tried},
        "gen_ctx8": {"margin_text_audio": margin(short)},
        "gen_batch2": {"margin_text_audio": margin(two), "candidates": tried_other,
                       "hidden_max_abs_diff": difference, "row0_equals_gen_plain": True},
        "stream_vs_full": {k: float(v.max()) for k, v in stream_against_whole(models.full, one).items()},
        "ctx8_stream_vs_full_ctx7": float(narrow["hidden"].max()),
        "ctx8_stream_vs_full_first_diff_row": int(wide.nonzero()[0]),
    }


def stream_against_whole(model, caller: Caller) -> dict:
    """Largest difference per row between a generation and a full forward of what it generated."""
    tensors = caller.log.tensors()
    whole = lm.forward_stages(model, frames_of(tensors))
    rows = whole["hidden"].shape[1]
    apart = lambda a, b: (a - b).abs().amax(-1)
    return {"hidden": apart(whole["hidden"][0], tensors["hidden"][:rows, 0]),
            "text_logits": apart(whole["text_logits"][0, 0], tensors["text_logits"][:rows, 0])}


def frames_of(tensors: dict) -> torch.Tensor:
    """Frames `[1, 17, N - 2]` that the calls returned."""
    return tensors["out"][tensors["out_valid"]].permute(1, 2, 0)


def prompted(folder: Path, models: Models, shape, seed: int, constants: dict) -> dict:
    sizes, plan = shape.lm, shape.generation
    g = generator(seed, "prompt text")
    prompt_text = integers(g, sizes.text_card, plan.text, low=4).tolist()
    context = integers(g, sizes.text_card, plan.context, low=4).tolist()
    visible = integers(g, sizes.text_card, plan.visible, low=4).tolist()
    visible[len(visible) // 2] = 3
    silence, sine = constants["silence"], constants["sine"]
    prompt = lambda voice: prompt_calls(voice, silence, sine, prompt_text)
    after = plan.context_after
    before_visible = after + len(context) + plan.visible_after

    def injected(users):
        calls = user_calls(users)
        for i, token in enumerate(context):
            calls[after + i] |= {"text": torch.full((users.shape[0],), token),
                                 "agent": torch.tensor(silence).expand(users.shape[0], -1)}
        for i, token in enumerate(visible):
            calls[before_visible + i] |= {"text": torch.full((users.shape[0],), token)}
        return calls

    def draw(g, n):
        voice = integers(g, sizes.card, n, 8, plan.voice)
        return voice, integers(g, sizes.card, n, plan.calls, 8)

    plays = [lambda c: run(models.full, prompt(c[0]) + user_calls(c[1])),
             lambda c: run(models.full, prompt(c[0]) + injected(c[1]))]
    (voice, user), tried = first_clear(plays, seed, "gen_prompt", draw)
    count = torch.tensor(len(prompt(voice)))
    checks = {}
    for name, calls in (("gen_prompt", user_calls(user)), ("gen_injection", injected(user))):
        caller = run(models.full, prompt(voice) + calls)
        save(folder / f"{name}.safetensors", caller.log.tensors() | {"n_prompt_calls": count})
        checks[name] = {"margin_text_audio": margin(caller), "candidates": tried}
    first = int(count) + after
    checks["gen_prompt"] |= {"n_prompt_calls": int(count), "text_prompt": prompt_text}
    checks["gen_injection"] |= {
        "context_calls": [first, first + len(context) - 1], "context_tokens": context,
        "visible_calls": [int(count) + before_visible, int(count) + before_visible + len(visible) - 1],
        "visible_tokens": visible,
    }
    tail = prompt(voice)[plan.voice:] + user_calls(user)
    return checks | {"voice_pt": voice_prompt(folder, models, prompt(voice)[: plan.voice], tail)}


def voice_prompt(folder: Path, models: Models, voice_calls: list, tail: list) -> dict:
    """Saves the voice phase as the published server does, and proves that replaying it changes nothing."""
    live = run(models.full, voice_calls)
    embeddings, cache = torch.stack(live.log.embeddings), live.ring.clone()
    torch.save({"embeddings": embeddings, "cache": cache}, folder / "voice.pt")
    save(folder / "voice_pt.safetensors", {"embeddings": embeddings, "cache": cache})
    with Caller(models.full, 1) as caller:
        caller.replay(embeddings, cache)
        for call in tail:
            caller.call(**call)
    found = caller.log.tensors()["out"]
    wanted = load(folder / "gen_prompt.safetensors")["out"][-len(tail):]
    frames = len([c for c in tail if "text" not in c])
    if not torch.equal(found[-frames:].int(), wanted[-frames:]):
        raise RuntimeError("the replayed voice prompt does not continue like the live one")
    return {"cache_shape": list(cache.shape), "embeddings_shape": list(embeddings.shape),
            "offset_after_all": caller.offset, "replay_equals_gen_prompt": True}
