//! Building blocks against numbers of the published package (golden set personaplex/units).

use std::path::{Path, PathBuf};

use nn::{
    CausalConv, CausalConvTr, ConvState, ConvTrState, LayerNorm, Mask, Padding, RingCache, RingPlan, RmsNorm,
    Rope, attention, tensor_from_file,
};
use tch::{Device, Kind, Tensor};
use weights::SafetensorsFile;

type Outcome = Result<(), Box<dyn std::error::Error>>;
const TOLERANCE: f64 = 1e-6;

struct Data(SafetensorsFile);

impl Data {
    #[expect(clippy::disallowed_methods, reason = "tests find their data through it")]
    fn open(name: &str) -> Result<Self, Box<dyn std::error::Error>> {
        nn::device::set_threads(1);
        let root = std::env::var("PPX_GOLDEN_DIR")
            .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden").into());
        let path: PathBuf = Path::new(&root).join("personaplex/units").join(format!("{name}.safetensors"));
        Ok(Self(SafetensorsFile::open(&path)?))
    }

    fn get(&self, name: &str) -> Tensor {
        tensor_from_file(&self.0, name).expect("named in the golden set's README")
    }

    fn maybe(&self, name: &str) -> Option<Tensor> {
        tensor_from_file(&self.0, name).ok()
    }

    fn ints(&self, name: &str) -> Vec<i64> {
        Vec::try_from(self.get(name).to_kind(Kind::Int64).flatten(0, -1)).expect("flat integers")
    }
}

fn assert_close(tap: &str, found: &Tensor, wanted: &Tensor, tolerance: f64) {
    assert_eq!(found.size(), wanted.size(), "{tap}: shapes");
    let difference =
        (found.to_kind(Kind::Double) - wanted.to_kind(Kind::Double)).abs().max().double_value(&[]);
    assert!(difference <= tolerance, "{tap}: largest difference {difference:e} is above {tolerance:e}");
}

#[test]
fn rotary_positions_are_interleaved_and_never_wrap() -> Outcome {
    let data = Data::open("rope")?;
    let q = data.get("q");
    let (b, _, t, d) = q.size4()?;
    let rope = Rope::new(d, 10_000.0, Device::Cpu);
    for offset in [0, 7, 2990, 250_000] {
        let table = rope.table(&vec![offset; b as usize], t);
        for x in ["q", "k"] {
            let wanted = data.get(&format!("{x}_off{offset}"));
            assert_close(x, &table.rotate(&data.get(x)), &wanted, TOLERANCE);
            let bf16 = table.rotate(&data.get(x).to_kind(Kind::BFloat16));
            assert_close("bf16", &bf16, &data.get(&format!("{x}_bf16_off{offset}")), 0.02);
        }
    }
    Ok(())
}

#[test]
fn norms_follow_the_reference_down_to_tiny_inputs() -> Outcome {
    let data = Data::open("norms")?;
    let rms = RmsNorm::new(&data.get("alpha"), 1e-8);
    assert_close("rms", &rms.forward(&data.get("x")), &data.get("rms"), TOLERANCE);
    let rms = RmsNorm::new(&data.get("alpha_bf16"), 1e-8);
    assert_close("rms_bf16", &rms.forward(&data.get("x_bf16")), &data.get("rms_bf16"), 0.0);
    let layer = LayerNorm::new(data.get("ln_weight"), data.get("ln_bias"), 1e-5);
    assert_close("layer_norm", &layer.forward(&data.get("x")), &data.get("layer_norm"), TOLERANCE);
    Ok(())
}

#[test]
fn a_ring_attends_to_its_window_row_by_row_and_in_chunks() -> Outcome {
    let data = Data::open("ring_cache")?;
    let (q, k, v) = (data.get("q"), data.get("k"), data.get("v"));
    let (_, heads, total, width) = q.size4()?;
    let window = data.get("positions_fixed").size()[1];
    let mut cache = RingCache::new(1, heads, window, width, Kind::Float, Device::Cpu);
    let (keys_after, wanted) = (data.get("keys_after"), data.get("attn_fixed"));
    // What the ring must give: attention over exactly the window, from the whole sequence at once.
    let exact = attention(&q, &k, &v, Mask::Given(&nn::band_mask(total, window, Device::Cpu)));
    let mut start = 0;
    for (write, t) in data.ints("chunk_lengths").into_iter().enumerate() {
        let plan = RingPlan::new(&[start], t, window, Device::Cpu);
        let (keys, values) = cache.extend(&plan, &k.narrow(2, start, t), &v.narrow(2, start, t));
        let found = attention(&q.narrow(2, start, t), &keys, &values, plan.mask());
        assert_close(&format!("rows from {start}"), &found, &exact.narrow(2, start, t), TOLERANCE);
        assert_close("ring slots", &cache.keys().squeeze_dim(0), &keys_after.get(write as i64), 0.0);
        // The reference drops a key for all but the last row of a chunk in a full ring; ours does not.
        let last = start + t - 1;
        assert_close("last row", &found.narrow(2, t - 1, 1), &wanted.narrow(2, last, 1), TOLERANCE);
        start += t;
    }
    Ok(())
}

#[test]
fn slots_of_one_batch_may_stand_at_different_positions() {
    tch::manual_seed(1);
    let draw = || Tensor::randn([2, 3, 9, 4], (Kind::Float, Device::Cpu));
    let (q, k, v) = (draw(), draw(), draw());
    let row = |x: &Tensor, p: [i64; 2]| {
        Tensor::cat(&[x.narrow(0, 0, 1).narrow(2, p[0], 1), x.narrow(0, 1, 1).narrow(2, p[1], 1)], 0)
    };
    let window = 5;
    let mut cache = RingCache::new(2, 3, window, 4, Kind::Float, Device::Cpu);
    // The second slot starts two rows later: in the first two steps it writes row 0 again and again.
    for step in 0..9i64 {
        let start = [step, (step - 2).max(0)];
        let plan = RingPlan::new(&start, 1, window, Device::Cpu);
        let (keys, values) = cache.extend(&plan, &row(&k, start), &row(&v, start));
        let found = attention(&row(&q, start), &keys, &values, plan.mask());
        for (b, p) in start.into_iter().enumerate() {
            let (b, first) = (b as i64, (p + 1 - window).max(0));
            let seen = |x: &Tensor| x.narrow(0, b, 1).narrow(2, first, p + 1 - first);
            let alone = attention(&q.narrow(0, b, 1).narrow(2, p, 1), &seen(&k), &seen(&v), Mask::All);
            assert_close(&format!("slot {b} row {p}"), &found.narrow(0, b, 1), &alone, TOLERANCE);
        }
    }
}

fn run_conv(data: &Data, name: &str, stride: i64, dilation: i64, padding: Padding) {
    let get = |part: &str| data.get(&format!("{name}.{part}"));
    let conv = CausalConv::new(get("weight"), data.maybe(&format!("{name}.bias")), stride, dilation, padding);
    let x = get("x");
    assert_close(name, &conv.step(&mut ConvState::new(), &x), &get("y"), TOLERANCE);
    // The reference buffers chunks that do not fill a stride; ours takes whole strides.
    let chunks = data.ints(&format!("{name}.chunks"));
    if chunks.iter().any(|c| c % stride != 0) {
        return;
    }
    let (mut state, mut start, mut parts) = (ConvState::new(), 0, Vec::new());
    for chunk in chunks {
        parts.push(conv.step(&mut state, &x.narrow(2, start, chunk)));
        start += chunk;
    }
    assert_close(name, &Tensor::cat(&parts, 2), &get("y_stream"), TOLERANCE);
}

#[test]
fn convolutions_whole_and_in_chunks_equal_the_reference() -> Outcome {
    let data = Data::open("conv")?;
    run_conv(&data, "conv_k1", 1, 1, Padding::Zeros);
    run_conv(&data, "conv_k3_d2", 1, 2, Padding::Zeros);
    run_conv(&data, "conv_k7", 1, 1, Padding::Zeros);
    run_conv(&data, "conv_k8_s4", 4, 1, Padding::Zeros);
    run_conv(&data, "down_replicate_k4_s2", 2, 1, Padding::Replicate);
    for (name, stride, groups) in [("convtr_k8_s4", 4, 1), ("up_depthwise_k4_s2", 2, 3)] {
        let get = |part: &str| data.get(&format!("{name}.{part}"));
        let conv = CausalConvTr::new(get("weight"), data.maybe(&format!("{name}.bias")), stride, groups);
        let x = get("x");
        assert_close(name, &conv.step(&mut ConvTrState::new(), &x), &get("y"), TOLERANCE);
        let (mut state, mut start, mut parts) = (ConvTrState::new(), 0, Vec::new());
        for chunk in data.ints(&format!("{name}.chunks")) {
            parts.push(conv.step(&mut state, &x.narrow(2, start, chunk)));
            start += chunk;
        }
        assert_close(name, &Tensor::cat(&parts, 2), &get("y_stream"), TOLERANCE);
    }
    Ok(())
}
