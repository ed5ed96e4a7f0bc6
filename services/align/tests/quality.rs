//! How exact the aligner is, measured against the synthesisers' own word times on turns of both domain packs.
//!
//! With `PPX_QUALITY_REPORT` set to a file, the figures are written there as Markdown (docs/QUALITY.md).
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of words and milliseconds"
)]

#[path = "common/truth.rs"]
mod truth;

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use aligner::{Aligner, Deviations, Reading, Sound};
use anyhow::{Context, Result};
use truth::Utterance;
use tts::say::{Say, Speech};
use tts::{FliteEngine, SpeechEngine};

const UTTERANCES: usize = 300;
/// Turns that are said with words left out, repeated or added, in each kind.
const EDITED: usize = 48;

/// Errors of word starts, ms, positive when late.
struct Errors {
    all: Vec<f64>,
    words: usize,
    timed: usize,
    seconds: f64,
    took: f64,
}

impl Errors {
    fn size(&self, share: f64) -> f64 {
        let mut sizes: Vec<f64> = self.all.iter().map(|e| e.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        sizes[((sizes.len() - 1) as f64 * share) as usize]
    }
    fn mean(&self) -> f64 {
        self.all.iter().map(|e| e.abs()).sum::<f64>() / self.all.len() as f64
    }
    fn within(&self, ms: f64) -> f64 {
        100.0 * self.all.iter().filter(|e| e.abs() <= ms).count() as f64 / self.all.len() as f64
    }
    fn row(&self, name: &str) -> String {
        format!(
            "| {name} | {} | {:.1} % | {:.1} | {:+.1} | {:.0} | {:.0} | {:.0} | {:.1} % | {:.2} % | {:.4} |\n",
            self.all.len(),
            100.0 * self.timed as f64 / self.words as f64,
            self.mean(),
            self.all.iter().sum::<f64>() / self.all.len() as f64,
            self.size(0.5),
            self.size(0.9),
            self.size(0.99),
            self.within(20.0),
            self.within(50.0),
            self.took / self.seconds,
        )
    }
}

const HEADER: &str = "| sound | words | timed | mean | bias | median | p90 | p99 | within 20 ms | within 50 ms | of real time |\n\
                      |---|---|---|---|---|---|---|---|---|---|---|\n";

fn open() -> Result<Aligner> {
    Ok(Aligner::open(Path::new("/usr/share/pocketsphinx/model/en-us"))?)
}

/// Aligns all utterances, each voice with one mean, as the service does for the speakers of a call.
fn measure(aligner: &Aligner, utterances: &[Utterance]) -> Errors {
    let started = Instant::now();
    let mut sounds: Vec<Sound> = utterances.iter().map(|u| aligner.sound(&u.samples)).collect();
    let mut voices: Vec<&str> = utterances.iter().map(|u| u.voice.as_str()).collect();
    voices.sort_unstable();
    voices.dedup();
    for voice in voices {
        let own = sounds.iter_mut().zip(utterances).filter(|(_, u)| u.voice == voice).map(|(s, _)| s);
        Sound::share_mean(&mut own.collect::<Vec<_>>());
    }
    let mut errors = Errors { all: Vec::new(), words: 0, timed: 0, seconds: 0.0, took: 0.0 };
    for (utterance, sound) in utterances.iter().zip(&sounds) {
        let words: Vec<&str> = utterance.words.iter().map(String::as_str).collect();
        let times = aligner.align(sound, &words);
        errors.words += times.len();
        errors.timed += times.iter().filter(|t| !t.estimated).count();
        errors.seconds += utterance.samples.len() as f64 / f64::from(truth::RATE);
        let pairs = times.iter().zip(&utterance.truth).filter_map(|(t, truth)| Some((t, (*truth)?)));
        errors.all.extend(pairs.map(|(time, truth)| time.start_ms as f64 - truth.0 as f64));
    }
    errors.took = started.elapsed().as_secs_f64();
    errors
}

/// A name, and how speech is made worse.
type Condition = (&'static str, fn(&[f32]) -> Vec<f32>);

/// The same speech worse.
fn conditions() -> Vec<Condition> {
    fn level(samples: &[f32], dbfs: f32) -> Vec<f32> {
        let now = audio::levels::rms_dbfs(samples);
        samples.iter().map(|s| s * 10f32.powf((dbfs - now) / 20.0)).collect()
    }
    fn again(samples: &[f32], rates: &[u32]) -> Vec<f32> {
        let mut wave = audio::Waveform::mono(truth::RATE, samples.to_vec());
        for rate in rates {
            wave = audio::resample::resample(&wave, *rate).expect("rates are within bounds");
        }
        wave.channels.swap_remove(0)
    }
    vec![
        ("level -45 dBFS", |s| level(s, -45.0)),
        ("rounded to 2 LSB", |s| s.iter().map(|x| (x * 16_384.0).round() / 16_384.0).collect()),
        ("through 24 kHz", |s| again(s, &[24_000, truth::RATE])),
        // Sound of another rate taken for 16 kHz: tempo and pitch change.
        ("10 % faster", |s| again(s, &[14_400])),
        ("10 % slower", |s| again(s, &[17_600])),
        ("through 8 kHz (telephone)", |s| again(s, &[8_000, truth::RATE])),
        ("pink noise, 20 dB below", |s| {
            let speech = audio::levels::rms_dbfs(s);
            let noise = level(&pink(s.len()), speech - 20.0);
            s.iter().zip(noise).map(|(s, n)| s + n).collect()
        }),
    ]
}

/// The utterance with other samples; its times stretch with its length.
fn changed_speech(utterance: &Utterance, samples: Vec<f32>) -> Utterance {
    let stretch = samples.len() as f64 / utterance.samples.len() as f64;
    let moved = |ms: u64| (ms as f64 * stretch).round() as u64;
    let truth = utterance.truth.iter().map(|t| t.map(|(start, end)| (moved(start), moved(end)))).collect();
    Utterance { samples, truth, ..utterance.clone() }
}

/// Sum of white noises that change ever more slowly.
fn pink(len: usize) -> Vec<f32> {
    let (mut state, mut rows) = (1u32, [0f32; 12]);
    (0..len)
        .map(|i| {
            let changes = (i.trailing_zeros() as usize).min(rows.len() - 1);
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            rows[changes] = (state >> 8) as f32 / 8_388_608.0 - 1.0;
            rows.iter().sum()
        })
        .collect()
}

struct Edits {
    kind: &'static str,
    found: usize,
    all: usize,
    missed: Vec<String>,
}

/// Says `EDITED` turns as written and with one to three words left out, repeated or added, and compares with the text.
fn edits(aligner: &Aligner, texts: &[String]) -> Result<Vec<Edits>> {
    let speeches: Vec<Vec<Say>> =
        texts.iter().map(|t| Speech::of(t).words).filter(|w| w.len() >= 10).step_by(2).take(EDITED).collect();
    let mut results: Vec<Edits> = ["as written", "skipped", "repeated", "added"]
        .map(|kind| Edits { kind, found: 0, all: 0, missed: Vec::new() })
        .into();
    for (n, words) in speeches.iter().enumerate() {
        let count = 1 + n % 3;
        let at = 1 + (n * 7) % (words.len() - count - 2);
        let plain = |w: &Say| Say { word: w.word.clone(), pause: None };
        let other = &speeches[(n + 5) % speeches.len()];
        let said = [
            (words.clone(), Vec::new()),
            ([&words[..at], &words[at + count..]].concat(), words[at..at + count].to_vec()),
            ([&words[..at + count], &words[at..]].concat(), words[at..at + count].to_vec()),
            {
                let added: Vec<Say> = other[2..2 + count].iter().map(plain).collect();
                ([&words[..at], &added, &words[at..]].concat(), added)
            },
        ];
        let script: Vec<&str> = words.iter().map(|w| w.word.as_str()).collect();
        for ((said, changed), result) in said.into_iter().zip(&mut results) {
            let sound = FliteEngine::new().synthesize(["slt", "rms", "awb"][n % 3], &said)?;
            let samples =
                audio::resample::resample(&audio::Waveform::mono(sound.rate, sound.samples), truth::RATE)?;
            let reading: Reading =
                aligner.check(&aligner.sound(&samples.channels[0]), &script, &Deviations::default());
            result.all += 1;
            if reading.edits() > 0 {
                result.found += 1;
            } else {
                result.missed.push(changed.iter().map(|w| w.word.as_str()).collect::<Vec<_>>().join(" "));
            }
        }
    }
    Ok(results)
}

fn edit_rows(results: &[Edits]) -> String {
    results.iter().fold(String::new(), |mut rows, r| {
        let missed = if r.kind == "as written" {
            String::new()
        } else {
            format!("\u{201c}{}\u{201d}", r.missed.join("\u{201d}, \u{201c}"))
        };
        let missed = if r.missed.is_empty() { String::new() } else { missed };
        let _ = writeln!(rows, "| {} | {} of {} | {missed} |", r.kind, r.found, r.all);
        rows
    })
}

#[test]
fn words_start_where_the_synthesisers_say_and_what_is_said_otherwise_is_found() -> Result<()> {
    let aligner = open()?;
    let texts = truth::turns(UTTERANCES)?;
    let flite = truth::flite(&texts)?;
    let espeak = truth::espeak(&texts)?;
    assert!(flite.len() >= UTTERANCES && espeak.len() >= UTTERANCES);
    // The rules for unknown words are learned once in the life of a process, not for every sound.
    let _learned = aligner.lexicon().spell_out("levothyroxine");
    let (by_flite, by_espeak) = (measure(&aligner, &flite), measure(&aligner, &espeak));
    let mut rows = by_flite.row("flite") + &by_espeak.row("espeak-ng");
    let mut worst: f64 = 100.0;
    for (name, change) in conditions() {
        let some = flite.iter().step_by(6);
        let changed: Vec<Utterance> = some.map(|u| changed_speech(u, change(&u.samples))).collect();
        let errors = measure(&aligner, &changed);
        worst = worst.min(errors.within(50.0));
        rows += &errors.row(&format!("flite, {name}"));
    }
    let edits = edits(&aligner, &texts)?;
    println!("{HEADER}{rows}\n{}", edit_rows(&edits));
    if let Some(path) = std::env::var_os("PPX_QUALITY_REPORT") {
        std::fs::write(&path, report(&rows, &edits)).with_context(|| path.display().to_string())?;
    }

    for (errors, mean, p90, within) in [(&by_flite, 15.0, 30.0, 99.0), (&by_espeak, 20.0, 45.0, 94.0)] {
        assert_eq!(errors.timed, errors.words, "every word has a time");
        assert!(errors.mean() <= mean && errors.size(0.9) <= p90 && errors.within(50.0) >= within);
        // Generous: the machine does other things at the same time.
        assert!(errors.took / errors.seconds <= 0.15, "{} of real time", errors.took / errors.seconds);
    }
    assert!(worst >= 90.0, "under some condition only {worst:.1} % within 50 ms");
    let share = |kind: &str| edits.iter().find(|e| e.kind == kind).map(|e| e.found as f64 / e.all as f64);
    assert_eq!(share("as written"), Some(0.0), "false alarms");
    for kind in ["skipped", "repeated", "added"] {
        assert!(share(kind) >= Some(0.9), "{kind}");
    }
    Ok(())
}

fn report(rows: &str, edits: &[Edits]) -> String {
    format!(
        "# Quality of the alignment\n\n\
         Written by\n\n```sh\nPPX_QUALITY_REPORT=$PWD/docs/QUALITY.md cargo nextest run -p align --test quality\n```\n\n\
         on {}.\n\n\
         Times of word starts against those of the synthesisers themselves, ms; {UTTERANCES} turns of the offline\n\
         generator, both domain packs in equal parts, numbers, dates, identifiers and names as they come; three voices of\n\
         each engine. espeak-ng counts where it reports an event for the word. The truth is synthetic speech: the figures say\n\
         nothing of far-field or accented voices. Real time is measured on one core that other work shares.\n\n\
         {HEADER}{rows}\n\
         ## Words that were not said as written\n\n\
         {EDITED} turns in each row, said by flite with one to three words changed, compared with the unchanged text.\n\n\
         Turn boundaries, channels and false alarms over whole calls of both packs: `services/align/tests/calls.rs`.\n\n\
         | said | flagged | not noticed |\n|---|---|---|\n{}",
        chrono::Utc::now().date_naive(),
        edit_rows(edits)
    )
}
