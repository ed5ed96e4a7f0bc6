//! Uploaded voices: checked before they are stored, converted once, usable at once.

use anyhow::Result;
use audio::{Waveform, wav};
use serde_json::{Value, json};
use weights::VoiceFile;

use crate::support::{Answer, Gateway};

const BOUNDARY: &str = "7f3a-boundary";

/// A form of these fields, by hand: names, and file names for files.
fn form(fields: &[(&str, Option<&str>, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, file, content) in fields {
        let file = file.map(|f| format!("; filename=\"{f}\"")).unwrap_or_default();
        let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        out.extend(head.into_bytes());
        out.extend(*content);
        out.extend(b"\r\n");
    }
    out.extend(format!("--{BOUNDARY}--\r\n").into_bytes());
    out
}

async fn send(gateway: &Gateway, body: Vec<u8>, key: Option<&str>) -> Result<Answer> {
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    let mut request = gateway.request(reqwest::Method::POST, "/v1/voices").header("content-type", kind);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    Answer::read(request.body(body).send().await?).await
}

async fn upload(gateway: &Gateway, name: &str, file: &[u8], more: &[(&str, &str)]) -> Result<Answer> {
    let mut fields: Vec<(&str, Option<&str>, &[u8])> = vec![("name", None, name.as_bytes())];
    fields.extend(more.iter().map(|(n, v)| (*n, None, v.as_bytes())));
    fields.push(("file", Some("any.name"), file));
    send(gateway, form(&fields), None).await
}

/// Name, file, other fields; the pointer and a word of the refusal.
type Case<'a> = (&'a str, &'a [u8], &'a [(&'a str, &'a str)], &'a str, &'a str);

const CONSENT: (&str, &str) = ("consent", "true");

fn tone(rate: u32, seconds: f64) -> Result<Vec<u8>> {
    let step = std::f64::consts::TAU * 440.0 / f64::from(rate);
    let samples = (0..(f64::from(rate) * seconds) as usize).map(|i| (0.3 * (step * i as f64).sin()) as f32);
    Ok(wav::encode_pcm16(&Waveform::mono(rate, samples.collect()))?)
}

/// A file like the published package's, made by torch 2.11:
/// `torch.save({"embeddings": torch.randn(6, 1, 1, 4).bfloat16(), "cache": torch.arange(68).reshape(1, 17, 4)}, path)`.
fn torch_file() -> Result<Vec<u8>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/voice.pt");
    Ok(std::fs::read(path)?)
}

async fn stored(gateway: &Gateway, name: &str) -> Result<VoiceFile> {
    let voice = store::voices::find(&gateway.store, name).await?;
    let (artifact, sha256) = (voice.prompt_artifact.unwrap(), voice.prompt_sha256.unwrap());
    Ok(VoiceFile::from_bytes(&gateway.artifacts.get_verified(&artifact, &sha256).await?)?)
}

fn files(gateway: &Gateway) -> Result<usize> {
    match std::fs::read_dir(gateway.artifacts.local_path("voices")?) {
        Ok(folder) => {
            Ok(folder.filter(|f| f.as_ref().is_ok_and(|f| f.path().read_dir().unwrap().count() > 0)).count())
        }
        Err(_) => Ok(0),
    }
}

#[tokio::test]
async fn a_wav_of_any_rate_becomes_samples_at_the_house_rate() -> Result<()> {
    let gateway = Gateway::start().await?;
    let answer = upload(&gateway, "anna", &tone(44_100, 1.0)?, &[CONSENT]).await?;
    assert_eq!(answer.status, 201, "{answer:?}");
    let voice = &answer.body;
    assert_eq!((voice["form"].as_str(), voice["source"].as_str()), (Some("samples"), Some("upload")));
    assert_eq!((&voice["dim"], voice["consented_at"].is_string()), (&Value::Null, true));
    assert!((990..=1_010).contains(&voice["duration_ms"].as_i64().unwrap()));
    let id = voice["id"].as_str().unwrap();
    assert_eq!(answer.header("location"), format!("/v1/voices/{id}"));
    for path in [id, "anna"] {
        assert_eq!(gateway.get(&format!("/v1/voices/{path}")).await?.body, *voice);
    }
    assert_eq!(gateway.get("/v1/voices").await?.body["data"], json!([voice]));
    let VoiceFile::Samples(samples) = stored(&gateway, "anna").await? else { panic!("not samples") };
    assert!((23_900..=24_100).contains(&samples.len()));
    let lufs = audio::loudness::integrated_lufs(&Waveform::mono(24_000, samples))?;
    assert!((lufs + 24.0).abs() < 0.1, "{lufs}");
    // The original is kept beside it, as sent.
    let row = store::voices::find(&gateway.store, "anna").await?;
    assert_eq!(gateway.artifacts.get_verified(&row.artifact, &row.sha256).await?, tone(44_100, 1.0)?);
    upload(&gateway, "anna", &tone(24_000, 1.0)?, &[CONSENT]).await?.assert_problem(409, "name_taken");
    assert_eq!(files(&gateway)?, 1, "a refused voice leaves no files");
    Ok(())
}

#[tokio::test]
async fn a_torch_file_is_converted_and_never_stored_as_it_came() -> Result<()> {
    let gateway = Gateway::start().await?;
    let answer = upload(&gateway, "natf", &torch_file()?, &[CONSENT]).await?;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!((answer.body["form"].as_str(), answer.body["dim"].as_i64()), (Some("embeddings"), Some(4)));
    assert_eq!(answer.body["duration_ms"], 560);
    let VoiceFile::Embeddings(e) = stored(&gateway, "natf").await? else { panic!("not embeddings") };
    assert_eq!((e.dim, e.dtype), (4, weights::Dtype::BF16));
    let keys = gateway.artifacts.list("voices").await?;
    assert!(keys.iter().all(|k| k.ends_with("/prompt.safetensors")) && keys.len() == 1, "{keys:?}");
    Ok(())
}

#[tokio::test]
async fn what_is_wrong_with_an_upload_is_named_and_nothing_is_kept() -> Result<()> {
    let gateway = Gateway::start().await?;
    let good = tone(24_000, 1.0)?;
    let pickle = torch_file()?;
    let cases: [Case; 13] = [
        ("v", &good, &[], "/consent", "consent"),
        ("v", &good, &[("consent", "false")], "/consent", "must be true"),
        ("v", &good, &[("consent", "yes")], "/consent", "\"yes\""),
        ("../v", &good, &[CONSENT], "/name", "../v"),
        ("", &good, &[CONSENT], "/name", "must be"),
        ("flite-slt", &good, &[CONSENT], "/name", "flite-"),
        ("v", b"", &[CONSENT], "/file", "empty"),
        ("v", &tone(24_000, 0.3)?, &[CONSENT], "/file", "400 ms"),
        ("v", &tone(8_000, 600.0)?, &[CONSENT], "/file", "at most 60.0 s"),
        ("v", &tone(192_000, 1.0)?, &[CONSENT], "/file", "192000"),
        ("v", &[0; 48_000], &[CONSENT], "/file", "neither a WAV nor a .pt"),
        ("v", &pickle[..pickle.len() - 60], &[CONSENT], "/file", "zip"),
        ("v", &good, &[CONSENT, ("colour", "red")], "/colour", "unknown"),
    ];
    for (name, file, more, pointer, told) in cases {
        let answer = upload(&gateway, name, file, more).await?;
        answer.assert_problem(422, "validation_failed");
        assert_eq!(answer.pointers(), [pointer], "{answer:?}");
        assert!(answer.detail().contains(told), "{told}: {answer:?}");
    }
    // A pickle that would run something is refused by the name of what it would run.
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default();
    zip.start_file("v/data.pkl", stored.compression_method(zip::CompressionMethod::Stored))?;
    std::io::Write::write_all(&mut zip, b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.")?;
    let answer = upload(&gateway, "v", &zip.finish()?.into_inner(), &[CONSENT]).await?;
    answer.assert_problem(422, "validation_failed");
    assert!(answer.detail().contains("os.system") && answer.detail().contains("not run"), "{answer:?}");
    assert_eq!(gateway.get("/v1/voices").await?.body["data"], json!([]));
    assert_eq!(files(&gateway)?, 0);
    let long = upload(&gateway, "long", &tone(8_000, 600.0)?, &[CONSENT, ("trim", "true")]).await?;
    assert_eq!((long.status, &long.body["duration_ms"]), (201, &json!(60_000)), "{long:?}");
    Ok(())
}

#[tokio::test]
async fn broken_forms_other_media_and_large_files_have_their_own_problems() -> Result<()> {
    let gateway = Gateway::start_with(&[("PPX__GATEWAY__MAX_VOICE_BYTES", "1000")]).await?;
    gateway.post("/v1/voices", &json!({"name": "v"})).await?.assert_problem(415, "unsupported_media_type");
    let answer = upload(&gateway, "v", &[0; 1_001], &[CONSENT]).await?;
    answer.assert_problem(413, "payload_too_large");
    assert!(answer.detail().contains("1000"), "{answer:?}");
    for body in [&b""[..], b"junk", b"--7f3a-boundary\r\n", b"--7f3a-boundary--\r\n\r\n"] {
        let answer = send(&gateway, body.to_vec(), None).await?;
        assert!([400, 422].contains(&answer.status), "{body:?}: {answer:?}");
    }
    let twice = form(&[("name", None, b"a"), ("name", None, b"b")]);
    send(&gateway, twice, None).await?.assert_problem(422, "validation_failed");
    Ok(())
}

#[tokio::test]
async fn an_upload_with_a_key_is_made_once() -> Result<()> {
    let gateway = Gateway::start().await?;
    let file = tone(16_000, 1.0)?;
    let body = |file: &[u8]| {
        form(&[("name", None, b"once"), ("consent", None, b"true"), ("file", Some("a.wav"), file)])
    };
    let first = send(&gateway, body(&file), Some("k1")).await?;
    assert_eq!(first.status, 201, "{first:?}");
    let again = send(&gateway, body(&file), Some("k1")).await?;
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(again.header("idempotent-replayed"), "true");
    assert_eq!(send(&gateway, body(&tone(16_000, 2.0)?), Some("k1")).await?.status, 422);
    assert_eq!(gateway.get("/v1/voices").await?.body["data"].as_array().map(Vec::len), Some(1));
    Ok(())
}

#[tokio::test]
async fn a_session_can_use_an_upload_at_once_and_an_unknown_voice_is_told_the_known_ones() -> Result<()> {
    let gateway = Gateway::start().await?;
    gateway.tiny_model("tiny").await?;
    upload(&gateway, "anna", &tone(24_000, 1.0)?, &[CONSENT]).await?;
    let made = gateway.post("/v1/sessions", &json!({"model": "tiny", "voice": "anna"})).await?;
    assert_eq!((made.status, made.body["voice"].as_str()), (201, Some("anna")), "{made:?}");
    let answer = gateway.post("/v1/sessions", &json!({"model": "tiny", "voice": "bert"})).await?;
    answer.assert_problem(404, "not_found");
    assert!(answer.detail().contains("bert") && answer.detail().contains("anna"), "{answer:?}");
    Ok(())
}
