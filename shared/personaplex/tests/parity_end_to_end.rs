//! Wave to wave: codec, prompt, model and codec chained as the published offline script does it (golden set e2e_tiny).

mod common;

use common::{Data, Outcome, arrays, assert_close, json, lm_tiny, mimi_tiny};
use personaplex::{BatchOptions, Frame, Given, LmBatch, Order, Prompt, Sampler};
use tch::{Kind, Tensor};

fn eight(value: &serde_json::Value) -> [i32; 8] {
    std::array::from_fn(|i| value[i].as_i64().expect("eight codes") as i32)
}

#[test]
fn a_call_with_voice_and_text_prompt_gives_the_published_ids_and_wave() -> Outcome {
    let (lm, mimi) = (lm_tiny(Kind::Float)?, mimi_tiny()?);
    let data = Data::open("personaplex/e2e_tiny/e2e.safetensors")?;
    let sizes = json("personaplex/e2e_tiny/config.json")?;
    let constants = json("personaplex/lm_tiny/config.json")?;
    let (silence, sine) = (eight(&constants["silence_tokens"]), eight(&constants["sine_tokens"]));
    let pad = lm.config().existing_text_padding_id;

    let voice_wave: Vec<f32> = Vec::try_from(data.f32("voice_wave"))?;
    let voice = mimi.encode(&voice_wave)?;
    assert_eq!(voice, arrays::<8>(&data.ints("voice_codes")));

    let frame = |text: i32, agent: [i32; 8]| -> Frame {
        std::array::from_fn(|k| {
            if k == 0 {
                text
            } else if k < 9 {
                agent[k - 1]
            } else {
                sine[k - 9]
            }
        })
    };
    let pause = vec![frame(pad, silence); sizes["silence_frames"].as_u64().ok_or("silence_frames")? as usize];
    let tokens = sizes["text_prompt_tokens"].as_array().ok_or("text_prompt_tokens")?;
    let text = tokens.iter().filter_map(|t| t.as_i64()).map(|t| frame(t as i32, silence)).collect();
    let prompt = [voice.iter().map(|v| frame(pad, *v)).collect(), pause.clone(), text, pause].concat();
    // The published package loses the values of its first call.
    let prefix = lm.prefill(&Prompt::of_frames(prompt[1..].to_vec()), Order::Early)?;
    let mut batch = LmBatch::new(&lm, 1, BatchOptions::default())?;
    lm.open(&mut batch, 0, &prefix, Sampler::greedy())?;

    let user_wave: Vec<f32> = Vec::try_from(data.f32("user_wave"))?;
    let user = arrays::<8>(&data.ints("user_codes"));
    let out = arrays::<17>(&data.ints("out_tokens"));
    let mut encoder = mimi.new_encoder();
    for (i, pcm) in user_wave.chunks_exact(mimi.frame_size()).enumerate() {
        let codes = mimi.encode_frame(&mut encoder, pcm)?;
        assert_eq!(codes, user[i], "user frame {i}");
        let given = Given { user: Some(codes), ..Given::default() };
        let emitted = lm.step(&mut batch, &[Some(given)])?[0].expect("early order");
        // Its answer to a call is one frame older than ours.
        if let Some(wanted) = out.get(i + 1) {
            assert_eq!(emitted.frame, *wanted, "frame {i}");
        }
    }

    let mut decoder = mimi.new_decoder();
    let mut wave = Vec::new();
    for frame in &out {
        wave.extend(mimi.decode_frame(&mut decoder, &std::array::from_fn(|k| frame[k + 1]))?);
    }
    assert_close("out_wave", &Tensor::from_slice(&wave), &data.f32("out_wave"), 2e-4);
    Ok(())
}
