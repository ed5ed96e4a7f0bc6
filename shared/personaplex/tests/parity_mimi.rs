//! The codec against the published package: whole, frame by frame, batched, and with a short window.

mod common;

use common::{Data, Outcome, assert_close, assert_equal, mimi_config, mimi_tiny};
use personaplex::Mimi;
use tch::{Device, Kind, Tensor};

const LATENT: f64 = 5e-5;
const WAVE: f64 = 2e-4;

/// Encodes and decodes `[B, 1, n * frame]` frame by frame: latents, codes, wave.
fn stream(mimi: &Mimi, wave: &Tensor) -> (Tensor, Tensor, Tensor) {
    let (batch, _, length) = wave.size3().expect("batch, one, samples");
    let frame = mimi.frame_size() as i64;
    let (mut enc, mut dec) = (mimi.new_encoder_batch(batch), mimi.new_decoder_batch(batch));
    let (mut latents, mut codes, mut waves) = (vec![], vec![], vec![]);
    for f in 0..length / frame {
        let latent = mimi.encode_latent(&mut enc, &wave.narrow(2, f * frame, frame));
        let code = mimi.quantize(&latent);
        waves.push(mimi.decode_latent(&mut dec, &mimi.dequantize(&code)));
        latents.push(latent);
        codes.push(code);
    }
    (Tensor::cat(&latents, 2), Tensor::cat(&codes, 2), Tensor::cat(&waves, 2))
}

#[test]
fn a_whole_signal_gives_the_published_latents_codes_and_wave() -> Outcome {
    let (mimi, data) = (mimi_tiny()?, Data::open("personaplex/mimi_tiny/codec_12f.safetensors")?);
    let latent = mimi.encode_latent(&mut mimi.new_encoder(), &data.f32("wave"));
    assert_close("latent", &latent, &data.f32("latent"), LATENT);
    let codes = mimi.quantize(&latent);
    assert_equal("codes", &codes, &data.i64("codes"));
    let quantized = mimi.dequantize(&codes);
    assert_close("quantized", &quantized, &data.f32("quantized"), LATENT);
    let decoded = mimi.decode_latent(&mut mimi.new_decoder(), &quantized);
    assert_close("decoded", &decoded, &data.f32("decoded"), WAVE);
    Ok(())
}

#[test]
fn frame_by_frame_gives_the_published_stream() -> Outcome {
    let (mimi, data) = (mimi_tiny()?, Data::open("personaplex/mimi_tiny/codec_12f.safetensors")?);
    let (latent, codes, wave) = stream(&mimi, &data.f32("wave"));
    assert_close("stream_latent", &latent, &data.f32("stream_latent"), LATENT);
    assert_equal("stream_codes", &codes, &data.i64("stream_codes"));
    assert_close("stream_decoded", &wave, &data.f32("stream_decoded"), WAVE);
    Ok(())
}

#[test]
fn two_signals_in_one_batch_do_not_mix() -> Outcome {
    let (mimi, data) = (mimi_tiny()?, Data::open("personaplex/mimi_tiny/codec_batch2_5f.safetensors")?);
    let wave = data.f32("wave");
    let (_, both, _) = stream(&mimi, &wave);
    for b in 0..2 {
        let (_, alone, _) = stream(&mimi, &wave.narrow(0, b, 1));
        assert_equal("codes", &both.narrow(0, b, 1), &alone);
    }
    Ok(())
}

#[test]
fn a_ragged_end_is_filled_with_zeros_and_earlier_frames_are_the_published_ones() -> Outcome {
    let (mimi, data) = (mimi_tiny()?, Data::open("personaplex/mimi_tiny/codec_ragged.safetensors")?);
    let pcm: Vec<f32> = Vec::try_from(data.f32("wave").flatten(0, -1))?;
    let codes = mimi.encode(&pcm)?;
    let wanted = data.i64("codes"); // [1, 8, frames]
    assert_eq!(codes.len() as i64, wanted.size()[2]);
    for (f, found) in codes.iter().enumerate().take(codes.len() - 1) {
        let wanted: Vec<i64> = Vec::try_from(wanted.select(2, f as i64).flatten(0, -1))?;
        assert_eq!(found.map(i64::from).to_vec(), wanted, "frame {f}");
    }
    Ok(())
}

#[test]
fn past_its_window_the_stream_equals_the_whole_signal() -> Outcome {
    let data = Data::open("personaplex/mimi_tiny/codec_ctx10.safetensors")?;
    let mut config = mimi_config()?;
    config.transformer.context = 10;
    let weights = common::golden("personaplex/mimi_tiny/weights.safetensors");
    let mimi = Mimi::from_file(&weights, &config, Device::Cpu)?;
    let wave = data.f32("wave");
    let whole = mimi.encode_latent(&mut mimi.new_encoder(), &wave);
    assert_close("full_latent", &whole, &data.f32("full_latent"), LATENT);
    let (latent, codes, decoded) = stream(&mimi, &wave);
    assert_close("stream against whole", &latent, &whole, LATENT);
    let at_once = mimi.decode_latent(&mut mimi.new_decoder(), &mimi.dequantize(&codes));
    assert_close("decoded stream against whole", &decoded, &at_once, WAVE);
    Ok(())
}

#[test]
fn the_plain_interface_equals_the_stream_over_chunk_borders() -> Outcome {
    let mimi = mimi_tiny()?;
    let frames = 130i64; // one chunk of 125 and a rest
    let time = Tensor::arange(frames * mimi.frame_size() as i64, (Kind::Float, Device::Cpu));
    let wave = ((&time * 0.05).sin() + (&time * 0.0031).sin() * 0.5) * 0.3;
    let pcm: Vec<f32> = Vec::try_from(&wave)?;
    let codes = mimi.encode(&pcm)?;
    let (_, streamed, decoded) = stream(&mimi, &wave.view([1, 1, -1]));
    let mut enc = mimi.new_encoder();
    for (f, found) in codes.iter().enumerate() {
        let wanted: Vec<i64> = Vec::try_from(streamed.select(2, f as i64).flatten(0, -1))?;
        assert_eq!(found.map(i64::from).to_vec(), wanted, "frame {f}");
        let samples = mimi.frame_size();
        assert_eq!(mimi.encode_frame(&mut enc, &pcm[f * samples..(f + 1) * samples])?, *found, "frame {f}");
    }
    let whole = Tensor::from_slice(&mimi.decode(&codes)?);
    assert_close("decoded", &whole, &decoded.flatten(0, -1), WAVE);
    assert!(mimi.encode_frame(&mut enc, &pcm[..100]).is_err());
    assert!(mimi.decode_frame(&mut mimi.new_decoder(), &[config_bins(&mimi); 8]).is_err());
    Ok(())
}

fn config_bins(mimi: &Mimi) -> i32 {
    mimi.config().quantizer.bins as i32
}
