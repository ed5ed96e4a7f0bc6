//! A held-out dialogue of a published dataset, read through the API as any user would.

use audio::{WavLimits, Waveform};
use client::chat::to_frames;
use client::views::DatasetView;
use client::{Client, ClientError, Result};
use domain::frame::SAMPLES_PER_FRAME;
use domain::manifest::{ManifestEntry, Sidecar};

/// What a session needs of it.
pub(crate) struct Sample {
    /// Name of the dialogue.
    pub name: String,
    /// The user's channel, whole frames of 24 kHz, at most as long as asked for.
    pub user: Vec<f32>,
    /// The brief.
    pub text_prompt: String,
    /// Registered name of the agent's voice.
    pub voice: Option<String>,
    /// Shortest context of the dialogue, if it has any.
    pub context: Option<String>,
}

/// The first held-out dialogue.
pub(crate) async fn first(client: &Client, dataset: &DatasetView, max_frames: usize) -> Result<Sample> {
    let manifest = client.dataset_file(dataset.id, "dataset/eval.jsonl").await?;
    let text = String::from_utf8_lossy(&manifest);
    let line = text.lines().find(|line| !line.trim().is_empty());
    let line =
        line.ok_or_else(|| ClientError::Usage(format!("{} has no held-out dialogue", dataset.name)))?;
    let shape = |source| ClientError::Shape { path: "dataset/eval.jsonl".into(), source };
    let entry: ManifestEntry = serde_json::from_str(line).map_err(shape)?;
    // Manifest paths are relative to its folder, `dataset/`.
    let wav = entry.path.trim_start_matches("../").to_owned();
    let stem = wav.strip_suffix(".wav").unwrap_or(&wav).to_owned();
    let bytes = client.dataset_file(dataset.id, &format!("{stem}.json")).await?;
    let sidecar: Sidecar = serde_json::from_slice(&bytes).map_err(shape)?;
    let sound = audio::wav::parse(&client.dataset_file(dataset.id, &wav).await?, &WavLimits::default())?;
    Ok(Sample {
        name: stem.rsplit('/').next().unwrap_or_default().to_owned(),
        user: user_channel(&sound, max_frames)?,
        voice: sidecar.voice_prompt.as_deref().map(voice_name),
        context: sidecar.context_injections.iter().map(|i| i.text.clone()).min_by_key(String::len),
        text_prompt: sidecar.text_prompt,
    })
}

fn user_channel(sound: &Waveform, max_frames: usize) -> Result<Vec<f32>> {
    let right = sound.channels.get(1).or(sound.channels.first()).cloned().unwrap_or_default();
    let mut frames = to_frames(&Waveform::mono(sound.rate, right))?;
    frames.truncate(max_frames * SAMPLES_PER_FRAME);
    Ok(frames)
}

/// `../speaker_samples/flite-slt.wav` is the voice `flite-slt`.
fn voice_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.rsplit_once('.').map_or(file, |(stem, _)| stem).to_owned()
}

/// At most `limit` characters, cut between words: a session takes only so many context tokens.
pub(crate) fn shortened(text: &str, limit: usize) -> String {
    let mut short = String::new();
    for word in text.split_whitespace() {
        if !short.is_empty() && short.len() + 1 + word.len() > limit {
            break;
        }
        if !short.is_empty() {
            short.push(' ');
        }
        short.push_str(word);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_are_cut_where_they_should_be() {
        assert_eq!(voice_name("../speaker_samples/flite-slt.wav"), "flite-slt");
        assert_eq!(shortened("remind of the refill", 12), "remind of");
        assert_eq!(shortened("a  b", 80), "a b");
    }
}
