//! The kernels of our own against the same functions on the CPU. Without a CUDA device only the CPU side runs, against
//! the plain building blocks.

use nn::fused::{add_norm, attend_step, draw, gated};
use nn::{
    NnError, RingCache, RingPlan, RingShape, RmsNorm, Rope, attention, merge_heads, silu_gate, split_rotated,
};
use tch::{Cuda, Device, Kind, Tensor};

/// Where the functions are tried, with the largest error relative to values of about 1.
fn places() -> Vec<(Device, Kind, f64)> {
    let mut places = vec![(Device::Cpu, Kind::Float, 1e-5)];
    if Cuda::is_available() {
        places.extend([(Device::Cuda(0), Kind::Float, 2e-5), (Device::Cuda(0), Kind::BFloat16, 3e-2)]);
    }
    places
}

fn random(size: &[i64]) -> Tensor {
    Tensor::randn(size, (Kind::Float, Device::Cpu))
}

#[track_caller]
fn close(found: &Tensor, wanted: &Tensor, most: f64, what: &str) {
    let found = found.to_device(Device::Cpu).to_kind(Kind::Float);
    let error = (&found - wanted).abs().max().double_value(&[]);
    assert!(error <= most && found.isfinite().all().int64_value(&[]) == 1, "{what}: {error:e} > {most:e}");
}

#[test]
fn sums_norms_and_gates_are_those_of_the_plain_operators() {
    for (device, kind, most) in places() {
        for (rows, width) in [(1, 4_096), (5, 1_024), (3, 40)] {
            let (x, y, alpha) = (random(&[rows, 1, width]), random(&[rows, 1, width]), random(&[width]));
            let sum = &x + &y;
            let wanted = RmsNorm::new(&alpha, 1e-8).forward(&sum);
            let norm = RmsNorm::new(&alpha.to_device(device).to_kind(kind), 1e-8);
            for wide in [Kind::Float, kind] {
                let mut running = x.to_device(device).to_kind(wide);
                let y = y.to_device(device).to_kind(kind);
                let normed = add_norm(&mut running, Some(&y), &norm, kind);
                assert_eq!(normed.kind(), kind);
                close(&running, &sum, most * 2.0, "sum");
                close(&normed, &wanted, most * 8.0, "norm");
            }
            let gate = random(&[rows, 1, 2 * width]);
            close(&gated(&gate.to_device(device).to_kind(kind)), &silu_gate(&gate), most * 4.0, "gate");
        }
    }
}

#[test]
fn every_slot_attends_to_its_own_rows_at_its_own_position() -> Result<(), NnError> {
    let (heads, width, window) = (4, 128, 300);
    let shape = RingShape { window, chunk: 1 };
    let slots = 3usize;
    for (device, kind, most) in places() {
        let rope = Rope::new(width, 10_000.0, device);
        let plain = Rope::new(width, 10_000.0, Device::Cpu);
        let mut ring = RingCache::new(slots as i64, heads, shape, width, kind, device);
        let mut wanted = RingCache::new(slots as i64, heads, shape, width, Kind::Float, Device::Cpu);
        // Slots start far apart, one of them about to go round the ring; some calls leave one out.
        let mut seen = [0i64, 140, 295];
        for (slot, rows) in seen.iter().enumerate().filter(|(_, rows)| **rows > 0) {
            let (k, v) = (random(&[heads, *rows, width]), random(&[heads, *rows, width]));
            wanted.fill(slot as i64, &k, &v)?;
            ring.fill(slot as i64, &k.to_device(device).to_kind(kind), &v.to_device(device).to_kind(kind))?;
        }
        for call in 0..12i64 {
            let active = [true, call % 3 != 1, call != 4];
            let qkv = random(&[slots as i64, 1, 3 * heads * width]);
            let counts: Vec<i64> = (0..slots).flat_map(|b| [seen[b], i64::from(active[b])]).collect();
            let counts = Tensor::from_slice(&counts).view([slots as i64, 2]).to_device(device);
            let (start, part) = (counts.select(1, 0), counts.select(1, 1));
            let len = window;
            let plan = match ring.attends() {
                true => RingPlan::of_counts(&start, &part, len),
                false => RingPlan::new(shape, &start, &part.ne(0), 1, len),
            };
            let table = rope.at(&start.unsqueeze(1));
            let found = ring.attend(&plan, &qkv.to_device(device).to_kind(kind), &rope, &table);

            let on_cpu = counts.to_device(Device::Cpu);
            let plan = RingPlan::new(shape, &on_cpu.select(1, 0), &on_cpu.select(1, 1).ne(0), 1, len);
            let table = plain.at(&on_cpu.select(1, 0).unsqueeze(1));
            let (q, k, v) = split_rotated(&qkv, heads, &table);
            let (k, v) = wanted.extend(&plan, &k, &v);
            let all = merge_heads(&attention(&q, &k, &v, plan.mask()));
            for b in (0..slots).filter(|b| active[*b]) {
                let what = format!("{device:?} {kind:?} call {call} slot {b}");
                close(&found.get(b as i64), &all.get(b as i64), most, &what);
                seen[b] += 1;
            }
        }
    }
    Ok(())
}

#[test]
fn a_slots_attention_depends_on_nothing_but_its_own_rows() -> Result<(), NnError> {
    if !Cuda::is_available() {
        return Ok(());
    }
    let (heads, width, rows) = (2, 128, 200);
    let shape = RingShape { window: 400, chunk: 1 };
    let place = (Kind::BFloat16, Device::Cuda(0));
    let fill = |n: i64| Tensor::randn([heads, n, width], place);
    let (k, v, qkv) = (fill(rows), fill(rows), Tensor::randn([1, 1, 3 * heads * width], place));
    let rope = Rope::new(width, 10_000.0, Device::Cuda(0));
    let mut alone = None;
    for (slots, len) in [(1i64, 256), (4, 256), (4, 400)] {
        let mut ring = RingCache::new(slots, heads, shape, width, place.0, place.1);
        for slot in 0..slots {
            let n = if slot + 1 == slots { rows } else { 57 * (slot + 1) };
            let (k, v) =
                if slot + 1 == slots { (k.shallow_clone(), v.shallow_clone()) } else { (fill(n), fill(n)) };
            ring.fill(slot, &k, &v)?;
        }
        let counts: Vec<i64> =
            (0..slots).flat_map(|s| [if s + 1 == slots { rows } else { 57 * (s + 1) }, 1]).collect();
        let counts = Tensor::from_slice(&counts).view([slots, 2]).to_device(place.1);
        let plan = RingPlan::of_counts(&counts.select(1, 0), &counts.select(1, 1), len);
        let table = rope.at(&counts.select(1, 0).unsqueeze(1));
        let found = ring.attend(&plan, &qkv.repeat([slots, 1, 1]), &rope, &table).get(slots - 1);
        match &alone {
            None => alone = Some(found),
            Some(alone) => assert!(alone.equal(&found), "{slots} slots, {len} rows looked at"),
        }
    }
    Ok(())
}

#[test]
fn a_step_sees_the_steps_before_it_and_itself() {
    let (slots, heads, steps, width) = (3, 16, 8, 64);
    for (device, kind, most) in places() {
        let empty = |kind, device| Tensor::zeros([slots, heads, steps, width], (kind, device));
        let (k, v) = (empty(kind, device), empty(kind, device));
        let (plain_k, plain_v) = (empty(Kind::Float, Device::Cpu), empty(Kind::Float, Device::Cpu));
        for step in 0..steps {
            let qkv = random(&[slots, 1, 3 * heads * width]);
            let found = attend_step(&qkv.to_device(device).to_kind(kind), &k, &v, step);
            let wanted = attend_step(&qkv, &plain_k, &plain_v, step);
            close(&found, &wanted, most, &format!("step {step}"));
        }
        close(&k, &plain_k, most, "keys");
    }
}

#[test]
fn the_same_ids_are_drawn_for_the_same_noise() {
    for (device, kind, _) in places() {
        for (rows, vocabulary, k) in
            [(1, 2_048, 512), (7, 2_048, 250), (4, 32_000, 512), (3, 48, 48), (2, 32_000, 1)]
        {
            let logits = random(&[rows, vocabulary]).to_kind(kind);
            // Ties are drawn as the device likes: there are none.
            let logits = (logits.to_kind(Kind::Float) * 40.0
                + Tensor::arange(vocabulary, (Kind::Float, Device::Cpu)) * 1e-4)
                .to_kind(Kind::Float);
            let noise = Tensor::empty([rows, k], (Kind::Float, Device::Cpu)).exponential(1.0);
            let heat: Vec<f32> = (0..rows).map(|r| [0.7, 0.0, 25.0][r as usize % 3]).collect();
            let heat = Tensor::from_slice(&heat).view([rows, 1]);
            let wanted = draw(&logits, &heat, &noise);
            let at = |t: &Tensor| t.to_device(device);
            let found = draw(&at(&logits), &at(&heat), &at(&noise));
            assert_eq!(found.to_device(Device::Cpu), wanted, "{device:?} {rows} x {vocabulary}, {k}");
        }
    }
}

#[test]
fn equal_logits_are_taken_in_the_order_of_their_ids() {
    for (device, _, _) in places().into_iter().filter(|(device, ..)| device.is_cuda()) {
        let logits = Tensor::zeros([1, 2_048], (Kind::Float, device));
        // The third of the most likely ids wins: the others have no chance.
        let noise = Tensor::from_slice(&[f32::INFINITY, f32::INFINITY, 0.5, f32::INFINITY]).view([1, 4]);
        let heat = Tensor::ones([1, 1], (Kind::Float, device));
        assert_eq!(draw(&logits, &heat, &noise.to_device(device)).int64_value(&[0]), 2);
    }
}
