#!/usr/bin/env python3
"""Copies the full golden tree into this folder without what no test needs or what other files of the tree already say.

Usage: python trim.py FULL [TARGET]      (standard library only; TARGET is this script's folder by default)

JSON files are written without spaces; tensors that are kept keep their bytes. What is dropped, and why, is listed in
`DROPPED`; tests compare these tensors where a tree has them. A missing file is a fault of the tree and fails its test.
"""

import hashlib
import json
import struct
import sys
from fnmatch import fnmatch
from pathlib import Path

# Sets in full; of speech/ only what the aligner is tested with.
SETS = ("personaplex/*", "finetune/*", "speech/ctc_align", "speech/gmm_align")

LIMIT = 8_000_000

# File pattern, tensor pattern, reason.
DROPPED = (
    ("personaplex/lm_tiny/gen_prompt.*", "audio_logits",
     "gen_plain has them for every step; here the choices are pinned by sampled_audio and out"),
    ("personaplex/lm_tiny/gen_injection.*", "audio_logits", "as gen_prompt"),
    ("personaplex/lm_tiny/gen_ctx8.*", "audio_logits", "as gen_prompt; the window is a matter of the backbone"),
    ("personaplex/lm_tiny/gen_*", "cache_after", "the published generator's inner ring; rows and out say what it holds"),
    ("personaplex/lm_tiny/gen_*", "provided_after", "the published generator's inner bitmap; in_* say what was given"),
    ("personaplex/lm_tiny/gen_*", "offset_after", "the number of the call"),
    ("personaplex/lm_tiny/gen_injection.*", "text_logits", "as its audio_logits; out says which token was chosen"),
    ("personaplex/lm_tiny/gen_ctx8.*", "text_logits", "follow from hidden, which is compared in every step"),
    ("personaplex/lm_tiny/forward_ctx8_f32.*", "depformer_*", "forward_f32 has them; the window does not reach them"),
    ("personaplex/lm_tiny/forward_ctx8_f32.*", "audio_logits", "audio_ce pins them per position"),
    ("personaplex/lm_tiny/forward_bf16.*", "depformer_*", "in bf16 hidden states and logits are compared"),
    ("personaplex/mimi_tiny/codec_12f.*", "stream_decoded_of_codes", "streamed and whole codes are equal, so it is stream_decoded"),
    ("personaplex/mimi_tiny/codec_ctx10.*", "stream_decoded_of_codes",
     "up to the window full_decoded says it; after it the published stream loses keys, ours does not"),
    ("personaplex/ogg_opus/opus.*", "pcm_in", "what was encoded: decoders are compared with pcm_decoded"),
)

# Of the merged model: what merging leaves alone equals the base, and the second depformer layer repeats the first.
MERGED, BASE = "finetune/c_lora/merged_all_personaplex_names.safetensors", "base_personaplex_names.safetensors"
REPEATED = "depformer.layers.[1-9]*"


def read(path: Path) -> tuple:
    """Header (name -> dtype, shape), bytes per tensor and metadata of a safetensors file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", None)
    body = data[8 + length:]
    return header, {n: body[slice(*h["data_offsets"])] for n, h in header.items()}, metadata


def write(path: Path, header: dict, tensors: dict, metadata) -> None:
    out, body = ({"__metadata__": metadata} if metadata else {}), b""
    # Wide kinds first, so that every tensor starts at a multiple of its element size.
    for name in sorted(tensors, key=lambda n: (-int("".join(filter(str.isdigit, header[n]["dtype"])) or 8), n)):
        out[name] = {"dtype": header[name]["dtype"], "shape": header[name]["shape"],
                     "data_offsets": [len(body), len(body) + len(tensors[name])]}
        body += tensors[name]
    text = json.dumps(out, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def unwanted(relative: str, source: Path, tensors: dict) -> set:
    out = {n for n in tensors for file, tensor, _ in DROPPED if fnmatch(relative, file) and fnmatch(n, tensor)}
    if relative == MERGED:
        _, base, _ = read(source.with_name(BASE))
        out |= {n for n, value in tensors.items() if base[n] == value or fnmatch(n, REPEATED)}
    return out


def copy(full: Path, source: Path, target: Path) -> None:
    relative = source.relative_to(full).as_posix()
    place = target / relative
    place.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".safetensors":
        header, tensors, metadata = read(source)
        drop = unwanted(relative, source, tensors)
        if drop:
            write(place, header, {n: v for n, v in tensors.items() if n not in drop}, metadata)
            print(f"{relative}: without {', '.join(sorted(drop)) if len(drop) < 6 else f'{len(drop)} tensors'}")
            return
    data = source.read_bytes()
    if source.suffix == ".json":
        data = json.dumps(json.loads(data), separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    place.write_bytes(data)


def main() -> int:
    full = Path(sys.argv[1])
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent
    for pattern in SETS:
        for entry in sorted(full.glob(pattern)):
            for source in sorted(entry.rglob("*")) if entry.is_dir() else [entry]:
                if source.is_file() and source.name != "SHA256SUMS":
                    copy(full, source, target)
    files = sorted(p for p in target.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    size = sum(p.stat().st_size for p in files)
    sums = [p for p in files if p.is_relative_to(target / "personaplex") and p.name != "SHA256SUMS"]
    (target / "personaplex/SHA256SUMS").write_text("".join(
        f"{hashlib.sha256(p.read_bytes()).hexdigest()}  ./{p.relative_to(target / 'personaplex').as_posix()}\n" for p in sums))
    print(f"{size} bytes in {target}, of {LIMIT}")
    return 0 if size <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
