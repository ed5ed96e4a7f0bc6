"""personaplex/e2e_tiny: wave to wave through codec, prompt and language model of the same tree."""

import json
from pathlib import Path

import torch

from make_lm_tiny import ANY_MARGIN, USED_MARGIN
from make_mimi_tiny import MARGIN
from parity import codec as mimi
from parity import lm
from parity.files import Unclear, generator, integers, load, save, save_json
from parity.stream import Caller, prompt_calls

SEED = 20260104
CANDIDATES, ROUNDS, PAUSE = 12, 20, 6


def make(out: Path, shape, seed: int) -> None:
    """Needs personaplex/lm_tiny and personaplex/mimi_tiny of the same tree."""
    pair = Pair(out / "personaplex")
    sizes = shape.end_to_end
    text = integers(generator(seed, "text prompt"), shape.lm.text_card, sizes.text, low=4).tolist()
    for attempt in range(ROUNDS):
        g = generator(seed, "e2e", attempt)
        voice = mimi.draw_wave(g, CANDIDATES, (sizes.voice_frames - 1) * mimi.FRAME + sizes.voice_rest)
        user = mimi.draw_wave(g, CANDIDATES, sizes.user_frames * mimi.FRAME)
        _, clear = talk(pair, voice, user, text)
        if clear.any():
            i = int(clear.nonzero()[0])
            return write(out / "personaplex/e2e_tiny", pair, voice[i:i + 1], user[i:i + 1], text)
    raise Unclear(f"no call of {ROUNDS * CANDIDATES} chooses clearly")


class Pair:
    """Both models of a tree and the constants that its prompts use."""

    def __init__(self, folder: Path):
        config = json.loads((folder / "lm_tiny/config.json").read_text())
        self.silence, self.sine = config["silence_tokens"], config["sine_tokens"]
        self.lm = lm.load(lm.build(config["config"]), load(folder / "lm_tiny/weights.safetensors"))
        codec = json.loads((folder / "mimi_tiny/config.json").read_text())
        self.mimi = mimi.load(mimi.build(codec), load(folder / "mimi_tiny/weights.safetensors"))


def talk(pair: Pair, voice: torch.Tensor, user: torch.Tensor, text: list) -> tuple:
    """Tensors of a call (batched) and which of its batch entries chose clearly everywhere."""
    filled = torch.nn.functional.pad(voice, (0, -voice.shape[-1] % mimi.FRAME))
    voice_latent, voice_codes = mimi.stream_encode(pair.mimi, filled)
    user_latent, user_codes = mimi.stream_encode(pair.mimi, user)
    prompt = prompt_calls(voice_codes, pair.silence, pair.sine, text, pause=PAUSE)
    with Caller(pair.lm, voice.shape[0]) as caller:
        for call in prompt:
            caller.call(**call)
        frames = [caller.call(user=user_codes[:, :, f]) for f in range(user_codes.shape[-1])]
    tokens = torch.stack(frames, 1)
    wave = mimi.stream_decode(pair.mimi, tokens[:, :, 1:9].transpose(1, 2))
    codec_margin = torch.minimum(mimi.margins(pair.mimi, voice_latent).amin(1),
                                 mimi.margins(pair.mimi, user_latent).amin(1))
    text_margin, audio_margin, every = caller.margins()
    clear = (torch.minimum(text_margin, audio_margin) >= USED_MARGIN) & (every >= ANY_MARGIN) & (codec_margin >= MARGIN)
    return {
        "voice_codes": voice_codes.transpose(1, 2), "user_codes": user_codes.transpose(1, 2), "out_tokens": tokens,
        "out_wave": wave, "codec_margin": codec_margin, "margin": torch.stack([text_margin, audio_margin], 1),
        "calls": len(prompt),
    }, clear


def write(folder: Path, pair: Pair, voice: torch.Tensor, user: torch.Tensor, text: list) -> None:
    call, clear = talk(pair, voice, user, text)
    if not clear.all():
        raise RuntimeError("a call that was clear in a batch is not clear alone")
    tensors = {k: call[k][0] for k in ("voice_codes", "user_codes", "out_tokens")}
    save(folder / "e2e.safetensors", tensors | {"voice_wave": voice[0, 0], "user_wave": user[0, 0],
                                                "out_wave": call["out_wave"][0, 0]})
    save_json(folder / "config.json", {
        "min_centroid_margin": float(call["codec_margin"][0]), "margin_text_audio": call["margin"][0].tolist(),
        "out_wave_std": float(call["out_wave"].std()), "prompt_calls": call["calls"], "silence_frames": PAUSE,
        "text_prompt_tokens": text, "user_frames": user.shape[-1] // mimi.FRAME,
        "voice_frames": call["voice_codes"].shape[1],
    })
