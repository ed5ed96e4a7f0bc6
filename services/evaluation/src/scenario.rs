//! What is played: the user's side of a held-out dialogue, with the context that the dialogue brings.

use artifacts::Artifacts;
use audio::{WavLimits, Waveform};
use chassis::JobError;
use client::chat::{InjectAt, to_frames};
use domain::frame::{MS_PER_FRAME, SAMPLES_PER_FRAME, frame_ceil, frame_floor};
use domain::injection::Injection;
use domain::manifest::{ManifestEntry, Sidecar};
use domain::session::ContextWhen;
use domain::{DatasetId, ErrorCode};

/// The user's side of one dialogue.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    /// Record id.
    pub dialogue: String,
    /// Whole frames of 24 kHz mono.
    pub user: Vec<f32>,
    /// Half-open frame ranges of the user's turns.
    pub user_turns: Vec<(u64, u64)>,
    /// The brief.
    pub text_prompt: String,
    /// Registered voice of the agent.
    pub voice: Option<String>,
    /// Context at its frames.
    pub injections: Vec<InjectAt>,
}

/// Names of the held-out dialogues: artifact keys of wav and sidecar, in manifest order.
pub(crate) async fn held_out(
    artifacts: &Artifacts,
    dataset: DatasetId,
    limit: usize,
) -> Result<Vec<(String, String)>, JobError> {
    let root = format!("datasets/{dataset}/published");
    let manifest = artifacts.get(&format!("{root}/dataset/eval.jsonl")).await?;
    let text = String::from_utf8_lossy(&manifest).into_owned();
    let mut found = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()).take(limit) {
        let entry: ManifestEntry = serde_json::from_str(line).map_err(|e| {
            JobError::permanent(
                ErrorCode::InvalidDataset,
                format!("eval.jsonl of {dataset}: {e}: {line:.120}"),
            )
        })?;
        let wav = beside(&root, "dataset", &entry.path).ok_or_else(|| {
            JobError::permanent(ErrorCode::InvalidDataset, format!("{:?} leaves the dataset", entry.path))
        })?;
        let stem = wav.strip_suffix(".wav").unwrap_or(&wav);
        found.push((wav.clone(), format!("{stem}.json")));
    }
    if found.is_empty() {
        return Err(JobError::permanent(
            ErrorCode::InvalidDataset,
            format!("{dataset} has no held-out dialogue; build it with a larger eval_fraction"),
        ));
    }
    Ok(found)
}

/// `root/folder/path` with `..` resolved; `None` when it leaves the root.
fn beside(root: &str, folder: &str, path: &str) -> Option<String> {
    let mut parts = vec![folder];
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            other => parts.push(other),
        }
    }
    Some(format!("{root}/{}", parts.join("/")))
}

/// Reads one dialogue, cut to `max_seconds`.
pub(crate) async fn load(
    artifacts: &Artifacts,
    wav: &str,
    sidecar: &str,
    max_seconds: f64,
) -> Result<Scenario, JobError> {
    let sound = artifacts.get(wav).await?;
    let sidecar: Sidecar = artifacts.get_json(sidecar).await?;
    let dialogue = wav.rsplit('/').next().unwrap_or(wav).trim_end_matches(".wav").to_owned();
    let frames = frame_floor(milliseconds(max_seconds)).max(1);
    let place = wav.to_owned();
    let decoded = tokio::task::spawn_blocking(move || user_frames(&sound, frames)).await;
    let user = decoded
        .map_err(|e| JobError::transient(ErrorCode::Internal, e))?
        .map_err(|e| JobError::permanent(ErrorCode::ArtifactDamaged, format!("{place}: {e}")))?;
    let played = (user.len() / SAMPLES_PER_FRAME) as u64;
    Ok(Scenario {
        dialogue,
        user_turns: user_turns(&sidecar, played),
        injections: injections(&sidecar.context_injections, played),
        voice: sidecar.voice_prompt.as_deref().map(voice_name),
        text_prompt: sidecar.text_prompt,
        user,
    })
}

fn user_frames(wav: &[u8], frames: u64) -> Result<Vec<f32>, client::ClientError> {
    let sound = audio::wav::parse(wav, &WavLimits::default())?;
    // Left is the agent, right the user; a mono file is the user alone.
    let user = sound.channels.get(1).or(sound.channels.first()).cloned().unwrap_or_default();
    let mut samples = to_frames(&Waveform::mono(sound.rate, user))?;
    samples.truncate(usize::try_from(frames).unwrap_or(usize::MAX).saturating_mul(SAMPLES_PER_FRAME));
    Ok(samples)
}

fn user_turns(sidecar: &Sidecar, played: u64) -> Vec<(u64, u64)> {
    let user = domain::dialogue::Speaker::User.published_label();
    sidecar
        .turns
        .iter()
        .filter(|turn| turn.speaker == user)
        .map(|turn| (frame_floor(milliseconds(turn.start)), frame_ceil(milliseconds(turn.end))))
        .filter(|(start, end)| start < end && *end <= played)
        .collect()
}

/// Placed injections that fall into what is played; sent for the frame that the dialogue gives them, and held there until
/// the agent pauses, as training splices them.
fn injections(all: &[Injection], played: u64) -> Vec<InjectAt> {
    all.iter()
        .filter_map(|injection| {
            let frame = u64::from(injection.frame_offset?);
            (frame < played).then(|| InjectAt {
                frame,
                text: injection.text.clone(),
                when: Some(ContextWhen::Pause),
                deadline_ms: None,
            })
        })
        .collect()
}

/// `../speaker_samples/flite-slt.wav` is the voice `flite-slt`.
fn voice_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.rsplit_once('.').map_or(file, |(stem, _)| stem).to_owned()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "seconds of a call, not negative"
)]
fn milliseconds(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1000.0).round() as u64
}

/// Seconds of a number of frames.
#[expect(clippy::cast_precision_loss, reason = "frames of a call")]
pub(crate) fn frame_seconds(frames: u64) -> f64 {
    (frames * MS_PER_FRAME) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::manifest::SidecarTurn;

    #[test]
    fn paths_are_resolved_inside_the_dataset_only() {
        assert_eq!(beside("r", "dataset", "../stereo_wav/a.wav").as_deref(), Some("r/stereo_wav/a.wav"));
        assert_eq!(beside("r", "dataset", "../../../etc/passwd"), None);
    }

    #[test]
    fn turns_and_injections_beyond_the_cut_are_left_out() {
        let turn = |speaker: &str, start, end| SidecarTurn {
            index: 0,
            speaker: speaker.into(),
            start,
            end,
            text: String::new(),
        };
        let sidecar = Sidecar {
            alignments: Vec::new(),
            turns: vec![
                turn("SPEAKER_BROKER", 0.0, 0.8),
                turn("SPEAKER_CLIENT", 0.8, 1.61),
                turn("SPEAKER_CLIENT", 7.0, 9.0),
            ],
            text_prompt: String::new(),
            voice_prompt: None,
            context_injections: Vec::new(),
            text_conditions: None,
            alignment_flags: Default::default(),
        };
        assert_eq!(user_turns(&sidecar, 100), [(10, 21)]);
        let at = |frame_offset| Injection { after_turn: 0, text: "x".into(), frame_offset };
        let placed = injections(&[at(Some(3)), at(None), at(Some(100))], 100);
        assert_eq!(placed.iter().map(|i| i.frame).collect::<Vec<_>>(), [3]);
    }
}
