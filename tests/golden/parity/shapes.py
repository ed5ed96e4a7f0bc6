"""Sizes of the golden models: the published tiny ones, or drawn from a seed.

What never varies is what the product's protocol fixes: 17 streams (text, 8 agent, 8 user), 16 depformer steps, 8 active
codebooks, frames of 1920 samples at 24 kHz, the ids 0 and 3 of the text vocabulary, and the windows that file names
state (8 for the language model, 10 for the codec).
"""

import random
from dataclasses import asdict, dataclass, field

DELAYS = [0] + [0, 1, 1, 1, 1, 1, 1, 1] * 2


@dataclass
class Lm:
    dim: int = 64
    heads: int = 4
    layers: int = 2
    hidden_scale: float = 4.125
    context: int = 128
    card: int = 64
    text_card: int = 128
    dep_dim: int = 32
    dep_heads: int = 4
    dep_layers: int = 2
    dep_feedforward: int = 132
    max_period: int = 10000
    frames: int = 12
    long_frames: int = 20

    def config(self) -> dict:
        """Constructor values of the language model, named as the published package names them."""
        return {
            "card": self.card, "causal": True, "context": self.context, "delays": DELAYS, "dep_q": 16,
            "depformer_causal": True, "depformer_context": 8, "depformer_dim": self.dep_dim,
            "depformer_dim_feedforward": self.dep_feedforward, "depformer_gating": "silu",
            "depformer_layer_scale": None, "depformer_max_period": 10000, "depformer_multi_linear": True,
            "depformer_num_heads": self.dep_heads, "depformer_num_layers": self.dep_layers,
            "depformer_pos_emb": "none", "depformer_weights_per_step": True, "dim": self.dim,
            "existing_text_padding_id": 3, "gating": "silu", "hidden_scale": self.hidden_scale,
            "layer_scale": None, "max_period": self.max_period, "n_q": 16, "norm": "rms_norm_f32",
            "num_heads": self.heads, "num_layers": self.layers, "positional_embedding": "rope",
            "text_card": self.text_card,
        }


@dataclass
class Mimi:
    dimension: int = 32
    n_filters: int = 4
    ratios: list = field(default_factory=lambda: [8, 6, 5, 4])
    kernel: int = 7
    last_kernel: int = 3
    residual_kernel: int = 3
    heads: int = 4
    layers: int = 2
    feedforward: int = 64
    context: int = 40
    n_q: int = 12
    bins: int = 64
    code_dimension: int = 16
    frames: int = 12
    batch_frames: int = 5
    ragged_samples: int = 3 * 1920 + 700
    all_levels_frames: int = 4

    def config(self) -> dict:
        """Constructor values of the codec, named as the published package names them."""
        return {
            "active_codebooks": 8, "channels": 1, "frame_rate": 12.5, "sample_rate": 24000,
            "quantizer": {
                "bins": self.bins, "dimension": self.code_dimension, "input_dimension": self.dimension,
                "n_q": self.n_q, "output_dimension": self.dimension,
            },
            "seanet": {
                "activation": "ELU", "causal": True, "channels": 1, "compress": 2, "dilation_base": 2,
                "dimension": self.dimension, "disable_norm_outer_blocks": 0, "kernel_size": self.kernel,
                "last_kernel_size": self.last_kernel, "n_filters": self.n_filters, "n_residual_layers": 1,
                "norm": "none", "pad_mode": "constant", "ratios": self.ratios,
                "residual_kernel_size": self.residual_kernel, "true_skip": True,
            },
            "transformer": {
                "causal": True, "context": self.context, "conv_layout": True, "d_model": self.dimension,
                "dim_feedforward": self.feedforward, "gating": "none", "input_dimension": self.dimension,
                "layer_scale": 0.01, "max_period": 10000, "norm": "layer_norm", "num_heads": self.heads,
                "num_layers": self.layers, "output_dimensions": [self.dimension],
                "positional_embedding": "rope",
            },
        }


@dataclass
class Generation:
    calls: int = 40
    voice: int = 7
    text: int = 10
    context_after: int = 10
    context: int = 9
    visible_after: int = 9
    visible: int = 3


@dataclass
class EndToEnd:
    voice_frames: int = 5
    voice_rest: int = 777
    text: int = 4
    user_frames: int = 16


@dataclass
class Finetune:
    dim: int = 32
    heads: int = 4
    layers: int = 2
    context: int = 12
    card: int = 24
    text_card: int = 60
    dep_dim: int = 16
    dep_heads: int = 2
    dep_layers: int = 2
    dep_feedforward: int = 66
    frames: int = 20
    row1_frames: int = 16
    rank: int = 4
    scaling: float = 2.0
    loss_frames: int = 24
    loss_text_card: int = 40
    loss_card: int = 24

    def lm(self) -> Lm:
        return Lm(dim=self.dim, heads=self.heads, layers=self.layers, context=self.context, card=self.card,
                  text_card=self.text_card, dep_dim=self.dep_dim, dep_heads=self.dep_heads,
                  dep_layers=self.dep_layers, dep_feedforward=self.dep_feedforward)


@dataclass
class Units:
    heads: int = 3
    rows: int = 5
    width: int = 16
    dim: int = 32
    hidden: int = 88
    capacity: int = 6
    single_writes: int = 13
    channels_in: int = 3
    channels_out: int = 4
    vocabulary: int = 200


@dataclass
class Shape:
    """Everything that a tree's sizes depend on."""

    lm: Lm = field(default_factory=Lm)
    mimi: Mimi = field(default_factory=Mimi)
    generation: Generation = field(default_factory=Generation)
    end_to_end: EndToEnd = field(default_factory=EndToEnd)
    finetune: Finetune = field(default_factory=Finetune)
    units: Units = field(default_factory=Units)
    opus_frames: int = 6

    def as_dict(self) -> dict:
        return asdict(self)


def _attention(r: random.Random, widths, heads) -> tuple:
    """A width and a number of heads that gives heads of even width (rotary pairs)."""
    while True:
        count, width = r.choice(heads), r.choice(widths)
        if width % (2 * count) == 0:
            return width, count


def _gated(r: random.Random, dim: int) -> int:
    """A nominal feed-forward width; `4 * dim` takes the package's special rule."""
    return r.choice([int(4.125 * dim), 4 * dim, 3 * dim, int(4.5 * dim)])


def draw(seed: int) -> Shape:
    """Sizes that differ from the published ones wherever they may."""
    r = random.Random(seed)
    card = r.choice([36, 40, 50, 72, 80, 97])
    dim, heads = _attention(r, [24, 32, 40, 48, 56, 72, 80, 96], [2, 3, 4, 5, 6])
    dep_dim, dep_heads = _attention(r, [16, 20, 24, 36, 40, 48], [1, 2, 3, 4])
    lm = Lm(dim=dim, heads=heads, layers=r.randint(1, 4), hidden_scale=r.choice([4.125, 4.0, 3.0, 4.5]),
            context=r.randint(90, 200), card=card, text_card=r.choice([90, 111, 150, 200]), dep_dim=dep_dim,
            dep_heads=dep_heads, dep_layers=r.randint(1, 3), dep_feedforward=_gated(r, dep_dim),
            frames=r.randint(5, 17), long_frames=r.randint(13, 30))
    dimension, mimi_heads = _attention(r, [20, 24, 36, 40, 48], [1, 2, 3, 5])
    ratios = [8, 6, 5, 4]
    r.shuffle(ratios)
    mimi = Mimi(dimension=dimension, n_filters=r.choice([2, 3, 5, 6]), ratios=ratios,
                kernel=r.choice([5, 7, 9]), last_kernel=r.choice([3, 5]), residual_kernel=r.choice([3, 5]),
                heads=mimi_heads, layers=r.randint(1, 3), feedforward=r.choice([40, 72, 96]),
                context=r.randint(50, 70), n_q=r.randint(9, 14), bins=card,
                code_dimension=r.choice([8, 12, 20]), frames=r.randint(8, 15), batch_frames=r.randint(3, 7),
                ragged_samples=r.randint(2, 4) * 1920 + r.randint(1, 1919), all_levels_frames=r.randint(2, 5))
    generation = Generation(calls=r.randint(36, 48), voice=r.randint(4, 9), text=r.randint(3, 12),
                            context_after=r.randint(6, 12), context=r.randint(2, 10),
                            visible_after=r.randint(4, 8), visible=r.randint(2, 4))
    end_to_end = EndToEnd(voice_frames=r.randint(3, 6), voice_rest=r.randint(1, 1919), text=r.randint(2, 8),
                          user_frames=r.randint(9, 18))
    fdim, fheads = _attention(r, [24, 28, 36, 40], [1, 2, 3])
    fdep_dim, fdep_heads = _attention(r, [12, 20, 24], [1, 2, 3])
    frames = r.randint(16, 26)
    finetune = Finetune(dim=fdim, heads=fheads, layers=r.randint(1, 3), context=r.randint(6, 12),
                        card=r.choice([20, 30, 33]), text_card=r.choice([50, 75]), dep_dim=fdep_dim,
                        dep_heads=fdep_heads, dep_layers=r.randint(1, 2), dep_feedforward=_gated(r, fdep_dim),
                        frames=frames, row1_frames=frames - r.randint(2, 6), rank=r.choice([2, 3, 5, 6]),
                        scaling=r.choice([0.5, 1.0, 2.0, 4.0]), loss_frames=r.randint(20, 30),
                        loss_text_card=r.choice([30, 45]), loss_card=r.choice([17, 29]))
    width, unit_heads = r.choice([8, 12, 24]), r.choice([2, 4, 5])
    unit_dim = r.choice([24, 40, 56])
    units = Units(heads=unit_heads, rows=r.randint(2, 7), width=width, dim=unit_dim,
                  hidden=2 * int(4.125 * unit_dim) // 3, capacity=r.randint(4, 9), single_writes=r.randint(10, 20),
                  channels_in=r.choice([2, 5]), channels_out=r.choice([3, 6]), vocabulary=r.randint(210, 260))
    return Shape(lm, mimi, generation, end_to_end, finetune, units, opus_frames=r.randint(3, 9))
