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

/// The random stream of one session. What it draws for a row depends on the seed and the row's number alone, so
/// sessions of a batch do not influence each other and a resumed session goes on as it would have.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    rng: ChaCha8Rng,
}

impl Sampler {
    #[must_use]
    pub fn new(sampling: Sampling, seed: u64) -> Self {
        Self { sampling, rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// Always the most likely id.
    #[must_use]
    pub fn greedy() -> Self {
        let sampling = Sampling { text_temperature: 0.0, audio_temperature: 0.0, ..Sampling::default() };
        Self::new(sampling, 0)
    }

    /// Most ids that a draw of the text head, and of an audio head, looks at.
    #[must_use]
    pub fn top_k(&self) -> (usize, usize) {
        let k = |temperature: f64, k: usize| if temperature > 0.0 { k.max(1) } else { 1 };
        let s = &self.sampling;
        (k(s.text_temperature, s.text_top_k), k(s.audio_temperature, s.audio_top_k))
    }

    /// Temperatures and noise for one row: `audio` holds `width` numbers a codebook. Ranks from top-k on get infinite
    /// noise, which never wins.
    pub(crate) fn fill(
        &self,
        row: u64,
        temperatures: &mut [f32],
        text: &mut [f32],
        audio: &mut [f32],
        width: usize,
    ) {
        temperatures[0] = self.sampling.text_temperature.max(0.0) as f32;
        temperatures[1] = self.sampling.audio_temperature.max(0.0) as f32;
        let (text_k, audio_k) = self.top_k();
        let mut rng = self.rng.clone();
        rng.set_stream(row);
        exponentials(&mut rng, text, text_k);
        for codebook in audio.chunks_exact_mut(width) {
            exponentials(&mut rng, codebook, audio_k);
        }
    }
}

/// The first `k` numbers of an Exp(1) stream, infinity after them.
fn exponentials(rng: &mut ChaCha8Rng, out: &mut [f32], k: usize) {
    let (drawn, rest) = out.split_at_mut(k.min(out.len()));
    for e in drawn {
        // u in (0, 1]; u = 1 would draw zero and win whatever its probability: floor it.
        *e = (-(1.0 - rng.random::<f32>()).ln()).max(f32::MIN_POSITIVE);
    }
    rest.fill(f32::INFINITY);
}

#[cfg(test)]
mod tests {
    use super::*;
    use nn::fused::draw;
    use nn::tensor_from_file;
    use tch::{Device, Kind, Tensor};

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    /// Ids drawn for one text row after another.
    fn ids(sampler: &Sampler, logits: &[f32], rows: u64) -> Vec<i64> {
        let k = sampler.top_k().0.min(logits.len());
        let logits = Tensor::from_slice(logits).unsqueeze(0);
        (0..rows)
            .map(|row| {
                let (mut temperatures, mut text) = ([0.0; 2], vec![0.0; k]);
                sampler.fill(row, &mut temperatures, &mut text, &mut [], 1);
                let temperature = Tensor::from_slice(&temperatures[..1]).unsqueeze(0);
                draw(&logits, &temperature, &Tensor::from_slice(&text).unsqueeze(0)).int64_value(&[0])
            })
            .collect()
    }

    #[test]
    fn the_same_seed_draws_the_same_ids_and_top_1_is_greedy() {
        let logits: Vec<f32> = (0..100).map(|i| ((i * 37) % 100) as f32 / 10.0).collect();
        let of = |seed| ids(&Sampler::new(Sampling::default(), seed), &logits, 50);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let one = Sampler::new(Sampling { text_top_k: 1, ..Sampling::default() }, 3);
        assert_eq!(ids(&one, &logits, 3), ids(&Sampler::greedy(), &logits, 3));
    }

    #[test]
    fn draws_follow_the_probabilities_and_never_leave_the_top_k() {
        let logits = [0.0f32, (3.0f32).ln(), f32::NEG_INFINITY, -0.5];
        let sampling = Sampling { text_temperature: 1.0, text_top_k: 2, ..Sampling::default() };
        let found = ids(&Sampler::new(sampling, 9), &logits, 4000);
        let ones = found.iter().filter(|id| **id == 1).count();
        assert!((2880..3120).contains(&ones), "3/4 of 4000 expected, got {ones}");
        assert!(found.iter().all(|id| *id < 2));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests find their data through it")]
    fn golden_noise_draws_the_published_ids() -> Outcome {
        let root = std::env::var("PPX_GOLDEN_DIR")
            .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden").into());
        let path = std::path::Path::new(&root).join("personaplex/units/sampler.safetensors");
        let file = weights::SafetensorsFile::open(&path)?;
        let get = |name: &str| tensor_from_file(&file, name);
        let logits = get("logits")?;
        let rows = logits.size()[0];
        let draw_at = |temperature: f64, noise: &Tensor| {
            let temperature = Tensor::full([rows, 1], temperature, (Kind::Float, Device::Cpu));
            draw(&logits, &temperature, noise)
        };
        let mut cases = 0;
        for (name, _) in file.tensors() {
            // token_t{temperature * 10}_k{k} or seeded_t.._k..
            let Some((kind, rest)) = name.split_once("_t").filter(|_| !name.contains("exponential")) else {
                continue;
            };
            let Some((t, k)) = rest.split_once("_k") else { continue };
            let (t, k): (f64, i64) = (t.parse()?, k.parse()?);
            let noise = match kind {
                "seeded" => get(&format!("seeded_exponential_{rows}x{k}"))?,
                _ => get("noise")?.narrow(1, 0, k),
            };
            let found = draw_at(t / 10.0, &noise);
            assert_eq!(found, get(name)?.to_kind(Kind::Int64), "{name}");
            cases += 1;
        }
        assert!(cases >= 4, "{cases} cases");
        let any = Tensor::ones([rows, 1], (Kind::Float, Device::Cpu));
        assert_eq!(draw_at(0.0, &any), get("token_greedy")?.to_kind(Kind::Int64));
        Ok(())
    }
}
