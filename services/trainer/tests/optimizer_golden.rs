//! AdamW under OneCycle with clipping, step by step as the reference computes it (`finetune/d_optim`).
#![expect(clippy::unwrap_used, reason = "tests")]

use domain::run::OptimSpec;
use personaplex::Param;
use tch::{Kind, Tensor};
use trainer::optim::AdamW;
use trainer::schedule::LrPlan;

struct Golden {
    tensors: Vec<(String, Tensor)>,
    traces: serde_json::Value,
    spec: OptimSpec,
    max_norm: f64,
}

impl Golden {
    fn load() -> Self {
        let json = testkit::golden_json("finetune/d_optim/trace.json").unwrap();
        let path = testkit::golden_path("finetune/d_optim/trace.safetensors").unwrap();
        let o = &json["optimiser"];
        let number = |v: &serde_json::Value| v.as_f64().unwrap();
        let spec = OptimSpec {
            lr: number(&o["lr"]),
            weight_decay: number(&o["weight_decay"]),
            betas: (number(&o["betas"][0]), number(&o["betas"][1])),
            eps: number(&o["eps"]),
            pct_start: number(&o["schedule"]["pct_start"]),
            ..OptimSpec::default()
        };
        let max_norm = number(&o["max_norm"]);
        Self {
            tensors: Tensor::read_safetensors(path).unwrap(),
            traces: json["traces"].clone(),
            spec,
            max_norm,
        }
    }

    fn get(&self, name: &str) -> Tensor {
        self.tensors.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("{name}")).1.shallow_clone()
    }
}

/// Mean square error plus penalties, of micro-batch `m`.
fn loss(golden: &Golden, params: &[Tensor], m: i64) -> Tensor {
    let [a, b, e] = params else { panic!("three parameters") };
    let f32 = |t: &Tensor| t.to_kind(Kind::Float);
    let (x, target) = (golden.get("X").select(0, m).to_kind(a.kind()), golden.get("Y").select(0, m));
    let y = f32(&(x.matmul(&a.tr()).matmul(&b.tr()) * 2.0));
    let squares = |t: &Tensor| f32(t).square().sum(Kind::Float);
    (y - target).square().mean(Kind::Float) + squares(e) * 0.05 + squares(b) * 0.01
}

fn follow(run: &str, kind: Kind, microbatches: i64, tolerance: f64) {
    let golden = Golden::load();
    let leaf = |name: &str| golden.get(name).to_kind(kind).copy().set_requires_grad(true);
    let params = ["A0", "B0", "E0"].map(leaf);
    let named = ["A", "x.lora_B.weight", "E"].map(String::from).into_iter().zip(&params);
    let mut optim = AdamW::new(
        named.map(|(name, tensor)| Param { name, tensor: tensor.shallow_clone() }).collect(),
        &golden.spec,
        0.0,
    );
    let trace = golden.traces[run].as_array().unwrap();
    let plan = LrPlan::new(&golden.spec, trace.len() as u32, 0);
    let mut compared = 0;
    for (n, row) in trace.iter().enumerate() {
        optim.zero_grad();
        let mut total = 0.0;
        for m in 0..microbatches {
            let loss = loss(&golden, &params, m);
            total += loss.double_value(&[]) / microbatches as f64;
            loss.backward();
        }
        if microbatches > 1 {
            tch::no_grad(|| {
                for p in &params {
                    let _ = p.grad().g_div_scalar_(microbatches);
                }
            });
        }
        let gradients = optim.gradients();
        let norm = gradients.norm();
        let (lr, beta1) = plan.at(n as u32);
        let close = |what: &str, found: f64, wanted: f64, tolerance: f64| {
            assert!((found - wanted).abs() <= tolerance, "{run} step {n} {what}: {found}, not {wanted}");
        };
        close("lr", lr, row["lr"].as_f64().unwrap(), 1e-9);
        close("beta1", beta1, row["beta1"].as_f64().unwrap(), 1e-9);
        let scale = if kind == Kind::Float { 1e-5 } else { 2e-2 };
        let wanted = row["loss"].as_f64().unwrap();
        close("loss", total, wanted, scale * wanted.abs().max(1.0));
        let wanted = row["grad_norm_before_clip"].as_f64().unwrap();
        close("norm", norm, wanted, scale * wanted.abs().max(1.0));
        optim.step(&gradients, lr, beta1, (golden.max_norm / (norm + 1e-6)).min(1.0));
        let mut state = optim.state();
        let of = |kind: &str, name: &str| {
            let key = format!("{kind}.{}", if name == "B" { "x.lora_B.weight" } else { name });
            state.iter().find(|(n, _)| *n == key).unwrap().1.shallow_clone()
        };
        let checks = [
            ("master", "A", "A"),
            ("master", "B", "B"),
            ("master", "E", "E"),
            ("m", "A", "mA"),
            ("v", "B", "vB"),
        ];
        for (kind, name, wanted) in checks {
            let wanted = golden.get(&format!("{run}.{wanted}")).select(0, n as i64);
            let gap = (of(kind, name) - wanted).abs().max().double_value(&[]);
            assert!(gap <= tolerance, "{run} step {n} {kind}.{name}: {gap}");
            compared += 1;
        }
        if kind != Kind::Float {
            // A weight that lies between two bf16 numbers rounds either way, and the runs part: each step begins where the
            // reference began it.
            for (name, tensor) in &mut state {
                let master = match name.as_str() {
                    "master.A" => "A",
                    "master.x.lora_B.weight" => "B",
                    "master.E" => "E",
                    _ => continue,
                };
                *tensor = golden.get(&format!("{run}.{master}")).select(0, n as i64);
            }
            optim.restore(state, optim.updates(), std::path::Path::new("the reference")).unwrap();
        }
    }
    assert_eq!(compared, 100);
}

#[test]
fn f32_parameters_follow_the_reference_over_twenty_steps_golden() {
    follow("f32_1", Kind::Float, 1, 2e-6);
    follow("f32_2", Kind::Float, 2, 2e-6);
}

#[test]
fn bf16_parameters_with_f32_masters_follow_the_reference_over_twenty_steps_golden() {
    follow("bf16_1", Kind::BFloat16, 1, 2e-3);
    follow("bf16_2", Kind::BFloat16, 2, 2e-3);
}
