//! Whole calls of both domain packs: none is refused, turns and channels are where the renderer put them.
#![expect(clippy::cast_precision_loss, reason = "counts of milliseconds")]

use std::path::Path;

use align::Limits;
use align::align::align_acoustically;
use aligner::Aligner;
use anyhow::Result;
use audio::levels::rms_dbfs;
use datagen::grammar::generate;
use datagen::sampler::Design;
use domain::dialogue::Speaker;
use domain::pack::built_in;
use tts::FliteEngine;
use tts::render::render;

/// Calls of each pack.
const CALLS: u32 = 6;

#[test]
fn calls_of_both_packs_pass_and_turns_and_channels_are_where_they_were_rendered() -> Result<()> {
    let aligner = Aligner::open(Path::new("/usr/share/pocketsphinx/model/en-us"))?;
    let (mut wrong_ms, mut minutes, mut refused) = (0u64, 0.0, Vec::new());
    for (_, pack) in built_in() {
        let design = Design::new(&pack, 16, 3)?;
        for row in 0..CALLS {
            let record = generate(&pack, &design, row, 3)?;
            let rendering = render(&record, &FliteEngine::new(), 3000)?;
            let mut report = rendering.report.clone();
            report.words = None;
            let result = align_acoustically(&aligner, &record, &report, &rendering.wave, &Limits::default())?;
            if !result.faults.is_empty() {
                refused.push((record.id.clone(), result.faults.clone()));
            }
            minutes += rendering.wave.duration_ms() as f64 / 60_000.0;
            for (ours, right) in result.sidecar.turns.iter().zip(&rendering.report.turns) {
                let late = |ours: f64, right: u64| (ours * 1000.0 - right as f64).abs();
                assert!(late(ours.start, right.start_ms) <= 100.0, "{}: {ours:?} {right:?}", record.id);
                assert!(late(ours.end, right.end_ms) <= 100.0, "{}: {ours:?} {right:?}", record.id);
                let other = if right.speaker == Speaker::Agent { 1 } else { 0 };
                for ms in (right.start_ms..right.end_ms).step_by(10) {
                    let from = usize::try_from(ms)? * 24;
                    let frame = &result.stereo.channels[other][from..from + 240];
                    wrong_ms += if rms_dbfs(frame) > -60.0 { 10 } else { 0 };
                }
            }
        }
    }
    println!("{wrong_ms} ms on the wrong channel in {minutes:.1} minutes");
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(wrong_ms as f64 / 1000.0 <= 0.05 * minutes, "{wrong_ms} ms in {minutes:.1} minutes");
    Ok(())
}
