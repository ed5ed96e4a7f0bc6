"""personaplex/ogg_opus: a stream of the writer that the published server uses (sphn), decoded again."""

from pathlib import Path

import numpy
import sphn
import torch

from parity.codec import FRAME, draw_wave
from parity.files import generator, save

SEED = 20260105


def make(out: Path, shape, seed: int) -> None:
    folder, frames = out / "personaplex/ogg_opus", shape.opus_frames
    pcm = draw_wave(generator(seed, "opus"), 1, frames * FRAME)[0, 0]
    writer, reader = sphn.OpusStreamWriter(24000), sphn.OpusStreamReader(24000)
    chunks = [writer.append_pcm(part.numpy()) for part in pcm.split(FRAME)]
    decoded = [reader.append_bytes(chunk) for chunk in chunks]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "writer_stream.ogg").write_bytes(b"".join(chunks))
    save(folder / "opus.safetensors", {
        "pcm_in": pcm, "pcm_decoded": torch.from_numpy(numpy.concatenate(decoded)),
        "chunk_bytes": torch.tensor([len(chunk) for chunk in chunks]),
        "decoded_per_chunk": torch.tensor([len(part) for part in decoded]),
    })
