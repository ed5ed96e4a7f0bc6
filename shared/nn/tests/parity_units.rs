//! Building blocks against numbers of the published package (golden set personaplex/units).

use std::path::{Path, PathBuf};

use nn::{
    CausalConv, CausalConvTr, LayerNorm, Mask, Padding, RingCache, RingPlan, RingShape, RmsNorm, Rope,
    attention, tensor_from_file,
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
        let first = Tensor::full([b, 1], offset, (Kind::Int64, Device::Cpu));
        let table = rope.at(&(first + Tensor::arange(t, (Kind::Int64, Device::Cpu))));
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
fn the_gated_feed_forward_rounds_where_the_reference_does() -> Outcome {
    let data = Data::open("feed_forward")?;
    for (kind, suffix, tolerance) in [("f32", "", TOLERANCE), ("bf16", "_bf16", 0.0)] {
        let get = |name: &str| data.get(&format!("{name}{suffix}"));
        let inner = nn::silu_gate(&nn::Linear::new(get("linear_in")).forward(&get("x")));
        let out = nn::Linear::new(get("linear_out")).forward(&inner);
        assert_close(kind, &out, &get("out"), tolerance);
    }
    assert_close("gelu", &data.get("gelu_in").gelu("none"), &data.get("gelu_out"), TOLERANCE);
    Ok(())
}

#[test]
fn an_id_of_minus_one_is_a_zero_vector() -> Outcome {
    let data = Data::open("embedding")?;
    let found = nn::lookup(&data.get("weight"), &data.get("ids").to_kind(Kind::Int64));
    // The reference turns -2 ("not generated yet") into row 0; here it never reaches a table, and does the same.
    assert_close("embedding", &found, &data.get("out"), 0.0);
    Ok(())
}

#[test]
fn a_ring_attends_to_its_window_row_by_row_and_in_chunks() -> Outcome {
    let data = Data::open("ring_cache")?;
    let (q, k, v) = (data.get("q"), data.get("k"), data.get("v"));
    let (_, heads, total, width) = q.size4()?;
    let window = data.get("positions_fixed").size()[1];
    let chunks = data.ints("chunk_lengths");
    let shape = RingShape { window, chunk: chunks.iter().copied().max().unwrap_or(1) };
    let mut cache = RingCache::new(1, heads, shape, width, Kind::Float, Device::Cpu);
    let one = RingShape { window, chunk: 1 };
    let mut single = RingCache::new(1, heads, one, width, Kind::Float, Device::Cpu);
    let (keys_after, wanted) = (data.get("keys_after"), data.get("attn_fixed"));
    // What the ring must give: attention over exactly the window, from the whole sequence at once.
    let exact = attention(&q, &k, &v, Mask::Given(&nn::band_mask(total, window, Device::Cpu)));
    let mut start = 0;
    for (write, t) in chunks.into_iter().enumerate() {
        let plan = RingPlan::for_slots(shape, &[start], &[true], t, Device::Cpu);
        let (keys, values) = cache.extend(&plan, &k.narrow(2, start, t), &v.narrow(2, start, t));
        let found = attention(&q.narrow(2, start, t), &keys, &values, plan.mask());
        assert_close(&format!("rows from {start}"), &found, &exact.narrow(2, start, t), TOLERANCE);
        // The reference drops a key for all but the last row of a chunk in a full ring; ours does not.
        let last = start + t - 1;
        assert_close("last row", &found.narrow(2, t - 1, 1), &wanted.narrow(2, last, 1), TOLERANCE);
        // A ring of exactly the window, row by row, lies in memory as the reference's.
        for p in start..start + t {
            let plan = RingPlan::for_slots(one, &[p], &[true], 1, Device::Cpu);
            let _ = single.extend(&plan, &k.narrow(2, p, 1), &v.narrow(2, p, 1));
        }
        assert_close("ring slots", &single.keys().squeeze_dim(0), &keys_after.get(write as i64), 0.0);
        start += t;
    }
    Ok(())
}

/// Runs `step` on parts of `x` as long as `chunks`; a part waits until it is a multiple of `unit`, as the reference's
/// buffers do.
fn in_chunks(x: &Tensor, chunks: &[i64], unit: i64, mut step: impl FnMut(&Tensor) -> Tensor) -> Tensor {
    let (mut start, mut waiting, mut parts) = (0, 0, Vec::new());
    for chunk in chunks {
        waiting += chunk;
        let now = waiting / unit * unit;
        if now > 0 {
            parts.push(step(&x.narrow(2, start, now)));
            (start, waiting) = (start + now, waiting - now);
        }
    }
    Tensor::cat(&parts, 2)
}

#[test]
fn convolutions_whole_and_in_chunks_equal_the_reference() -> Outcome {
    let data = Data::open("conv")?;
    let names: Vec<String> =
        data.0.tensors().filter_map(|(n, _)| n.strip_suffix(".weight")).map(str::to_owned).collect();
    assert!(names.iter().any(|n| n.contains("convtr")) && names.iter().any(|n| n.contains("replicate")));
    for name in names {
        let get = |part: &str| data.get(&format!("{name}.{part}"));
        let (weight, x, y, chunks) =
            (get("weight"), get("x"), get("y"), data.ints(&format!("{name}.chunks")));
        let bias = data.maybe(&format!("{name}.bias"));
        let ((batch, _, t), t_out) = (x.size3()?, y.size()[2]);
        // Strides and groups follow from the shapes, the dilation only from the name.
        let (whole, stream) = if t_out > t {
            let groups = y.size()[1] / weight.size()[1];
            let conv = CausalConvTr::new(weight, bias, t_out / t, groups);
            let mut state = conv.state(batch);
            let stream = in_chunks(&x, &chunks, 1, |x| conv.step(&mut state, x, None));
            (conv.step(&mut conv.state(batch), &x, None), stream)
        } else {
            let dilation = name.split('_').find_map(|part| part.strip_prefix('d')?.parse().ok()).unwrap_or(1);
            let padding = if name.contains("replicate") { Padding::Replicate } else { Padding::Zeros };
            let stride = t / t_out;
            let conv = CausalConv::new(weight, bias, stride, dilation, padding);
            let mut state = conv.state(batch);
            let stream = in_chunks(&x, &chunks, stride, |x| conv.step(&mut state, x, None));
            (conv.step(&mut conv.state(batch), &x, None), stream)
        };
        assert_close(&name, &whole, &y, TOLERANCE);
        assert_close(&format!("{name} in chunks"), &stream, &get("y_stream"), TOLERANCE);
    }
    Ok(())
}
