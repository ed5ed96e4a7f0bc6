//! The report: known dialogues give known numbers, and the page needs nothing from outside.

use audio::Waveform;
use dataset::import::finding::Findings;
use dataset::report::facts::DialogueFacts;
use dataset::report::{Report, page};
use domain::alignment::{AlignedTurn, AlignedWord};
use domain::dataset::DatasetSummary;
use domain::dialogue::{DIALOGUE_SCHEMA_VERSION, DesignRow, DialogueRecord, Speaker, Turn};
use domain::injection::Injection;
use domain::manifest::Sidecar;
use streams::Tokenizer;

fn tokenizer() -> Tokenizer {
    let path = testkit::golden_path("finetune/a_interleaver/tiny_spm.model").expect("golden data");
    Tokenizer::from_bytes(&std::fs::read(path).expect("reads")).expect("a tokenizer")
}

/// A dialogue of `turns` turns of six words; `step` moves the gaps so that dialogues differ.
fn dialogue(name: &str, turns: u32, step: u64) -> (DialogueRecord, Sidecar, Waveform) {
    let (mut words, mut aligned, mut now) = (Vec::new(), Vec::new(), 0u64);
    for index in 0..turns {
        let speaker = if index % 2 == 0 { Speaker::Agent } else { Speaker::User };
        let start_ms = now;
        for word in ["you", "can", "call", "the", "broker", "now"] {
            let long = 220 + 7 * (step % 20);
            words.push(AlignedWord {
                word: word.into(),
                start_ms: now,
                end_ms: now + long,
                speaker,
                estimated: word == "broker" && index % 5 == 0,
            });
            now += long + 40;
        }
        aligned.push(AlignedTurn {
            index,
            speaker,
            start_ms,
            end_ms: now - 40,
            text: "you can call the broker now".into(),
        });
        // Some turns begin before the last one ends.
        now = (now + 90 * ((step * 7 + u64::from(index) * 5) % 17)).saturating_sub(300);
    }
    let frames = now.div_ceil(80) + 5;
    let injections: Vec<Injection> = (1..turns)
        .step_by(6)
        .map(|after_turn| Injection {
            after_turn,
            text: "Quote it.".into(),
            frame_offset: Some(u32::try_from(aligned[after_turn as usize].start_ms / 80).expect("short")),
        })
        .collect();
    let record = DialogueRecord {
        id: name.into(),
        schema_version: DIALOGUE_SCHEMA_VERSION,
        domain: "test".into(),
        text_prompt: "ROLE: broker".into(),
        turns: aligned
            .iter()
            .map(|t| Turn { index: t.index, speaker: t.speaker, text: t.text.clone() })
            .collect(),
        context_injections: injections.clone(),
        seed: std::collections::BTreeMap::new(),
        design: DesignRow { design_id: "d".into(), row: 0 },
        model: "test".into(),
        cost_microusd: 0,
    };
    let sidecar = Sidecar::publish(words, &aligned, record.text_prompt.clone(), None, injections);
    let loud = 0.05 + 0.02 * (step % 30) as f32;
    let samples = usize::try_from(frames * 1920).expect("short");
    // A constant is enough for levels, and quickly made.
    let mut wave = Waveform::stereo(24_000, vec![loud; samples], vec![0.8 * loud; samples]);
    if step == 3 {
        wave.channels[0][100] = 1.0;
    }
    (record, sidecar, wave)
}

fn gather(name: &str, turns: u32, step: u64, tokenizer: Option<&Tokenizer>) -> DialogueFacts {
    let (record, sidecar, wave) = dialogue(name, turns, step);
    DialogueFacts::gather(&record, &sidecar, &wave, tokenizer)
}

fn summary(facts: &[DialogueFacts]) -> DatasetSummary {
    DatasetSummary {
        train_dialogues: u32::try_from(facts.len()).expect("few") - 2,
        eval_dialogues: 2,
        rejected_dialogues: 1,
        audio_s: facts.iter().map(|f| f.duration_s).sum::<f64>().round(),
        words: facts.iter().map(|f| f.words.0 + f.words.1).sum(),
        injections: facts.iter().map(|f| f.injections.0 + f.injections.1).sum(),
        content_sha256: "ab".repeat(32),
    }
}

#[test]
fn a_known_dialogue_gives_known_numbers() {
    let (record, mut sidecar, wave) = dialogue("d", 4, 0);
    // Agent 0 to 1.52 s, user from 1.22, agent again 0.4 s before the user ends.
    let facts = DialogueFacts::gather(&record, &sidecar, &wave, None);
    assert_eq!((facts.turns, facts.words, facts.estimated_words), (4, (12, 12), 1));
    let expected: f64 = sidecar.turns[2].start - sidecar.turns[1].end;
    assert_eq!(facts.gaps_s, [(expected * 1000.0).round() / 1000.0]);
    assert_eq!((facts.injections, facts.injection_places.len()), ((1, 0), 1));
    assert!(facts.overlap_s > 0.0 && facts.speech_s.0 > 2.0);
    assert_eq!(facts.tokens, None);
    assert!((facts.levels.0.rms_dbfs - (-26.02)).abs() < 0.1, "{:?}", facts.levels);
    sidecar.turns[1].end = sidecar.turns[1].start;
    assert_eq!(DialogueFacts::gather(&record, &sidecar, &wave, None).unaligned_turns, 1);
}

/// A16: ten minutes in windows of 60 s; one of them begins with the conversation.
#[test]
fn the_share_of_windows_that_begin_with_the_conversation_is_told() {
    let tokenizer = tokenizer();
    let facts = [gather("long", 300, 4, Some(&tokenizer))];
    assert!(facts[0].duration_s > 600.0, "{}", facts[0].duration_s);
    let report =
        Report::new("calls", &summary(&[facts[0].clone(), facts[0].clone()]), &facts, Some("tiny"), None);
    let tokens = report.measured.expect("measured").tokens.expect("a tokenizer");
    let at_60 = &tokens.windows[0];
    assert_eq!((at_60.seconds, at_60.with_start, at_60.refused_dialogues), (60.0, 1, 0));
    assert!(at_60.windows >= 10, "{at_60:?}");
    assert!((at_60.start_share - 1.0 / at_60.windows as f64).abs() < 1e-3);
    assert!(tokens.windows[3].windows < at_60.windows);
}

#[test]
fn the_page_is_whole_without_anything_from_outside() -> anyhow::Result<()> {
    let tokenizer = tokenizer();
    let facts: Vec<DialogueFacts> = (0..36u64)
        .map(|i| {
            gather(&format!("dial-{i:05}"), 6 + u32::try_from(i * 3 % 20).unwrap_or(0), i, Some(&tokenizer))
        })
        .collect();
    let mut findings = Findings::default();
    findings.repaired("words_sorted", 3, "stereo_wav/<b>&\"evil\".json");
    findings.warn("no_record", "stereo_wav/x.wav");
    let report = Report::new("calls <script>", &summary(&facts), &facts, Some("tiny"), Some(findings));
    let html = page(&report);
    for outside in ["http:", "https:", "src=", "url(", "@import", "<script", "<link", "<b>&"] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    assert!(html.matches("<svg").count() >= 12, "{}", html.matches("<svg").count());
    for part in [
        "words_sorted",
        "&lt;b&gt;&amp;&quot;evil&quot;",
        "calls &lt;script&gt;",
        "1 dialogues are clipped",
        "<h2>Briefs",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert!(html.contains(
        "<figcaption>Text tokens without a frame, share</figcaption><small>all 36 are 0 </small></figure>"
    ));
    let shown: Vec<&str> = report.prompts.iter().map(|p| p.id.as_str()).collect();
    assert_eq!(shown, ["dial-00000", "dial-00008", "dial-00017", "dial-00026", "dial-00035"]);
    assert!(report.prompts.iter().all(|p| !p.text.is_empty() && html.contains(&p.id)));
    let one = Report::new("one", &summary(&facts[..2]), &facts[..1], None, None);
    assert_eq!(one.prompts.len(), 1);
    let again: Report = serde_json::from_slice(&serde_json::to_vec(&report)?)?;
    assert_eq!(again, report);
    // For a look at it in a browser.
    std::fs::write(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("dataset-report.html"), html)?;
    Ok(())
}
