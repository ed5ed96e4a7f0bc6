//! The codec against the published package (golden set mimi_tiny): every stage of a whole signal, frame by frame, two
//! signals in a batch, a ragged end, past the attention window, all codebooks.

mod common;

use common::{Data, Outcome, assert_close, assert_equal, golden, mimi_config, mimi_tiny};
use personaplex::{Mimi, PersonaplexError};
use tch::{Device, Kind, Tensor};
use weights::MimiConfig;

const LATENT: f64 = 5e-5;
const WAVE: f64 = 2e-4;
const SET: &str = "personaplex/mimi_tiny";

/// The one file of the set called `codec_{start}{middle}{end}` and its middle; sizes in names are the set's choice.
fn find(start: &str, end: &str) -> Result<(String, Data), Box<dyn std::error::Error>> {
    for entry in std::fs::read_dir(golden(SET))? {
        let name = entry?.file_name().into_string().map_err(|name| format!("{name:?} is no UTF-8"))?;
        let middle = name.strip_prefix(&format!("codec_{start}")).and_then(|rest| rest.strip_suffix(end));
        // `codec_12f` must not be found as `codec_batch2_5f`.
        if let Some(middle) = middle.filter(|m| !start.is_empty() || m.bytes().all(|b| b.is_ascii_digit())) {
            return Ok((middle.to_owned(), Data::open(&format!("{SET}/{name}"))?));
        }
    }
    Err(format!("{SET} has no codec_{start}*{end}").into())
}

fn codec(change: impl FnOnce(&mut MimiConfig)) -> Result<Mimi, Box<dyn std::error::Error>> {
    let mut config = mimi_config()?;
    change(&mut config);
    Ok(Mimi::from_file(&golden(&format!("{SET}/weights.safetensors")), &config, Device::Cpu)?)
}

/// Latents and codes of `[B, 1, n * frame]` fed frame by frame.
fn stream_encode(mimi: &Mimi, wave: &Tensor) -> Result<(Tensor, Tensor), PersonaplexError> {
    let (batch, frame) = (wave.size()[0], mimi.frame_size() as i64);
    let mut state = mimi.new_encoder_batch(batch, 1);
    let (mut latents, mut codes) = (vec![], vec![]);
    for f in 0..wave.size()[2] / frame {
        let pcm = wave.narrow(2, f * frame, frame);
        let latent = mimi.encode_taps(&mut state, &pcm, &vec![true; batch as usize])?.latent;
        codes.push(mimi.quantize(&latent));
        latents.push(latent);
    }
    Ok((Tensor::cat(&latents, 2), Tensor::cat(&codes, 2)))
}

/// Wave of `[B, K, n]` fed frame by frame.
fn stream_decode(mimi: &Mimi, codes: &Tensor) -> Result<Tensor, PersonaplexError> {
    let batch = codes.size()[0];
    let mut state = mimi.new_decoder_batch(batch, 1);
    let part = |f| mimi.decode_step(&mut state, &codes.narrow(2, f, 1), &vec![true; batch as usize]);
    let parts = (0..codes.size()[2]).map(part).collect::<Result<Vec<_>, _>>()?;
    Ok(Tensor::cat(&parts, 2))
}

#[test]
fn every_stage_of_a_whole_signal_is_the_published_one() -> Outcome {
    let (mimi, (_, data)) = (mimi_tiny()?, find("", "f.safetensors")?);
    let (wave, codes) = (data.f32("wave"), data.i64("codes"));
    let mut encoder = mimi.new_encoder_batch(1, codes.size()[2]);
    let taps = mimi.encode_taps(&mut encoder, &wave, &[true])?;
    assert_close("seanet_out", &taps.seanet, &data.f32("seanet_out"), LATENT);
    assert_close("encoder_transformer_out", &taps.transformer, &data.f32("encoder_transformer_out"), LATENT);
    assert_close("latent", &taps.latent, &data.f32("latent"), LATENT);
    assert_equal("codes", &mimi.quantize(&taps.latent), &codes);
    assert_equal("codes", &mimi.encode_signal(&wave)?, &codes);
    let mut decoder = mimi.new_decoder_batch(1, codes.size()[2]);
    let taps = mimi.decode_taps(&mut decoder, &codes, &[true])?;
    assert_close("quantized", &taps.quantized, &data.f32("quantized"), LATENT);
    assert_close("upsampled", &taps.upsampled, &data.f32("upsampled"), LATENT);
    assert_close("decoder_transformer_out", &taps.transformer, &data.f32("decoder_transformer_out"), LATENT);
    assert_close("decoded", &taps.wave, &data.f32("decoded"), WAVE);
    assert_close("decoded", &mimi.decode_signal(&codes)?, &data.f32("decoded"), WAVE);
    Ok(())
}

#[test]
fn frame_by_frame_gives_the_published_stream() -> Outcome {
    let (mimi, (_, data)) = (mimi_tiny()?, find("", "f.safetensors")?);
    let (latent, codes) = stream_encode(&mimi, &data.f32("wave"))?;
    assert_close("stream_latent", &latent, &data.f32("stream_latent"), LATENT);
    assert_equal("stream_codes", &codes, &data.i64("stream_codes"));
    let decoded = stream_decode(&mimi, &data.i64("stream_codes"))?;
    assert_close("stream_decoded", &decoded, &data.f32("stream_decoded"), WAVE);
    // A trimmed set leaves it out: whole and streamed codes are equal.
    let wanted = data.maybe("stream_decoded_of_codes").unwrap_or_else(|| data.f32("stream_decoded"));
    assert_close("stream_decoded_of_codes", &stream_decode(&mimi, &data.i64("codes"))?, &wanted, WAVE);
    Ok(())
}

#[test]
fn signals_in_one_batch_give_the_published_streams_and_do_not_mix() -> Outcome {
    let (mimi, (_, data)) = (mimi_tiny()?, find("batch", ".safetensors")?);
    let wave = data.f32("wave");
    let (latent, codes) = stream_encode(&mimi, &wave)?;
    assert_close("stream_latent", &latent, &data.f32("stream_latent"), LATENT);
    assert_equal("stream_codes", &codes, &data.i64("stream_codes"));
    assert_close("stream_decoded", &stream_decode(&mimi, &codes)?, &data.f32("stream_decoded"), WAVE);
    for b in 0..wave.size()[0] {
        let (_, alone) = stream_encode(&mimi, &wave.narrow(0, b, 1))?;
        assert_equal("codes", &codes.narrow(0, b, 1), &alone);
    }
    Ok(())
}

/// The reference pads every convolution on the right, ours fills the wave with zeros first: only the last frame differs.
#[test]
fn a_ragged_end_is_filled_with_zeros_and_earlier_frames_are_the_published_ones() -> Outcome {
    let (mimi, (_, data)) = (mimi_tiny()?, find("ragged", ".safetensors")?);
    let (wave, codes) = (data.f32("wave"), data.i64("codes"));
    let (frames, frame) = (codes.size()[2], mimi.frame_size() as i64);
    assert_ne!(wave.size()[2] % frame, 0, "the set's wave is ragged");
    let found = mimi.encode_signal(&wave)?;
    assert_eq!(found.size(), codes.size());
    assert_equal("codes", &found.narrow(2, 0, frames - 1), &codes.narrow(2, 0, frames - 1));
    let filled = wave.constant_pad_nd([0, frames * frame - wave.size()[2]]);
    let (latent, streamed) = stream_encode(&mimi, &filled)?;
    let whole = |x: &Tensor| x.narrow(2, 0, frames - 1);
    assert_close("latent", &whole(&latent), &whole(&data.f32("latent")), LATENT);
    assert_equal("the last frame is that of the filled wave", &found, &streamed);
    assert_close("decoded", &mimi.decode_signal(&codes)?, &data.f32("decoded"), WAVE);
    Ok(())
}

/// The reference's stream loses a key once its ring is full; ours goes on as its whole signal does.
#[test]
fn past_its_window_the_stream_equals_the_published_whole_signal() -> Outcome {
    let (context, data) = find("ctx", ".safetensors")?;
    let context: i64 = context.parse()?;
    let mimi = codec(|config| config.transformer.context = context)?;
    let (wave, codes) = (data.f32("wave"), data.i64("decode_codes"));
    let (full_latent, full_decoded) = (data.f32("full_latent"), data.f32("full_decoded"));
    assert_equal("full_codes", &mimi.encode_signal(&wave)?, &data.i64("full_codes"));
    assert_close("full_decoded", &mimi.decode_signal(&codes)?, &full_decoded, WAVE);
    let mut whole = mimi.new_encoder_batch(1, codes.size()[2]);
    assert_close("full_latent", &mimi.encode_taps(&mut whole, &wave, &[true])?.latent, &full_latent, LATENT);

    let (latent, streamed) = stream_encode(&mimi, &wave)?;
    let decoded = stream_decode(&mimi, &codes)?;
    assert_close("our stream against full_latent", &latent, &full_latent, LATENT);
    assert_equal("our stream against full_codes", &streamed, &data.i64("full_codes"));
    assert_close("our stream against full_decoded", &decoded, &full_decoded, WAVE);

    // Frames whose steps see fewer keys than the window; the next one fills the ring.
    let before = (context - 1) / mimi.config().downsample();
    assert!((1..codes.size()[2]).contains(&before), "the set goes past its window of {context}");
    let (samples, head) = (before * mimi.frame_size() as i64, |x: &Tensor, n| x.narrow(2, 0, n));
    assert_close("stream_latent", &head(&latent, before), &head(&data.f32("stream_latent"), before), LATENT);
    assert_equal("stream_codes", &head(&streamed, before), &head(&data.i64("stream_codes"), before));
    // A trimmed set leaves it out: up to the window it is the whole signal's.
    let wanted = data.maybe("stream_decoded_of_codes").unwrap_or(full_decoded);
    assert_close("stream_decoded_of_codes", &head(&decoded, samples), &head(&wanted, samples), WAVE);
    Ok(())
}

#[test]
fn all_codebooks_of_the_file_can_be_active() -> Outcome {
    let (_, data) = find("", "codebooks.safetensors")?;
    let (wave, codes) = (data.f32("wave"), data.i64("codes"));
    let all = codec(|config| config.active_codebooks = codes.size()[1])?;
    assert_eq!(all.codebooks(), codes.size()[1]);
    assert_equal("codes", &all.encode_signal(&wave)?, &codes);
    // A shorter frame is the head of a longer one, and every codec of enough codebooks decodes it alike.
    let few = mimi_tiny()?;
    let head = codes.narrow(1, 0, few.codebooks());
    assert_equal("fewer codebooks", &few.encode_signal(&wave)?, &head);
    assert_equal("decoded", &all.decode_signal(&head)?, &few.decode_signal(&head)?);
    assert!(matches!(few.decode_signal(&codes), Err(PersonaplexError::Shape { what: "codes", .. })));
    let one = codec(|config| config.active_codebooks = 1)?;
    let head = codes.narrow(1, 0, 1);
    assert_equal("the semantic codebook alone", &one.encode_signal(&wave)?, &head);
    assert_equal("decoded", &all.decode_signal(&head)?, &one.decode_signal(&head)?);
    let pcm: Vec<f32> = Vec::try_from(wave.flatten(0, -1))?;
    assert!(matches!(one.encode(&pcm), Err(PersonaplexError::Shape { what: "codes", .. })));
    Ok(())
}

#[test]
fn the_plain_interface_equals_the_stream_over_chunk_borders() -> Outcome {
    let mimi = mimi_tiny()?;
    let frames = 130i64; // one chunk of 125 and a rest
    let time = Tensor::arange(frames * mimi.frame_size() as i64, (Kind::Float, Device::Cpu));
    let wave = ((&time * 0.05).sin() + (&time * 0.0031).sin() * 0.5) * 0.3;
    let pcm: Vec<f32> = Vec::try_from(&wave)?;
    let wave = wave.view([1, 1, -1]);
    let codes = mimi.encode(&pcm)?;
    let flat: Vec<i64> = codes.iter().flatten().map(|c| i64::from(*c)).collect();
    let found = Tensor::from_slice(&flat).view([1, frames, 8]).transpose(1, 2);
    assert_equal("codes", &found, &mimi.encode_signal(&wave)?.narrow(1, 0, 8));
    // Latents, since a frame between two centroids may take either when another kernel rounds otherwise.
    let (mut chunked, border) = (mimi.new_encoder_batch(1, 125), 125 * mimi.frame_size() as i64);
    let parts = [wave.narrow(2, 0, border), wave.narrow(2, border, wave.size()[2] - border)];
    let parts = parts.map(|pcm| mimi.encode_taps(&mut chunked, &pcm, &[true]).map(|taps| taps.latent));
    let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
    assert_equal("chunks", &mimi.quantize(&Tensor::cat(&parts, 2)).narrow(1, 0, 8), &found);
    let (latent, streamed) = stream_encode(&mimi, &wave)?;
    assert_close("latents over the border", &Tensor::cat(&parts, 2), &latent, LATENT);
    let decoded = mimi.decode(&codes)?;
    assert_close(
        "decoded",
        &Tensor::from_slice(&decoded),
        &stream_decode(&mimi, &found)?.flatten(0, -1),
        WAVE,
    );
    let (mut encoder, mut decoder, samples) = (mimi.new_encoder(), mimi.new_decoder(), mimi.frame_size());
    for (f, wanted) in codes.iter().enumerate().take(3) {
        let frame = mimi.encode_frame(&mut encoder, &pcm[f * samples..(f + 1) * samples])?;
        let streamed: Vec<i64> = Vec::try_from(streamed.select(2, f as i64).narrow(1, 0, 8).flatten(0, -1))?;
        assert_eq!(frame.map(i64::from).to_vec(), streamed);
        let frame = Tensor::from_slice(&mimi.decode_frame(&mut decoder, wanted)?);
        assert_close("frame", &frame, &Tensor::from_slice(&decoded[f * samples..(f + 1) * samples]), WAVE);
    }
    assert!(mimi.encode(&[])?.is_empty() && mimi.decode(&[])?.is_empty());
    assert!(matches!(mimi.encode_frame(&mut encoder, &pcm[..100]), Err(PersonaplexError::FrameSize { .. })));
    Ok(())
}
