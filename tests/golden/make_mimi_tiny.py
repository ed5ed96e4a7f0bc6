"""personaplex/mimi_tiny: the codec on whole signals, streams, a batch, a ragged end, a short window, all levels."""

from pathlib import Path

import torch

from parity import codec as mimi
from parity.files import Unclear, generator, save, save_json

WEIGHT_SEED = 20260102
MARGIN = 1e-3
CANDIDATES, ROUNDS = 16, 12
SHORT_WINDOW = 10  # the window that the file's name states


def make(out: Path, shape, seed: int) -> None:
    folder, sizes = out / "personaplex/mimi_tiny", shape.mimi
    config = sizes.config()
    weights = mimi.draw_weights(mimi.build(config), seed)
    save(folder / "weights.safetensors", weights)
    codec = mimi.load(mimi.build(config), weights)
    checks = {"codec_12f": whole_and_stream(folder, codec, sizes, seed)}
    two_signals(folder, codec, sizes, seed)
    checks["ragged"] = ragged(folder, codec, sizes, seed)
    short = mimi.load(mimi.build(config, context=SHORT_WINDOW), weights)
    checks["ctx10"] = short_window(folder, codec, short, sizes, seed)
    all_levels(folder, mimi.load(mimi.build(config, levels=sizes.n_q), weights), sizes, seed)
    save_json(folder / "config.json", config | {"checks": checks, "weight_seed": seed})


def clear_wave(codec, seed: int, what: str, samples: int, wanted: int = 1) -> tuple:
    """The first `wanted` candidates whose codes are clear choices: `[wanted, 1, samples]` and the smallest margin per
    level. A ragged end is judged with the zeros that fill it."""
    for attempt in range(ROUNDS):
        waves = mimi.draw_wave(generator(seed, what, attempt), CANDIDATES, samples)
        filled = torch.nn.functional.pad(waves, (0, -samples % mimi.FRAME))
        with torch.no_grad():
            margins = mimi.margins(codec, codec.encode_to_latent(filled, quantize=False))
        clear = (margins.amin(1) >= MARGIN).nonzero()[:, 0]
        if len(clear) >= wanted:
            return waves[clear[:wanted]], margins[clear[:wanted]].amin(0).tolist()
    raise Unclear(f"{what}: no wave of {ROUNDS * CANDIDATES} gives clear codes")


def whole_and_stream(folder: Path, codec, sizes, seed: int) -> dict:
    wave, margins = clear_wave(codec, seed, "codec_12f", sizes.frames * mimi.FRAME)
    tensors = mimi.whole(codec, wave)
    latent, codes = mimi.stream_encode(codec, wave)
    tensors |= {"stream_latent": latent, "stream_codes": codes, "stream_decoded": mimi.stream_decode(codec, codes),
                "stream_decoded_of_codes": mimi.stream_decode(codec, tensors["codes"])}
    if not torch.equal(codes, tensors["codes"]):
        raise RuntimeError("whole and streamed codes differ")
    save(folder / "codec_12f.safetensors", tensors)
    apart = lambda a, b: float((tensors[a] - tensors[b]).abs().max())
    return {"codes_equal": True, "latent_diff": apart("latent", "stream_latent"),
            "decoded_diff": apart("decoded", "stream_decoded"), "min_centroid_margin": margins,
            "decoded_std": float(tensors["decoded"].std()), "latent_std": float(tensors["latent"].std()),
            "unique_codes_per_level": [len(level.unique()) for level in codes[0]]}


def two_signals(folder: Path, codec, sizes, seed: int) -> None:
    waves, _ = clear_wave(codec, seed, "codec_batch2_5f", sizes.batch_frames * mimi.FRAME, wanted=2)
    latent, codes = mimi.stream_encode(codec, waves)
    save(folder / "codec_batch2_5f.safetensors", {"wave": waves, "stream_latent": latent, "stream_codes": codes,
                                                  "stream_decoded": mimi.stream_decode(codec, codes)})


def ragged(folder: Path, codec, sizes, seed: int) -> dict:
    """The package fills the wave with zeros first, as the product does; the reference pads at every convolution."""
    wave, _ = clear_wave(codec, seed, "codec_ragged", sizes.ragged_samples)
    with torch.no_grad():
        latent = codec.encode_to_latent(wave, quantize=False)
        codes = codec.encode(wave)
        decoded = codec.decode(codes)
    save(folder / "codec_ragged.safetensors", {"wave": wave, "latent": latent, "codes": codes, "decoded": decoded})
    return {"decoded_len": decoded.shape[-1], "frames": codes.shape[-1]}


def short_window(folder: Path, wide, codec, sizes, seed: int) -> dict:
    """Past the window the package's stream, fed two steps at a time, loses a key for the first of the two. What is
    decoded are the codes of the same wave without that limit."""
    wave, _ = clear_wave(codec, seed, "codec_ctx10", sizes.frames * mimi.FRAME)
    full = mimi.whole(codec, wave)
    latent, codes = mimi.stream_encode(codec, wave)
    with torch.no_grad():
        to_decode = wide.encode(wave)
        decoded = codec.decode(to_decode)
    save(folder / "codec_ctx10.safetensors", {
        "wave": wave, "full_latent": full["latent"], "full_codes": full["codes"], "full_decoded": decoded,
        "stream_latent": latent, "stream_codes": codes, "decode_codes": to_decode,
        "stream_decoded_of_codes": mimi.stream_decode(codec, to_decode),
    })
    apart = (latent - full["latent"]).abs().amax((0, 1)) > 1e-4
    return {"first_latent_diff_frame": int(apart.nonzero()[0]) if apart.any() else None}


def all_levels(folder: Path, codec, sizes, seed: int) -> None:
    # Deep levels are fine: the margin of a wave is that of its deepest level.
    wave, _ = clear_wave(codec, seed, "codec_12codebooks", sizes.all_levels_frames * mimi.FRAME)
    with torch.no_grad():
        save(folder / "codec_12codebooks.safetensors", {"wave": wave, "codes": codec.encode(wave)})
