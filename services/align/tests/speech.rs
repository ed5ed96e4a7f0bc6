//! Real speech through alignment: every written token timed, every channel clean.

mod common;

use align::align::align;
use audio::levels::{FLOOR_DBFS, rms_dbfs};
use audio::wav::{WavLimits, encode_pcm16, parse};
use domain::dialogue::Speaker;
use tts::FliteEngine;
use tts::render::render;

#[test]
fn a_spoken_call_has_clean_channels_and_a_time_for_every_written_token() {
    let texts = [
        "Good morning, this is Anna from Harbour Insurance \u{2014} how can I help you?",
        "Hi, uh, does my premium go up to $13,100 by 01/15/2026?",
        "[typing] Let me check... Your policy number, please.",
        "It's EM3985771. My e-mail is bob@example.com, phone 555 123 4567.",
        "!!!",
        "Hello? \u{1f600} Are you there?",
        "Yes \u{2013} it rose by 4.5% because of Dr. Smith's 2nd claim; that's 1,234.56 USD.",
        "Okay... half at 3:30 p.m., i.e. today & tomorrow.",
    ];
    let mut call = common::call("dial-00000", &texts);
    call.record.context_injections[1].after_turn = 6;
    let rendering = render(&call.record, &FliteEngine::new(), 3000).expect("renders");
    // Through PCM16, as the job does.
    let bytes = encode_pcm16(&rendering.wave).expect("encodes");
    let mono = parse(&bytes, &WavLimits::default()).expect("parses");
    let aligned = align(&call.record, &rendering.report, &mono, 0.15).expect("aligns");
    assert_eq!((aligned.faults.len(), aligned.repairs), (0, Default::default()), "{:?}", aligned.faults);

    let published: Vec<&str> = aligned.sidecar.alignments.iter().map(|w| w.0.as_str()).collect();
    let cleaned: Vec<String> = texts.iter().map(|t| spoken::script::clean_turn(t)).collect();
    let said: Vec<&str> = cleaned.iter().filter(|t| *t != "!!!").flat_map(|t| t.split_whitespace()).collect();
    assert_eq!(published, said);
    let estimated: Vec<&str> = aligned.sidecar.alignment_flags.interp.iter().map(|i| published[*i]).collect();
    assert_eq!(estimated, ["-", "\u{1f600}", "-"]);

    let mut at = 0.0;
    for (index, (word, (start, end), label)) in aligned.sidecar.alignments.iter().enumerate() {
        assert!(*start >= at && start < end, "{word} {start} {end}");
        at = *end;
        let range = (start * 24_000.0) as usize..(end * 24_000.0) as usize;
        let (own, other) = if label == Speaker::Agent.published_label() { (0, 1) } else { (1, 0) };
        let level = |side: usize| rms_dbfs(&aligned.stereo.channels[side][range.clone()]);
        assert!(level(other) <= FLOOR_DBFS, "{word} is heard on the other side");
        if !aligned.sidecar.alignment_flags.interp.contains(&index) {
            assert!(level(own) > -45.0, "{word} is at {} dBFS", level(own));
        }
    }
    assert!(aligned.sidecar.context_injections.iter().all(|i| i.frame_offset.is_some()));
}
