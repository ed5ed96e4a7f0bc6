//! The dataset card: `README.md` with front matter as data hubs read it.

use std::fmt::Write;

use domain::dataset::DatasetSummary;

use crate::publish::CardMeta;

/// The card's text; the same summary gives the same bytes.
pub(crate) fn readme(meta: &CardMeta, summary: &DatasetSummary, records_file: &str) -> String {
    let dialogues = summary.train_dialogues + summary.eval_dialogues;
    let hours = summary.audio_s / 3600.0;
    let mut out = String::from("---\n");
    let _ = writeln!(out, "license: {}", quoted(meta.license));
    if meta.license == "other" {
        out.push_str("license_name: unspecified\n");
    }
    let _ = writeln!(out, "pretty_name: {}", quoted(meta.name));
    let _ = writeln!(
        out,
        "language:\n- en\ntask_categories:\n- audio-to-audio\n- text-to-speech\ntags:\n- speech\n- full-duplex\n- dialogue\n\
         - synthetic\nsize_categories:\n- {}",
        size_category(dialogues)
    );
    let _ = writeln!(
        out,
        "configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: dataset/train.jsonl\n  - split: validation\n\
         \x20   path: dataset/eval.jsonl"
    );
    let _ = writeln!(
        out,
        "dataset_info:\n  splits:\n  - name: train\n    num_examples: {}\n  - name: validation\n    num_examples: {}",
        summary.train_dialogues, summary.eval_dialogues
    );
    let _ = writeln!(out, "hours: {hours:.3}\ncontent_sha256: {}\n---\n", summary.content_sha256);
    let _ = writeln!(out, "# {}\n", meta.name.replace(['\n', '\r'], " "));
    let _ = writeln!(
        out,
        "{dialogues} dialogues of two speakers, {hours:.2} hours, {} words with times, {} context injections. Domain: {}.\n",
        summary.words, summary.injections, meta.domain
    );
    let _ = writeln!(
        out,
        "| part | dialogues |\n|---|---|\n| train | {} |\n| validation | {} |\n| left out (`rejects.jsonl`) | {} |\n",
        summary.train_dialogues, summary.eval_dialogues, summary.rejected_dialogues
    );
    let _ = writeln!(
        out,
        "## Files\n\n- `dataset/train.jsonl`, `dataset/eval.jsonl`: one line a dialogue, `path` (relative to the manifest) and \
         `duration` in seconds.\n- `stereo_wav/<id>.wav`: 24 kHz PCM16, left the agent, right the user.\n- `stereo_wav/<id>.json`: \
         words with times and speaker, turns, the agent's brief, context injections with their frame (80 ms).\n- `{records_file}`: \
         the dialogue records; `scripts/<id>.txt`: what is spoken; `speaker_samples/`: voices of the agent.\n- `dataset.json`: \
         every file with its SHA-256."
    );
    out
}

fn quoted(text: &str) -> String {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if plain { text.to_owned() } else { serde_json::to_string(text).unwrap_or_default() }
}

fn size_category(dialogues: u32) -> &'static str {
    match dialogues {
        0..1_000 => "n<1K",
        1_000..10_000 => "1K<n<10K",
        _ => "10K<n<100K",
    }
}
