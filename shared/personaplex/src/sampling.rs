use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Sampling parameters of one session. A temperature of zero means the most likely id.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    pub text_temperature: f64,
    pub text_top_k: usize,
    pub audio_temperature: f64,
    pub audio_top_k: usize,
}

impl Default for Sampling {
    /// The published defaults (personaplex.md 1.7).
    fn default() -> Self {
        Self { text_temperature: 0.7, text_top_k: 25, audio_temperature: 0.8, audio_top_k: 250 }
    }
}

/// Draws ids for one session from its own seeded stream, so that sessions do not influence each other.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    rng: ChaCha8Rng,
}

impl Sampler {
    pub fn new(sampling: Sampling, seed: u64) -> Self {
        Self { sampling, rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// Always the most likely id.
    pub fn greedy() -> Self {
        let sampling = Sampling { text_temperature: 0.0, audio_temperature: 0.0, ..Sampling::default() };
        Self::new(sampling, 0)
    }

    /// Draws a text id from its logits.
    pub fn text(&mut self, logits: &[f32]) -> i32 {
        let (temperature, k) = (self.sampling.text_temperature, self.sampling.text_top_k);
        self.draw(logits, temperature, k)
    }

    /// Draws an audio code from its logits.
    pub fn audio(&mut self, logits: &[f32]) -> i32 {
        let (temperature, k) = (self.sampling.audio_temperature, self.sampling.audio_top_k);
        self.draw(logits, temperature, k)
    }

    fn draw(&mut self, logits: &[f32], temperature: f64, k: usize) -> i32 {
        let k = k.clamp(1, logits.len());
        if temperature <= 0.0 {
            return argmax(logits.iter().copied()) as i32;
        }
        // u in (0, 1], so the noise is finite and positive except for u = 1, which draws zero and wins: floor it.
        let noise: Vec<f32> =
            (0..k).map(|_| (-(1.0 - self.rng.random::<f32>()).ln()).max(f32::MIN_POSITIVE)).collect();
        choose(logits, temperature as f32, k, &noise) as i32
    }
}

/// Multinomial over the `k` most likely ids by the exponential race: `argmax(p_i / e_i)`, `noise[i] ~ Exp(1)` for the
/// i-th most likely id. Probabilities are over the whole vocabulary and not renormalised, which changes no winner.
pub(crate) fn choose(logits: &[f32], temperature: f32, k: usize, noise: &[f32]) -> usize {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    let descending = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
    if k < order.len() {
        order.select_nth_unstable_by(k - 1, descending);
        order.truncate(k);
    }
    order.sort_unstable_by(descending);
    let scores = order.iter().zip(noise).map(|(i, e)| ((logits[*i] - max) / temperature).exp() / e);
    order[argmax(scores)]
}

/// First index of the largest value.
fn argmax(values: impl Iterator<Item = f32>) -> usize {
    let mut best = (0, f32::NEG_INFINITY);
    for (i, v) in values.enumerate() {
        if v > best.1 {
            best = (i, v);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_ids_and_top_1_is_greedy() {
        let logits: Vec<f32> = (0..100).map(|i| ((i * 37) % 100) as f32 / 10.0).collect();
        let draw = |seed| {
            let mut s = Sampler::new(Sampling::default(), seed);
            (0..50).map(|_| s.text(&logits)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let mut one = Sampler::new(Sampling { text_top_k: 1, ..Sampling::default() }, 3);
        assert_eq!(one.text(&logits), Sampler::greedy().text(&logits));
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let logits = [0.0f32, (3.0f32).ln(), f32::NEG_INFINITY];
        let sampling = Sampling { audio_temperature: 1.0, audio_top_k: 250, ..Sampling::default() };
        let mut sampler = Sampler::new(sampling, 9);
        let ones = (0..4000).filter(|_| sampler.audio(&logits) == 1).count();
        assert!((2880..3120).contains(&ones), "3/4 of 4000 expected, got {ones}");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests find their data through it")]
    fn given_the_published_noise_the_published_ids_are_drawn() -> Result<(), Box<dyn std::error::Error>> {
        let root = std::env::var("PPX_GOLDEN_DIR")
            .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden").into());
        let path = std::path::Path::new(&root).join("personaplex/units/sampler.safetensors");
        let file = weights::SafetensorsFile::open(&path)?;
        let words = |name: &str| -> Result<(usize, Vec<[u8; 4]>), weights::WeightsError> {
            let (entry, bytes) = file.tensor(name)?;
            let width = entry.shape.get(1).map_or(1, |w| *w as usize);
            Ok((width, bytes.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]).collect()))
        };
        let floats = |name: &str| -> Result<(usize, Vec<f32>), weights::WeightsError> {
            let (width, words) = words(name)?;
            Ok((width, words.into_iter().map(f32::from_le_bytes).collect()))
        };
        let (vocabulary, logits) = floats("logits")?;
        let cases = [
            ("token_t10_k200", "noise", 1.0, 200),
            ("token_t7_k25", "noise", 0.7, 25),
            ("token_t8_k150", "noise", 0.8, 150),
            ("seeded_t8_k150", "seeded_exponential_64x150", 0.8, 150),
        ];
        for (name, noise, temperature, k) in cases {
            let (width, noise) = floats(noise)?;
            for (row, wanted) in words(name)?.1.into_iter().map(i32::from_le_bytes).enumerate() {
                let logits = &logits[row * vocabulary..(row + 1) * vocabulary];
                let found = choose(logits, temperature, k, &noise[row * width..(row + 1) * width]);
                assert_eq!(found as i32, wanted, "{name} row {row}");
            }
        }
        for (row, wanted) in words("token_greedy")?.1.into_iter().map(i32::from_le_bytes).enumerate() {
            let logits = &logits[row * vocabulary..(row + 1) * vocabulary];
            assert_eq!(Sampler::greedy().text(logits), wanted, "greedy row {row}");
        }
        Ok(())
    }
}
