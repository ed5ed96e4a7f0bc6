//! Flite as a [`SpeechEngine`]: one thread that owns the library, and the way from its tokens to our words.

use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver, Sender};

use spoken::matching::common_words;

use crate::engine::{Capabilities, Span, SpeechEngine, Utterance};
use crate::error::TtsError;
use crate::flite::{Flite, RawToken, RawUtterance};
use crate::say::{Pause, Say};

const NAME: &str = "flite 2.2";
/// Voices of (agent, user). kal16 is left out: a diphone voice among statistical ones is told apart by its noise.
const PAIRS: [(&str, &str); 6] =
    [("slt", "rms"), ("rms", "slt"), ("slt", "awb"), ("awb", "slt"), ("rms", "awb"), ("awb", "rms")];

type Answer = Result<Option<RawUtterance>, TtsError>;

struct Request {
    voice: String,
    text: CString,
    answer: Sender<Answer>,
}

/// The process-wide thread: flite's tables are global, so a second one would race with the first.
static THREAD: OnceLock<Sender<Request>> = OnceLock::new();

fn serve(requests: Receiver<Request>) {
    let mut flite: Option<Flite> = None;
    for request in requests {
        let answer = match &mut flite {
            Some(flite) => flite.say(&request.voice, &request.text),
            // A library that was missing is looked for again: it may have been installed since.
            None => Flite::load().and_then(|loaded| flite.insert(loaded).say(&request.voice, &request.text)),
        };
        // Who asked may have gone; nothing is lost then.
        let _gone = request.answer.send(answer);
    }
}

/// The offline engine. Loads `libflite.so.1` when it first speaks.
#[derive(Debug, Clone, Copy, Default)]
pub struct FliteEngine;

impl FliteEngine {
    /// Nothing is loaded yet.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }

    fn ask(voice: &str, text: CString) -> Answer {
        let thread = THREAD.get_or_init(|| {
            let (sender, receiver) = mpsc::channel();
            // When no thread can be made the receiver is dropped with the closure, and every call says so.
            let _handle = std::thread::Builder::new().name("flite".into()).spawn(move || serve(receiver));
            sender
        });
        let (answer, receiver) = mpsc::channel();
        let stopped = || TtsError::EngineStopped(NAME);
        thread.send(Request { voice: voice.into(), text, answer }).map_err(|_| stopped())?;
        receiver.recv().map_err(|_| stopped())?
    }
}

/// Words joined so that every word is one token of flite's.
fn text_of(words: &[Say]) -> CString {
    let parts: Vec<String> = words
        .iter()
        .map(|say| {
            let mark = match say.pause {
                None => "",
                Some(Pause::Comma) => ",",
                Some(Pause::Stop) => ".",
                Some(Pause::Question) => "?",
            };
            format!("{}{mark}", say.word)
        })
        .collect();
    CString::new(parts.join(" ")).expect("words hold letters, digits and apostrophes only")
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "seconds of an utterance, not negative"
)]
fn millis(seconds: f32) -> u64 {
    (f64::from(seconds.max(0.0)) * 1000.0).round() as u64
}

/// Times of our words: flite may read a token differently, so tokens are matched, not counted.
fn word_times(words: &[Say], tokens: &[RawToken], duration_ms: u64) -> Vec<Option<Span>> {
    let ours: Vec<&str> = words.iter().map(|w| w.word.as_str()).collect();
    let theirs: Vec<&str> = tokens.iter().map(|t| t.name.as_str()).collect();
    let mut times = vec![None; words.len()];
    for (i, j) in common_words(&ours, &theirs) {
        times[i] = tokens[j]
            .span
            .map(|(start, end)| (millis(start), millis(end).min(duration_ms)))
            .filter(|(start, end)| start < end);
    }
    times
}

impl SpeechEngine for FliteEngine {
    fn name(&self) -> &str {
        NAME
    }

    fn family(&self) -> &'static str {
        "flite"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { per_turn: true, word_times: true }
    }

    fn pairs(&self) -> &'static [(&'static str, &'static str)] {
        &PAIRS
    }

    fn synthesize(&self, voice: &str, words: &[Say]) -> Result<Utterance, TtsError> {
        let said = Self::ask(voice, text_of(words))?.filter(|u| !u.pcm.is_empty());
        let RawUtterance { rate, pcm, tokens } =
            said.ok_or_else(|| TtsError::NoSound { engine: NAME.into(), words: words.len() })?;
        let duration_ms = pcm.len() as u64 * 1000 / u64::from(rate.max(1));
        let words = word_times(words, &tokens, duration_ms);
        Ok(Utterance { rate, samples: pcm.iter().map(|&s| f32::from(s) / 32_768.0).collect(), words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(word: &str) -> Say {
        Say { word: word.into(), pause: None }
    }

    fn token(name: &str, start: f32, end: f32) -> RawToken {
        RawToken { name: name.into(), span: (start < end).then_some((start, end)) }
    }

    #[test]
    fn words_that_flite_lost_or_split_have_no_time_and_the_others_keep_theirs() {
        let words = [say("one"), say("two"), say("three")];
        let tokens = [token("One", 0.1, 0.3), token("extra", 0.3, 0.4), token("three", 0.5, 0.9)];
        assert_eq!(word_times(&words, &tokens, 800), [Some((100, 300)), None, Some((500, 800))]);
        assert_eq!(word_times(&words, &[token("two", 0.5, 0.5)], 800), [None, None, None]);
    }
}
