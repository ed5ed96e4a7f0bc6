//! Trainings that are killed, paused and resumed end with the numbers of one that never was.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use sqlx::PgPool;
use testkit::{Stack, wait_for, wait_until};

use crate::api::{Api, builder, text};
use crate::datasets::{ppx, write_source};

const DEADLINE: Duration = Duration::from_secs(180);
const STEPS: i32 = 24;

struct World {
    stack: Stack,
    api: Api,
    pool: PgPool,
    dataset: String,
    _dir: tempfile::TempDir,
}

impl World {
    async fn start() -> Self {
        Self::with(&[]).await
    }

    /// With variables of the trainer.
    async fn with(variables: &[(&str, &str)]) -> Self {
        let one_thread =
            builder(&["gateway", "dataset", "trainer"]).env("trainer", "PPX__TRAINER__THREADS", "1");
        let set = variables.iter().fold(one_thread, |b, (name, value)| b.env("trainer", name, *value));
        let stack = set.start().await.unwrap();
        let api = Api::new(&stack);
        api.register_tiny(&stack).await;
        let dir = tempfile::tempdir().unwrap();
        write_source(&dir.path().join("calls"));
        let ran = ppx(&stack, dir.path(), &["dataset", "import", "calls", "--wait"]).await;
        assert_eq!(ran.code, 0, "{}", ran.told);
        let pool = PgPool::connect(stack.database_url()).await.unwrap();
        Self { api, pool, dataset: text(&ran.json, "id"), stack, _dir: dir }
    }

    /// Noise, regularisers and both kinds of evaluation are on: all of them must come out the same.
    async fn order(&self, name: &str) -> String {
        let spec = json!({ "max_steps": STEPS, "batch_size": 1, "num_microbatches": 2, "duration_sec": 20.0,
            "ckpt_freq": 1, "eval_freq": 6, "neftune_alpha": 5.0, "kl_base_weight": 0.1, "lora_b_decay": 0.001,
            "optim": { "lr": 0.002 }, "lora": { "rank": 4 }, "probe": { "prompts": 1, "seconds": 1.0 } });
        let body = json!({ "name": name, "dataset_id": self.dataset, "base_model": "tiny", "spec": spec,
            "acknowledge": true });
        text(&self.api.post("/v1/runs", body).await, "id")
    }

    async fn numbers(&self, run: &str) -> BTreeMap<(String, i64), u64> {
        let points = self.api.get(&format!("/v1/runs/{run}/metrics")).await;
        let all = points["data"].as_array().unwrap().iter();
        all.filter(|p| {
            let name = p["name"].as_str().unwrap();
            // Times, and what an attempt had to do, differ.
            !name.ends_with("_per_s") && !name.starts_with("data/")
        })
        .map(|p| ((text(p, "name"), p["step"].as_i64().unwrap()), p["value"].as_f64().unwrap().to_bits()))
        .collect()
    }

    async fn step(&self, run: &str) -> i32 {
        sqlx::query_scalar("SELECT coalesce(max(step), 0) FROM checkpoints WHERE run_id = $1::text::uuid")
            .bind(run.trim_start_matches("run_"))
            .fetch_one(&self.pool)
            .await
            .unwrap()
    }

    async fn reached(&self, run: &str, step: i32) {
        wait_until(&format!("step {step}"), DEADLINE, async || self.step(run).await >= step).await.unwrap();
    }

    /// Kills the trainer while the files of a checkpoint after `step` are being stored: its folder is there, its row is not.
    async fn kill_in_a_save(&mut self, run: &str, step: i32) {
        let folder = self.stack.artifacts_root().join(format!("runs/{run}/checkpoints"));
        self.reached(run, step).await;
        let newest = || {
            let attempts = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            let saves = attempts.flat_map(|a| std::fs::read_dir(a.path()).into_iter().flatten().flatten());
            let name = |e: std::fs::DirEntry| e.file_name().to_string_lossy().into_owned();
            // <job>-<attempt>-<step>, in one folder or in two.
            saves
                .map(name)
                .chain(std::fs::read_dir(&folder).into_iter().flatten().flatten().map(name))
                .filter_map(|n| n.rsplit('-').next()?.parse::<i32>().ok())
                .max()
                .unwrap_or(0)
        };
        let began = Instant::now();
        let known = newest();
        while newest() <= known {
            assert!(began.elapsed() < DEADLINE, "no save after step {known}");
            std::thread::sleep(Duration::from_micros(200));
        }
        self.stack.kill("trainer").unwrap();
    }

    async fn done(&self, run: &str) -> Value {
        self.api.succeeded(&format!("/v1/runs/{run}"), DEADLINE).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_training_killed_three_times_and_paused_once_ends_bit_equal_to_one_that_never_was() {
    let mut world = World::start().await;
    let whole = world.order("whole").await;
    let summary = world.done(&whole).await["summary"].clone();
    assert_eq!(summary["steps"], STEPS, "{summary}");
    let expected = world.numbers(&whole).await;
    for name in ["train/loss", "train/grad_norm", "train/kl_base_loss"] {
        let count = expected.keys().filter(|(n, _)| n == name).count();
        assert_eq!(count, STEPS as usize, "{name}");
    }

    let seed: u64 = rand::rng().random();
    println!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let run = world.order("killed").await;
    for step in [rng.random_range(1..5), rng.random_range(6..10)] {
        world.reached(&run, step).await;
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..80))).await;
        world.stack.kill("trainer").unwrap();
        world.stack.restart("trainer").await.unwrap();
    }
    world.kill_in_a_save(&run, 11).await;
    world.stack.restart("trainer").await.unwrap();

    world.reached(&run, 15).await;
    let path = format!("/v1/runs/{run}");
    let paused = ppx(&world.stack, world._dir.path(), &["runs", "pause", &run]).await;
    assert_eq!(paused.code, 0, "{}", paused.told);
    wait_for("the pause", DEADLINE, async || (world.api.get(&path).await["state"] == "paused").then_some(()))
        .await
        .unwrap();
    let rests = world.step(&run).await;
    assert!((15..STEPS).contains(&rests), "{rests}");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(world.step(&run).await, rests, "a paused run rests");
    ppx(&world.stack, world._dir.path(), &["runs", "resume", &run]).await;
    world.done(&run).await;

    let found = world.numbers(&run).await;
    let differing: Vec<_> = expected.iter().filter(|(k, v)| found.get(*k) != Some(v)).collect();
    assert!(differing.is_empty() && found.len() == expected.len(), "{differing:?}");
    let kept = world.api.get(&format!("{path}/checkpoints")).await;
    let steps: Vec<i64> =
        kept["data"].as_array().unwrap().iter().map(|c| c["step"].as_i64().unwrap()).collect();
    let best = summary["best_step"].as_i64().unwrap();
    assert!(
        steps.ends_with(&[22, 23, 24]) && steps.iter().all(|s| *s >= 22 || *s == best),
        "{steps:?}, best {best}"
    );
}

#[tokio::test]
async fn a_run_goes_on_from_a_kept_checkpoint_and_its_adapter_comes_out_in_both_layouts() {
    let world = World::start().await;
    let first = world.order("first").await;
    world.done(&first).await;
    let kept = world.api.get(&format!("/v1/runs/{first}/checkpoints")).await;
    let last = kept["data"].as_array().unwrap().last().unwrap().clone();
    let spec = json!({ "max_steps": STEPS + 2, "batch_size": 1, "num_microbatches": 2, "duration_sec": 20.0,
        "resume_from": last["id"], "optim": { "lr": 0.002 }, "lora": { "rank": 4 }, "probe": { "enable": false } });
    let body = |spec: &Value| {
        json!({ "name": "longer", "dataset_id": world.dataset, "base_model": "tiny", "spec": spec,
            "acknowledge": true })
    };
    let checked = world.api.post_checked("/v1/runs?dry_run=true", body(&spec)).await;
    let refused = checked["findings"].as_array().unwrap().iter().any(|f| f["code"] == "resume_mismatch");
    assert!(refused, "more steps without schedule_restart: {checked}");
    let mut longer = spec.clone();
    longer["schedule_restart"] = json!(true);
    let second = text(&world.api.post("/v1/runs", body(&longer)).await, "id");
    world.done(&second).await;
    let steps: Vec<i64> =
        world.numbers(&second).await.keys().filter(|(n, _)| n == "train/loss").map(|(_, s)| *s).collect();
    assert_eq!(steps, [i64::from(STEPS) + 1, i64::from(STEPS) + 2]);

    let dir = tempfile::tempdir().unwrap();
    let listed = ppx(&world.stack, dir.path(), &["runs", "checkpoints", &second]).await.json;
    assert_eq!(listed[0]["step"], STEPS + 2, "{listed}");
    for (layout, files) in [
        ("kyutai", ["config.json", "lora.safetensors"]),
        ("peft", ["adapter_config.json", "adapter_model.safetensors"]),
    ] {
        let ran =
            ppx(&world.stack, dir.path(), &["runs", "adapter", &second, layout, "--layout", layout]).await;
        assert_eq!(ran.code, 0, "{}", ran.told);
        let mut names: Vec<String> = std::fs::read_dir(dir.path().join(layout))
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names, files);
    }
}

/// Processes that the trainer has started.
fn children(of: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{of}/task")).unwrap().flatten();
    let children = tasks.filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
    children.flat_map(|c| c.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Whether a process is gone, or waits for somebody to notice that it is.
fn ended(id: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/stat")).map_or(true, |stat| stat.contains(") Z "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_two_processes_survives_the_death_of_each_of_them_and_leaves_none_behind() {
    let mut world = World::with(&[("PPX__TRAINER__DEVICE", "cpu,cpu")]).await;
    let whole = world.order("whole").await;
    world.done(&whole).await;
    let expected = world.numbers(&whole).await;

    let run = world.order("killed").await;
    world.reached(&run, 3).await;
    let others = children(world.stack.pid("trainer").unwrap());
    assert_eq!(others.len(), 1, "rank 1: {others:?}");
    std::process::Command::new("kill").args(["-9", &others[0]]).status().unwrap();
    world.reached(&run, 8).await;
    let others = children(world.stack.pid("trainer").unwrap());
    world.stack.kill("trainer").unwrap();
    wait_until("the end of the orphan", DEADLINE, async || ended(&others[0])).await.unwrap();
    world.stack.restart("trainer").await.unwrap();
    world.done(&run).await;
    let found = world.numbers(&run).await;
    let differing: Vec<_> = expected.iter().filter(|(k, v)| found.get(*k) != Some(v)).collect();
    assert!(differing.is_empty() && found.len() == expected.len(), "{differing:?}");
    let events = world.api.get(&format!("/v1/jobs?subject={run}")).await;
    assert_eq!(events["data"][0]["state"], "succeeded", "{events}");
    assert!(children(world.stack.pid("trainer").unwrap()).is_empty());
}

#[tokio::test]
async fn a_run_takes_in_a_rank_that_was_launched_elsewhere_and_refuses_one_without_the_secret() {
    let (listen, token) = (format!("127.0.0.1:{}", testkit::free_port().unwrap()), "a secret of the test");
    let variables = [
        ("PPX__TRAINER__RANKS__NODES", "2"),
        ("PPX__TRAINER__RANKS__LISTEN", &listen),
        ("PPX_RANKS_TOKEN", token),
    ];
    let world = World::with(&variables).await;
    let run = world.order("spread").await;
    let port = listen.rsplit(':').next().unwrap();
    let launch = |token: &str| {
        let arguments = ["train", "launch", "--nnodes", "2", "--node-rank", "1", "--master-port", port];
        tokio::process::Command::new(testkit::binary("ppx").unwrap())
            .args(arguments)
            .args(["--devices", "cpu"])
            .env("PPX_RANKS_TOKEN", token)
            .env("PPX__TRAINER__THREADS", "1")
            .kill_on_drop(true)
            .output()
    };
    let stranger = launch("not the secret, alas").await.unwrap();
    let told = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert!(!stranger.status.success() && told.contains("[rank 1]") && told.contains("token"), "{told}");
    let joined = launch(token).await.unwrap();
    assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
    let summary = world.done(&run).await["summary"].clone();
    assert_eq!(summary["steps"], STEPS, "{summary}");
    assert!(!world.stack.log("trainer").unwrap().contains(token), "the secret is not in the log");
}
