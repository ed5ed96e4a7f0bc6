//! Properties of codec streams: whole equals any split, every slot of a batch equals its signal alone whatever the others
//! do, reset slots are new, slots that sit out do not change. Seeded draws; weights of the golden set with a window so
//! short that every test passes it several times.

mod common;

use common::{Outcome, assert_close, assert_equal, golden, mimi_config, mimi_tiny};
use personaplex::{DecState, EncState, Mimi, PersonaplexError};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind, Tensor};

const LATENT: f64 = 5e-5;
/// Of the largest sample.
const WAVE: f64 = 1e-5;

/// The golden codec with a window of three frames.
fn short_sighted() -> Result<Mimi, Box<dyn std::error::Error>> {
    nn::device::set_threads(1);
    let mut config = mimi_config()?;
    config.transformer.context = 3 * config.downsample();
    Ok(Mimi::from_file(&golden("personaplex/mimi_tiny/weights.safetensors"), &config, Device::Cpu)?)
}

/// Noise over two tones, `[1, 1, frames * frame]`.
fn signal(mimi: &Mimi, frames: i64, rng: &mut ChaCha8Rng) -> Tensor {
    let (low, high) = (rng.random_range(0.002..0.02), rng.random_range(0.02..0.3));
    let samples = frames as usize * mimi.frame_size();
    let tones = |i: usize| 0.3 * ((i as f32 * low).sin() + (i as f32 * high).sin());
    let pcm: Vec<f32> = (0..samples).map(|i| tones(i) + rng.random_range(-0.2f32..0.2)).collect();
    Tensor::from_slice(&pcm).view([1, 1, -1])
}

fn part(mimi: &Mimi, wave: &Tensor, from: i64, frames: i64) -> Tensor {
    let frame = mimi.frame_size() as i64;
    wave.narrow(2, from * frame, frames * frame)
}

fn assert_same_bits(what: &str, found: &[Tensor], wanted: &[Tensor]) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!(found.equal(wanted), "{what}: part {i} differs");
    }
}

fn assert_same_wave(what: &str, found: &Tensor, wanted: &Tensor) {
    let peak = wanted.abs().max().double_value(&[]).max(1.0);
    assert_close(&format!("wave, {what}"), found, wanted, WAVE * peak);
}

/// Frames whose codes do not change when the latent moves as far as other kernels may move it: `[B, 1, n]`. Batch and
/// chunk sizes choose other kernels, and a frame half way between two centroids then takes either.
fn settled(mimi: &Mimi, latent: &Tensor) -> Tensor {
    let codes = mimi.quantize(latent);
    let moved = |_| {
        let noise = latent.rand_like() * (2.0 * LATENT) - LATENT;
        mimi.quantize(&(latent + noise)).eq_tensor(&codes).all_dim(1, true)
    };
    (0..16).map(moved).reduce(|a, b| a.logical_and(&b)).expect("several draws")
}

fn assert_same_codes(mimi: &Mimi, what: &str, found: &Tensor, wanted: &Tensor, settled: &Tensor) {
    assert_close(&format!("latent, {what}"), found, wanted, LATENT);
    let [found, wanted] = [found, wanted].map(|latent| mimi.quantize(latent) * settled);
    assert_equal(&format!("codes, {what}"), &found, &wanted);
}

#[test]
fn any_split_into_calls_gives_the_whole_signal() -> Outcome {
    let mimi = short_sighted()?;
    for seed in 0..6 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (frames, most) = (rng.random_range(8..20), rng.random_range(1..=5));
        let wave = signal(&mimi, frames, &mut rng);
        let codes = mimi.encode_signal(&wave)?;
        let mut whole = mimi.new_encoder_batch(1, frames);
        let latent = mimi.encode_taps(&mut whole, &wave, &[true])?.latent;
        let decoded = mimi.decode_signal(&codes)?;
        let (mut encoder, mut decoder) = (mimi.new_encoder_batch(1, most), mimi.new_decoder_batch(1, most));
        let (mut latents, mut waves, mut from) = (vec![], vec![], 0);
        while from < frames {
            let n = rng.random_range(1..=most).min(frames - from);
            latents.push(mimi.encode_taps(&mut encoder, &part(&mimi, &wave, from, n), &[true])?.latent);
            waves.push(mimi.decode_step(&mut decoder, &codes.narrow(2, from, n), &[true])?);
            from += n;
        }
        let what = format!("seed {seed}");
        let settled = settled(&mimi, &latent);
        assert_same_codes(&mimi, &what, &Tensor::cat(&latents, 2), &latent, &settled);
        assert_same_wave(&what, &Tensor::cat(&waves, 2), &decoded);
        let share = settled.to_kind(Kind::Float).mean(Kind::Float).double_value(&[]);
        assert!(share > 0.8, "{what}: only {share} of the frames are compared");
        assert_eq!((encoder.frames(), decoder.frames()), (&[frames][..], &[frames][..]));
    }
    Ok(())
}

/// What one slot of a batch is doing: a signal, how far it is, and what the signal gives in a process of its own.
struct Voice {
    wave: Tensor,
    latent: Tensor,
    codes: Tensor,
    settled: Tensor,
    decoded: Tensor,
    at: i64,
}

impl Voice {
    const FRAMES: i64 = 20;

    fn new(mimi: &Mimi, rng: &mut ChaCha8Rng) -> Result<Self, PersonaplexError> {
        let wave = signal(mimi, Self::FRAMES, rng);
        let (mut encoder, mut decoder) = (mimi.new_encoder(), mimi.new_decoder());
        let (mut latents, mut waves) = (vec![], vec![]);
        for f in 0..Self::FRAMES {
            let latent = mimi.encode_taps(&mut encoder, &part(mimi, &wave, f, 1), &[true])?.latent;
            waves.push(mimi.decode_step(&mut decoder, &mimi.quantize(&latent), &[true])?);
            latents.push(latent);
        }
        let (latent, decoded) = (Tensor::cat(&latents, 2), Tensor::cat(&waves, 2));
        let (codes, settled) = (mimi.quantize(&latent), settled(mimi, &latent));
        Ok(Self { wave, latent, codes, settled, decoded, at: 0 })
    }
}

#[test]
fn every_slot_equals_its_signal_alone_over_joins_leaves_and_resets() -> Outcome {
    let mimi = short_sighted()?;
    for seed in 10..12 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let slots = rng.random_range(2..=5usize);
        let most = rng.random_range(1..=2);
        let mut encoder = mimi.new_encoder_batch(slots as i64, most);
        let mut decoder = mimi.new_decoder_batch(slots as i64, most);
        let mut voices = (0..slots).map(|_| Voice::new(&mimi, &mut rng)).collect::<Result<Vec<_>, _>>()?;
        for call in 0..30 {
            let n = rng.random_range(1..=most);
            for (slot, voice) in voices.iter_mut().enumerate() {
                assert_eq!((encoder.frames()[slot], decoder.frames()[slot]), (voice.at, voice.at));
                if voice.at + n > Voice::FRAMES || rng.random_bool(0.05) {
                    *voice = Voice::new(&mimi, &mut rng)?;
                    encoder.reset(slot as i64);
                    decoder.reset(slot as i64);
                }
            }
            let active: Vec<bool> = (0..slots).map(|_| rng.random_bool(0.7)).collect();
            // A slot that sits out is handed what would spoil it.
            let given = |(voice, active): (&Voice, &bool)| {
                let (pcm, codes) =
                    (part(&mimi, &voice.wave, voice.at, n), voice.codes.narrow(2, voice.at, n));
                if *active { (pcm, codes) } else { (pcm.full_like(f64::NAN), codes.full_like(-1)) }
            };
            let (pcm, codes): (Vec<_>, Vec<_>) = voices.iter().zip(&active).map(given).unzip();
            let latent = mimi.encode_taps(&mut encoder, &Tensor::cat(&pcm, 0), &active)?.latent;
            let wave = mimi.decode_step(&mut decoder, &Tensor::cat(&codes, 0), &active)?;
            for (slot, voice) in voices.iter_mut().enumerate().filter(|(slot, _)| active[*slot]) {
                let (what, one) = (format!("slot {slot}, call {call}, seed {seed}"), slot as i64);
                let now = |x: &Tensor| x.narrow(2, voice.at, n);
                let found = latent.narrow(0, one, 1);
                assert_same_codes(&mimi, &what, &found, &now(&voice.latent), &now(&voice.settled));
                assert_same_wave(&what, &wave.narrow(0, one, 1), &part(&mimi, &voice.decoded, voice.at, n));
                voice.at += n;
            }
        }
    }
    Ok(())
}

/// Runs both directions of some slots and gives codes and wave.
fn both(
    mimi: &Mimi,
    state: &mut (EncState, DecState),
    pcm: &Tensor,
    active: &[bool],
) -> Result<[Tensor; 2], PersonaplexError> {
    let codes = mimi.encode_step(&mut state.0, pcm, active)?;
    let wave = mimi.decode_step(&mut state.1, &codes, active)?;
    Ok([codes, wave])
}

#[test]
fn a_dirty_slot_after_reset_is_a_fresh_one_bit_for_bit() -> Outcome {
    let mimi = short_sighted()?;
    let mut rng = ChaCha8Rng::seed_from_u64(20);
    let new = || (mimi.new_encoder_batch(2, 1), mimi.new_decoder_batch(2, 1));
    let (mut dirty, mut fresh) = (new(), new());
    let [first, spoiled, second] = [20, 9, 11].map(|frames| signal(&mimi, frames, &mut rng));
    // Slot 0 does the same in both; slot 1 works in one of them and waits in the other.
    for f in 0..9 {
        let pcm = Tensor::cat(&[part(&mimi, &first, f, 1), part(&mimi, &spoiled, f, 1) * 1e4], 0);
        let _ = both(&mimi, &mut dirty, &pcm, &[true, true])?;
        let _ = both(&mimi, &mut fresh, &pcm, &[true, false])?;
    }
    assert!(!dirty.0.snapshot(1)[0].equal(&fresh.0.snapshot(1)[0]), "the slot is dirty");
    dirty.0.reset(1);
    dirty.1.reset(1);
    let untouched = new();
    assert_same_bits("encoder", &dirty.0.snapshot(1), &untouched.0.snapshot(1));
    assert_same_bits("decoder", &dirty.1.snapshot(1), &untouched.1.snapshot(1));
    for f in 0..11 {
        let pcm = Tensor::cat(&[part(&mimi, &first, 9 + f, 1), part(&mimi, &second, f, 1)], 0);
        let found = both(&mimi, &mut dirty, &pcm, &[true, true])?;
        let wanted = both(&mimi, &mut fresh, &pcm, &[true, true])?;
        assert_same_bits(&format!("frame {f}"), &found, &wanted);
    }
    for slot in 0..2 {
        assert_same_bits("encoder", &dirty.0.snapshot(slot), &fresh.0.snapshot(slot));
        assert_same_bits("decoder", &dirty.1.snapshot(slot), &fresh.1.snapshot(slot));
    }
    Ok(())
}

#[test]
fn a_single_stream_after_reset_is_a_fresh_process_bit_for_bit() -> Outcome {
    let mimi = short_sighted()?;
    let mut rng = ChaCha8Rng::seed_from_u64(21);
    let mut dirty = (mimi.new_encoder(), mimi.new_decoder());
    let spoiled = signal(&mimi, 10, &mut rng) * 1e4;
    for f in 0..10 {
        let _ = both(&mimi, &mut dirty, &part(&mimi, &spoiled, f, 1), &[true])?;
    }
    dirty.0.reset(0);
    dirty.1.reset(0);
    let mut fresh = (mimi.new_encoder(), mimi.new_decoder());
    let wave = signal(&mimi, 10, &mut rng);
    for f in 0..10 {
        let pcm = part(&mimi, &wave, f, 1);
        let found = both(&mimi, &mut dirty, &pcm, &[true])?;
        assert_same_bits(&format!("frame {f}"), &found, &both(&mimi, &mut fresh, &pcm, &[true])?);
    }
    Ok(())
}

#[test]
fn a_slot_that_sits_out_keeps_every_bit_and_is_silent() -> Outcome {
    let mimi = short_sighted()?;
    let mut rng = ChaCha8Rng::seed_from_u64(30);
    let mut state = (mimi.new_encoder_batch(2, 2), mimi.new_decoder_batch(2, 2));
    let waves = [signal(&mimi, 16, &mut rng), signal(&mimi, 16, &mut rng)];
    // Before its first frame, in the middle of its window, and after it has passed.
    for call in 0..8 {
        let pcm = Tensor::cat(&waves.each_ref().map(|w| part(&mimi, w, call * 2, 2)), 0);
        let before = (state.0.snapshot(1), state.1.snapshot(1));
        let [_, wave] = both(&mimi, &mut state, &pcm, &[true, false])?;
        assert_same_bits("encoder", &state.0.snapshot(1), &before.0);
        assert_same_bits("decoder", &state.1.snapshot(1), &before.1);
        assert_eq!(wave.select(0, 1).abs().max().double_value(&[]), 0.0);
        let _ = both(&mimi, &mut state, &pcm, &[false, true])?;
    }
    assert_eq!((state.0.frames(), state.1.frames()), (&[16, 16][..], &[16, 16][..]));
    Ok(())
}

#[test]
fn the_step_over_tensors_alone_gives_what_the_host_side_gives() -> Outcome {
    let mimi = short_sighted()?;
    let mut rng = ChaCha8Rng::seed_from_u64(40);
    let new = || (mimi.new_encoder_batch(3, 1), mimi.new_decoder_batch(3, 1));
    let (mut host, mut tensors) = (new(), new());
    let waves: Vec<Tensor> = (0..3).map(|_| signal(&mimi, 12, &mut rng)).collect();
    for f in 0..12 {
        let active: Vec<bool> = (0..3).map(|_| rng.random_bool(0.7)).collect();
        let pcm: Vec<Tensor> = waves.iter().map(|w| part(&mimi, w, f, 1)).collect();
        let pcm = Tensor::cat(&pcm, 0);
        let latent = mimi.encode_taps(&mut host.0, &pcm, &active)?.latent;
        let codes = mimi.quantize(&latent);
        let wave = mimi.decode_step(&mut host.1, &codes, &active)?;
        let mask = Tensor::from_slice(&active);
        let start = Tensor::from_slice(tensors.0.frames());
        let found = mimi.encode_tensors(&mut tensors.0, &pcm, &mask, &start);
        let decoded = mimi.decode_tensors(&mut tensors.1, &codes, &mask, &start);
        tensors.0.advance(&active, 1);
        tensors.1.advance(&active, 1);
        for slot in (0..3).filter(|slot| active[*slot as usize]) {
            let (what, one) = (format!("frame {f}"), |x: &Tensor| x.narrow(0, slot, 1));
            let settled = settled(&mimi, &one(&latent));
            assert_equal(&what, &(one(&found) * &settled), &(one(&codes) * &settled));
            assert_same_wave(&what, &one(&decoded), &one(&wave));
        }
    }
    assert_eq!(host.0.frames(), tensors.0.frames());
    // What the host side refuses counts as the nearest id here.
    let (on, start) = (Tensor::from_slice(&[true; 3]), Tensor::zeros([3], (Kind::Int64, Device::Cpu)));
    let ids = |id: i64| Tensor::full([3, mimi.codebooks(), 1], id, (Kind::Int64, Device::Cpu));
    let bins = mimi.config().quantizer.bins;
    for (beyond, nearest) in [(-2, 0), (bins, bins - 1)] {
        let found = mimi.decode_tensors(&mut mimi.new_decoder_batch(3, 1), &ids(beyond), &on, &start);
        let wanted = mimi.decode_tensors(&mut mimi.new_decoder_batch(3, 1), &ids(nearest), &on, &start);
        assert_equal("clamped", &found, &wanted);
    }
    Ok(())
}

#[test]
fn where_there_is_no_cuda_nothing_is_recorded_and_the_stream_goes_on() -> Outcome {
    let mimi = mimi_tiny()?;
    let mut state = (mimi.new_encoder(), mimi.new_decoder());
    assert!(matches!(mimi.record_encoder(&mut state.0), Err(PersonaplexError::Nn(_))));
    assert!(matches!(mimi.record_decoder(&mut state.1), Err(PersonaplexError::Nn(_))));
    let wave = signal(&mimi, 1, &mut ChaCha8Rng::seed_from_u64(60));
    let found = both(&mimi, &mut state, &wave, &[true])?;
    let mut fresh = (mimi.new_encoder(), mimi.new_decoder());
    assert_same_bits("frame", &found, &both(&mimi, &mut fresh, &wave, &[true])?);
    Ok(())
}

#[test]
fn samples_that_are_no_numbers_count_as_zero_and_leave_no_trace() -> Outcome {
    let mimi = mimi_tiny()?;
    let mut rng = ChaCha8Rng::seed_from_u64(50);
    let mut pcm: Vec<f32> = Vec::try_from(signal(&mimi, 4, &mut rng).flatten(0, -1))?;
    let (mut broken, n) = (pcm.clone(), mimi.frame_size());
    for (at, bad) in [(0, f32::NAN), (n / 2, f32::INFINITY), (n, f32::NEG_INFINITY), (2 * n - 1, f32::NAN)] {
        broken[at] = bad;
        pcm[at] = 0.0;
    }
    assert_eq!(mimi.encode(&broken)?, mimi.encode(&pcm)?);
    let (mut state, mut wanted) = (mimi.new_encoder(), mimi.new_encoder());
    for (broken, pcm) in broken.chunks(n).zip(pcm.chunks(n)) {
        assert_eq!(mimi.encode_frame(&mut state, broken)?, mimi.encode_frame(&mut wanted, pcm)?);
    }
    assert_same_bits("encoder", &state.snapshot(0), &wanted.snapshot(0));
    Ok(())
}

#[test]
fn inputs_that_do_not_fit_are_refused_and_change_nothing() -> Outcome {
    let mimi = mimi_tiny()?;
    let (frame, bins) = (mimi.frame_size() as i64, mimi.config().quantizer.bins);
    let (mut encoder, mut decoder) = (mimi.new_encoder_batch(2, 1), mimi.new_decoder_batch(2, 1));
    for size in [[1, 1, frame], [2, 2, frame], [2, 1, frame - 1], [2, 1, 2 * frame], [2, 1, 0]] {
        let pcm = Tensor::zeros(size, (Kind::Float, Device::Cpu));
        let found = mimi.encode_step(&mut encoder, &pcm, &[true, true]);
        assert!(matches!(found, Err(PersonaplexError::Shape { what: "pcm", .. })), "{size:?}");
    }
    let pcm = Tensor::zeros([2, 1, frame], (Kind::Float, Device::Cpu));
    let found = mimi.encode_step(&mut encoder, &pcm, &[true]);
    assert!(matches!(found, Err(PersonaplexError::Shape { what: "active", .. })));
    let fresh = mimi.new_decoder_batch(2, 1).snapshot(1);
    for bad in [-1, bins] {
        let codes = Tensor::zeros([2, mimi.codebooks(), 1], (Kind::Int64, Device::Cpu));
        let _ = codes.get(1).get(mimi.codebooks() - 1).fill_(bad);
        let found = mimi.decode_step(&mut decoder, &codes, &[true, true]);
        assert!(matches!(found, Err(PersonaplexError::IdRange { value, .. }) if value == bad), "{bad}");
        let mut ids = [0; 8];
        ids[7] = bad as i32;
        assert!(mimi.decode_frame(&mut mimi.new_decoder(), &ids).is_err() && mimi.decode(&[ids]).is_err());
        assert_same_bits("decoder", &decoder.snapshot(1), &fresh);
        // The same ids in a slot that sits out harm nobody.
        let _ = mimi.decode_step(&mut mimi.new_decoder_batch(2, 1), &codes, &[true, false])?;
    }
    assert_eq!((encoder.frames(), decoder.frames()), (&[0, 0][..], &[0, 0][..]));
    Ok(())
}

#[test]
fn configured_silence_and_sine_codes_are_compared_with_what_the_codec_gives() -> Outcome {
    let mimi = mimi_tiny()?;
    let rate = mimi.config().sample_rate as f64;
    let tone = |i: i64| (0.5 * (std::f64::consts::TAU * 440.0 * i as f64 / rate).sin()) as f32;
    let frames = mimi.config().sample_rate as usize / mimi.frame_size();
    let samples = frames * mimi.frame_size();
    let sine = mimi.encode(&(0..samples as i64).map(tone).collect::<Vec<_>>())?[frames - 1];
    let silence = mimi.encode(&vec![0.0; samples])?[frames - 1];
    let report = mimi.check_constants(&silence, &sine)?;
    assert!(report.matches(), "{report:?}");
    let mut other = sine;
    other[3] = (other[3] + 1) % mimi.config().quantizer.bins as i32;
    let report = mimi.check_constants(&silence, &other)?;
    let differing = report.differing();
    assert!(!report.matches() && matches!(differing[..], [("sine", check)] if check.configured == other));
    assert_eq!(differing[0].1.found, sine);
    assert_eq!(differing[0].1.differing(), [3]);
    report.warn();
    Ok(())
}
