//! Speech whose word times its synthesiser knows: turns of both domain packs in flite's voices.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use datagen::grammar::generate;
use datagen::sampler::Design;
use domain::pack::built_in;
use tts::say::Speech;
use tts::{FliteEngine, SpeechEngine};

/// Samples per second of everything here.
pub const RATE: u32 = 16_000;

/// Start and end, ms.
pub type Span = (u64, u64);

#[derive(Debug, Clone)]
pub struct Utterance {
    pub voice: String,
    /// Mono, 16 kHz.
    pub samples: Vec<f32>,
    pub words: Vec<String>,
    /// By the synthesiser; `None` where it has none of its own for the word.
    pub truth: Vec<Option<Span>>,
}

/// Distinct turns of the offline generator, both packs in equal parts.
pub fn turns(count: usize) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for (_, pack) in built_in() {
        let design = Design::new(&pack, 64, 7)?;
        let mut own = BTreeSet::new();
        for row in 0..64 {
            let record = generate(&pack, &design, row, 7)?;
            own.extend(record.turns.into_iter().map(|t| t.text));
        }
        // Evenly over the sorted texts, so that all kinds of turns are there.
        let wanted = count.div_ceil(built_in().len());
        let own: Vec<String> = own.into_iter().collect();
        texts.extend((0..wanted.min(own.len())).map(|i| own[i * own.len() / wanted].clone()));
    }
    Ok(texts)
}

/// The turns said by flite, voice after voice.
pub fn flite(texts: &[String]) -> Result<Vec<Utterance>> {
    let voices = ["slt", "rms", "awb"];
    texts
        .iter()
        .zip(voices.iter().cycle())
        .filter(|(text, _)| !Speech::of(text).words.is_empty())
        .map(|(text, voice)| say(text, voice).with_context(|| text.clone()))
        .collect()
}

pub fn say(text: &str, voice: &str) -> Result<Utterance> {
    let speech = Speech::of(text);
    let said = FliteEngine::new().synthesize(voice, &speech.words)?;
    let wave = audio::resample::resample(&audio::Waveform::mono(said.rate, said.samples), RATE)?;
    Ok(Utterance {
        voice: format!("flite {voice}"),
        samples: wave.channels.into_iter().next().unwrap_or_default(),
        words: speech.words.into_iter().map(|w| w.word).collect(),
        truth: said.words,
    })
}

/// The turns said by espeak-ng. Words that share an event with the one before have no time of their own.
pub fn espeak(texts: &[String]) -> Result<Vec<Utterance>> {
    let voices = ["en-us+f3", "en-us", "en-us+m3"];
    let speeches: Vec<Speech> = texts.iter().map(|t| Speech::of(t)).filter(|s| !s.words.is_empty()).collect();
    let mut requests = String::new();
    let mut starts = Vec::new();
    for (speech, voice) in speeches.iter().zip(voices.iter().cycle()) {
        let (text, places) = written(speech);
        starts.push(places);
        requests.push_str(&serde_json::json!({ "voice": voice, "text": text }).to_string());
        requests.push('\n');
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/espeak_words.py");
    let mut child =
        Command::new("python3").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("a pipe")?;
    let writer = std::thread::spawn(move || input.write_all(requests.as_bytes()));
    let output = child.wait_with_output()?;
    writer.join().map_err(|_| anyhow::anyhow!("the writer failed"))??;
    ensure!(output.status.success(), "espeak_words.py: {}", output.status);
    let answers: Vec<&str> = std::str::from_utf8(&output.stdout)?.lines().collect();
    ensure!(answers.len() == speeches.len(), "{} answers", answers.len());
    let said = answers.iter().zip(&speeches).zip(&starts).zip(voices.iter().cycle());
    said.map(|(((answer, speech), places), voice)| heard(answer, speech, places, voice)).collect()
}

/// The text for espeak, and where each word stands in it.
fn written(speech: &Speech) -> (String, Vec<usize>) {
    let (mut text, mut places) = (String::new(), Vec::new());
    for say in &speech.words {
        if !text.is_empty() {
            text.push(' ');
        }
        places.push(text.len());
        text.push_str(&say.word);
        text.push_str(match say.pause {
            None => "",
            Some(tts::say::Pause::Comma) => ",",
            Some(tts::say::Pause::Stop) => ".",
            Some(tts::say::Pause::Question) => "?",
        });
    }
    (text, places)
}

fn heard(answer: &str, speech: &Speech, places: &[usize], voice: &str) -> Result<Utterance> {
    let answer: serde_json::Value = serde_json::from_str(answer)?;
    let rate = answer["rate"].as_u64().context("a rate")?;
    let bytes = base64::engine::general_purpose::STANDARD.decode(answer["pcm"].as_str().context("sound")?)?;
    let pcm = bytes.chunks_exact(2).map(|b| f32::from(i16::from_le_bytes([b[0], b[1]])) / 32_768.0).collect();
    let wave = audio::resample::resample(&audio::Waveform::mono(u32::try_from(rate)?, pcm), RATE)?;
    let mut truth = vec![None; speech.words.len()];
    for event in answer["words"].as_array().context("words")? {
        // Events without a place in the text have position -1.
        let (Some(place), Some(sample)) = (event[0].as_u64(), event[2].as_u64()) else { continue };
        let (place, at) = (usize::try_from(place)?, sample * 1000 / rate);
        if let Ok(word) = places.binary_search(&place) {
            truth[word] = Some((at, at));
        }
    }
    Ok(Utterance {
        voice: format!("espeak-ng {voice}"),
        samples: wave.channels.into_iter().next().unwrap_or_default(),
        words: speech.words.iter().map(|w| w.word.clone()).collect(),
        truth,
    })
}
