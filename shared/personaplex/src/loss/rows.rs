use tch::{Kind, Tensor};

use super::{EPAD, LossMetrics, LossWeights, Targets};
use crate::lm::TrainOutput;

/// Weighted sums of one micro-batch. `text_sum / text_weight` is its own mean; a trainer divides by the sums of the whole
/// optimiser step instead. A sum without weight is zero and has a zero gradient.
#[derive(Debug)]
pub struct LossSums {
    pub text_sum: Tensor,
    pub text_weight: f64,
    pub audio_sum: Tensor,
    pub audio_weight: f64,
    pub metrics: LossMetrics,
}

pub(super) fn count(mask: &Tensor) -> f64 {
    mask.sum(Kind::Double).double_value(&[])
}

/// Loss of one micro-batch from whole logits.
pub fn masked_loss(output: &TrainOutput, codes: &Tensor, weights: &LossWeights) -> LossSums {
    let codes = codes.to_device(output.text_logits.device());
    let targets = Targets::by_frame(&codes, weights);
    let mut sums = target_loss(&output.text_logits, &output.audio_logits, &targets);
    sums.text_weight = weights.text_sum();
    sums.audio_weight = weights.audio_sum();
    sums.metrics.context_frames = weights.context_frames;
    sums
}

/// Loss of targets against logits of the same layout, `[.., V]` and `[.., K, n, V]`; the weights of the sums are left
/// zero. Rows that do not count are left out before the cross entropy: their logits may be anything, NaN included, and
/// get no gradient.
pub(crate) fn target_loss(text_logits: &Tensor, audio_logits: &Tensor, targets: &Targets) -> LossSums {
    let size = targets.audio[0].size();
    let [.., codebooks, inner] = size[..] else { unreachable!("audio targets have codebooks and rows") };
    let text = gather(text_logits, &targets.text);
    let audio = gather(audio_logits, &targets.audio);
    let mut metrics = LossMetrics::default();
    tch::no_grad(|| {
        text_metrics(&text, targets.pad, &mut metrics);
        audio_metrics(&audio, codebooks, inner, &mut metrics);
    });
    LossSums {
        text_sum: text.weighted_sum(),
        text_weight: 0.0,
        audio_sum: audio.weighted_sum(),
        audio_weight: 0.0,
        metrics,
    }
}

/// The rows that count, flattened.
struct Rows {
    /// Flat positions.
    index: Tensor,
    logits: Tensor,
    targets: Tensor,
    weights: Tensor,
    /// Cross entropy in f32.
    loss: Tensor,
}

impl Rows {
    fn weighted_sum(&self) -> Tensor {
        // Rows of zero weight may be here for the diagnostics; zero times a finite loss is zero.
        (&self.loss * &self.weights).sum(Kind::Float)
    }
}

fn gather(logits: &Tensor, [targets, weights, counted]: &[Tensor; 3]) -> Rows {
    let index = counted.reshape([-1]).nonzero().squeeze_dim(1);
    let vocabulary = *logits.size().last().expect("logits have a vocabulary");
    let logits = logits.reshape([-1, vocabulary]).index_select(0, &index).to_kind(Kind::Float);
    let targets = targets.reshape([-1]).index_select(0, &index);
    let weights = weights.reshape([-1]).index_select(0, &index);
    let loss = logits.cross_entropy_loss::<&Tensor>(&targets, None, tch::Reduction::None, -100, 0.0);
    Rows { index, logits, targets, weights, loss }
}

fn text_metrics(rows: &Rows, pad: i64, m: &mut LossMetrics) {
    let padding = |ids: &Tensor| ids.eq(pad).logical_or(&ids.eq(EPAD));
    let target_pad = padding(&rows.targets);
    let epad = rows.targets.eq(EPAD);
    let likeliest = rows.logits.argmax(-1, false);
    let total = rows.loss.sum(Kind::Double).double_value(&[]);
    m.pad_loss_sum = (&rows.loss * &target_pad).sum(Kind::Double).double_value(&[]);
    m.real_loss_sum = total - m.pad_loss_sum;
    m.pad_count = count(&target_pad);
    m.real_count = rows.targets.numel() as f64 - m.pad_count;
    m.predicted_pad = count(&padding(&likeliest));
    m.epad_targets = count(&epad);
    m.epad_hits = count(&epad.logical_and(&likeliest.eq(EPAD)));
}

fn audio_metrics(rows: &Rows, codebooks: i64, inner: i64, m: &mut LossMetrics) {
    let codebook = rows.index.divide_scalar_mode(inner, "floor").remainder(codebooks);
    let add = |values: &Tensor| {
        let sums = Tensor::zeros([codebooks], (Kind::Double, values.device()));
        let sums = sums.index_add(0, &codebook, &values.to_kind(Kind::Double));
        Vec::<f64>::try_from(sums).expect("a flat f64 tensor")
    };
    m.audio_loss_sums = add(&rows.loss);
    m.audio_counts = add(&rows.loss.ones_like());
}
