"""Streaming generation on the primitives of PyPI's `moshi`: greedy, one call per frame, in the published order.

The package's own generator cannot give the user's streams to a model that predicts all sixteen codebooks, so the loop
is written here. A call writes what is given into a ring of rows (each stream at its delay), feeds the row before the
call's row, decides the call's row, and returns the frame that this row completes.
"""

from dataclasses import dataclass, field

import torch

NOT_GIVEN, NOTHING, UNGENERATED = -1, -3, -2


@dataclass
class Log:
    """What every call took and gave; the model's outputs start with the second call."""

    calls: dict = field(default_factory=dict)
    passes: dict = field(default_factory=dict)
    embeddings: list = field(default_factory=list)
    used_gap: list = field(default_factory=list)
    any_gap: list = field(default_factory=list)

    def tensors(self) -> dict:
        return {k: torch.stack(v) for k, v in (self.calls | self.passes).items()}


class Caller:
    """One or more conversations stepped together; use inside `with caller:`."""

    def __init__(self, model, batch: int):
        self.model, self.batch, self.log = model, batch, Log()
        self.delays = model.delays
        self.slots = max(self.delays) + 3
        streams = len(self.delays)
        self.ring = torch.full((batch, streams, self.slots), UNGENERATED)
        self.provided = torch.zeros((batch, streams, self.slots), dtype=torch.bool)
        self.initial = torch.full((batch, streams), model.card)
        self.initial[:, 0] = model.text_card
        self.offset = 0
        self.replayed = None

    def __enter__(self):
        self.scope = self.model.streaming(self.batch)
        self.scope.__enter__()
        self.hook = self.model.transformer.register_forward_pre_hook(self._embedding)
        return self

    def __exit__(self, *error):
        self.hook.remove()
        return self.scope.__exit__(*error)

    def _embedding(self, _, arguments):
        self.log.embeddings.append(arguments[0].clone())

    @torch.no_grad()
    def replay(self, embeddings: torch.Tensor, cache: torch.Tensor) -> None:
        """Continues after a saved voice prompt: `embeddings` `[F - 1, B, 1, dim]` are rows 0.., `cache` the ring."""
        for embedding in embeddings:
            self.model.transformer(embedding)
        self.ring = cache.clone()
        self.offset = embeddings.shape[0] + 1
        # The last voice frame's delayed codes belong to rows that are still to be decided.
        self.provided.zero_()
        for stream, delay in enumerate(self.delays):
            for ahead in range(delay):
                self.provided[:, stream, (self.offset + ahead) % self.slots] = True

    @torch.no_grad()
    def call(self, user=None, agent=None, text=None):
        """`user` and `agent` `[B, 8]`, `text` `[B]`; None = not given. Returns `[B, 17]` or None."""
        given = self._given(user, agent, text)
        t, slot = self.offset, self.offset % self.slots
        for stream, delay in enumerate(self.delays):
            at, value = (t + delay) % self.slots, given[:, stream]
            there = value != NOT_GIVEN
            self.ring[:, stream, at] = torch.where(there, value, self.ring[:, stream, at])
            self.provided[:, stream, at] |= there
            if t <= delay:
                self.ring[:, stream, slot] = self.initial[:, stream]
                self.provided[:, stream, slot] = True
        out = None
        if t > 0:
            self._decide(t, slot)
            if t > max(self.delays):
                out = torch.stack([self.ring[:, k, (t - 1 + d) % self.slots] for k, d in enumerate(self.delays)], 1)
        self.offset += 1
        nothing = torch.full((self.batch, len(self.delays)), NOTHING)
        self._note(self.log.calls, in_user=given[:, 9:], in_agent=given[:, 1:9], in_text=given[:, 0],
                   out=nothing if out is None else out, out_valid=torch.tensor(out is not None),
                   cache_after=self.ring, provided_after=self.provided, offset_after=torch.tensor(self.offset))
        return out

    def _given(self, user, agent, text):
        given = torch.full((self.batch, len(self.delays)), NOT_GIVEN)
        for value, place in ((text, slice(0, 1)), (agent, slice(1, 9)), (user, slice(9, 17))):
            if value is not None:
                given[:, place] = value.view(-1, place.stop - place.start)
        return given

    def _decide(self, t: int, slot: int) -> None:
        before = (t - 1) % self.slots
        row = self.ring[:, :, before].clone()
        hidden, text_logits = self.model.forward_text(row[:, :, None])
        text_logits = text_logits[:, 0, 0]
        fixed = self.provided[:, :, slot]
        token = torch.where(fixed[:, 0], self.ring[:, 0, slot], text_logits.argmax(-1))
        used, sampled, logits = [token], [], []
        with self.model.depformer.streaming(self.batch):
            for step in range(self.model.dep_q):
                scores = self.model.forward_depformer(step, token[:, None, None], hidden)[:, 0, 0]
                best = scores.argmax(-1)
                token = torch.where(fixed[:, step + 1], self.ring[:, step + 1, slot], best)
                used.append(token)
                sampled.append(best)
                logits.append(scores)
        audio_logits = torch.stack(logits, 1)
        self._gaps(text_logits, audio_logits, fixed)
        self.ring[:, :, slot] = torch.stack(used, 1)
        self.provided[:, :, before] = False
        self._note(self.log.passes, rows=row, hidden=hidden[:, 0], text_logits=text_logits,
                   sampled_audio=torch.stack(sampled, 1), audio_logits=audio_logits)

    def _gaps(self, text_logits, audio_logits, fixed) -> None:
        """Distance between the best and the second best logit: `[B, 17]`, infinite where the choice was forced."""
        gap = lambda x: x.float().topk(2, -1).values.diff(dim=-1).abs()[..., 0]
        gaps = torch.cat([gap(text_logits)[:, None], gap(audio_logits)], 1)
        self.log.any_gap.append(gaps)
        self.log.used_gap.append(torch.where(fixed, torch.inf, gaps))

    @staticmethod
    def _note(store: dict, **values) -> None:
        for name, value in values.items():
            store.setdefault(name, []).append(value.clone())

    def margins(self) -> tuple:
        """Per conversation: smallest gap of the text and of the audio choices that were used, and of all choices."""
        used, every = torch.stack(self.log.used_gap), torch.stack(self.log.any_gap)
        return used[..., 0].amin(0), used[..., 1:].amin((0, 2)), every.amin((0, 2))


def prompt_calls(voice, silence, sine, text_tokens, pad: int = 3, pause: int = 6):
    """The four prompt phases as keyword arguments of `Caller.call`; `voice` `[B, 8, F]` codes of the voice clip."""
    batch = voice.shape[0]
    codes = lambda values: torch.tensor(values).expand(batch, -1)
    text = lambda value: torch.full((batch,), value)
    quiet = lambda value: {"user": codes(sine), "agent": codes(silence), "text": text(value)}
    calls = [{"user": codes(sine), "agent": voice[:, :, f], "text": text(pad)} for f in range(voice.shape[2])]
    return calls + [quiet(pad)] * pause + [quiet(token) for token in text_tokens] + [quiet(pad)] * pause
