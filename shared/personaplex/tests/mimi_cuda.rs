//! The codec's recorded calls on a GPU. Without one there is nothing to record on: `mimi_slots` says what happens then.

mod common;

use common::{Outcome, assert_close, golden, mimi_config};
use personaplex::Mimi;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Cuda, Device, Kind, Tensor};

const GPU: Device = Device::Cuda(0);
const SLOTS: usize = 4;

#[test]
fn a_recorded_call_gives_what_the_call_gives_over_joins_leaves_and_resets() -> Outcome {
    if !Cuda::is_available() {
        return Ok(());
    }
    let mut config = mimi_config()?;
    config.transformer.context = 3 * config.downsample();
    let mimi = Mimi::from_file(&golden("personaplex/mimi_tiny/weights.safetensors"), &config, GPU)?;
    let new = || (mimi.new_encoder_batch(SLOTS as i64, 1), mimi.new_decoder_batch(SLOTS as i64, 1));
    let (mut eager, mut recorded) = (new(), new());
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    tch::manual_seed(1);
    for frame in 0..30 {
        let active: [bool; SLOTS] = std::array::from_fn(|_| rng.random_bool(0.7));
        if rng.random_bool(0.2) {
            let slot = rng.random_range(0..SLOTS as i64);
            for state in [&mut eager, &mut recorded] {
                state.0.reset(slot);
                state.1.reset(slot);
            }
        }
        // In the middle of the streams: recording must not change what slots remember.
        if frame == 5 {
            mimi.record_encoder(&mut recorded.0)?;
            mimi.record_decoder(&mut recorded.1)?;
        }
        let pcm =
            Tensor::randn([SLOTS as i64, 1, mimi.frame_size() as i64], (Kind::Float, Device::Cpu)) * 0.3;
        let codes = mimi.encode_step(&mut eager.0, &pcm.to_device(GPU), &active)?;
        let found = mimi.encode_step(&mut recorded.0, &pcm.to_device(GPU), &active)?;
        let wave = mimi.decode_step(&mut eager.1, &codes, &active)?;
        let heard = mimi.decode_step(&mut recorded.1, &codes, &active)?;
        for slot in (0..SLOTS).filter(|slot| active[*slot]) {
            let one = |x: &Tensor| x.to_device(Device::Cpu).narrow(0, slot as i64, 1);
            let same = one(&found).eq_tensor(&one(&codes)).to_kind(Kind::Float).mean(Kind::Float);
            // Eager calls look at fewer keys with other kernels; a frame between two centroids may take either.
            assert!(same.double_value(&[]) > 0.4, "frame {frame} slot {slot}: codes");
            assert_close(&format!("frame {frame} slot {slot}"), &one(&heard), &one(&wave), 2e-2);
        }
    }
    assert_eq!((eager.0.frames(), eager.1.frames()), (recorded.0.frames(), recorded.1.frames()));
    for slot in 0..SLOTS as i64 {
        for (found, wanted) in recorded.1.snapshot(slot).iter().zip(eager.1.snapshot(slot)) {
            let [found, wanted] = [found, &wanted].map(|x| x.to_device(Device::Cpu).to_kind(Kind::Float));
            assert_close("decoder state", &found, &wanted, 2e-2);
        }
    }
    Ok(())
}
