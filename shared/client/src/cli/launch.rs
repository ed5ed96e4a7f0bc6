//! `ppx train launch`: the processes of one machine that train a run together, with the environment that torchrun gives.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;

use client::{ClientError, Result};

use super::Context;

/// Name of the variable with the secret that the ranks of one training share.
const TOKEN: &str = "PPX_RANKS_TOKEN";

#[derive(Debug, Args)]
pub(crate) struct LaunchArgs {
    /// Processes on this machine, one for each GPU. Default: as many as --devices, else 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    nproc_per_node: Option<u32>,
    /// Machines.
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    nnodes: u32,
    /// Number of this machine, from 0.
    #[arg(long, value_name = "R", default_value_t = 0)]
    node_rank: u32,
    /// Host name or address of machine 0.
    #[arg(long, value_name = "H", default_value = "127.0.0.1")]
    master_addr: String,
    /// Port that rank 0 listens at.
    #[arg(long, value_name = "P", default_value_t = 29_500)]
    master_port: u16,
    /// Device of each process of this machine, e.g. cuda:0,cuda:1; without it the program takes GPU LOCAL_RANK.
    #[arg(long, value_name = "DEVICES", value_delimiter = ',')]
    devices: Vec<String>,
    /// Seconds that processes get to save and end after SIGTERM, SIGINT or the end of another.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    grace: u64,
    /// Secret that the ranks share, of at least 16 characters; needed with several machines.
    #[arg(long, env = TOKEN, hide_env_values = true, hide = true)]
    token: Option<String>,
    /// Program and arguments. Default: `trainer rank`, with the trainer beside ppx.
    #[arg(last = true, value_name = "PROGRAM ARGS")]
    command: Vec<OsString>,
}

/// One process to start.
struct Rank {
    number: u32,
    program: OsString,
    args: Vec<OsString>,
    variables: Vec<(&'static str, String)>,
}

/// Takes the lines that processes write: whether it is an error output, and the line.
type Sink = Arc<dyn Fn(bool, &str) + Send + Sync>;

impl LaunchArgs {
    /// The processes of this machine.
    fn ranks(&self) -> Result<Vec<Rank>> {
        let wrong = |text: String| Err(ClientError::Usage(text));
        let devices = u32::try_from(self.devices.len()).unwrap_or(u32::MAX);
        let local = self.nproc_per_node.unwrap_or(devices.max(1));
        if devices != 0 && devices != local {
            return wrong(format!("--devices names {devices} for {local} processes"));
        }
        if self.node_rank >= self.nnodes {
            return wrong(format!("--node-rank {} is not below --nnodes {}", self.node_rank, self.nnodes));
        }
        if self.master_port == 0 {
            return wrong("--master-port 0: every process must know the port".into());
        }
        let token = match &self.token {
            Some(token) if token.len() < 16 => {
                return wrong(format!("{TOKEN} has {} characters: at least 16 are needed", token.len()));
            }
            Some(token) => token.clone(),
            None if self.nnodes > 1 => return wrong(format!("several machines need one secret in {TOKEN}")),
            None => format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple()),
        };
        let (program, args) = match self.command.split_first() {
            Some((program, args)) => (program.clone(), args.to_vec()),
            None => (beside("trainer")?, vec!["rank".into()]),
        };
        let world = self.nnodes * local;
        let rank = |index: u32| {
            let number = self.node_rank * local + index;
            let mut variables = vec![
                ("RANK", number.to_string()),
                ("WORLD_SIZE", world.to_string()),
                ("LOCAL_RANK", index.to_string()),
                ("LOCAL_WORLD_SIZE", local.to_string()),
                ("GROUP_RANK", self.node_rank.to_string()),
                ("MASTER_ADDR", self.master_addr.clone()),
                ("MASTER_PORT", self.master_port.to_string()),
                (TOKEN, token.clone()),
            ];
            if let Some(device) = self.devices.get(index as usize) {
                variables.push(("PPX__TRAINER__DEVICE", device.clone()));
            }
            Rank { number, program: program.clone(), args: args.clone(), variables }
        };
        Ok((0..local).map(rank).collect())
    }
}

/// A program in the folder of this one.
pub(super) fn beside(name: &str) -> Result<OsString> {
    let own = std::env::current_exe().map_err(|source| ClientError::File { path: "ppx".into(), source })?;
    let program = own.with_file_name(name);
    match program.is_file() {
        true => Ok(program.into()),
        false => {
            Err(ClientError::Usage(format!("{} is not there: give a program after --", program.display())))
        }
    }
}

/// Starts the processes, waits for their end and ends with the first status that is not 0.
pub(crate) async fn launch(args: LaunchArgs, context: &Context) -> Result<()> {
    let out = context.out;
    let sink: Sink = Arc::new(move |error, line| if error { out.note(line) } else { out.line(line) });
    match supervise(args.ranks()?, Duration::from_secs(args.grace), &sink).await? {
        0 => Ok(()),
        status => std::process::exit(status),
    }
}

/// Runs the processes to their end. Gives 0, or the status of the first that ended otherwise (128 + n for signal n).
async fn supervise(ranks: Vec<Rank>, grace: Duration, sink: &Sink) -> Result<i32> {
    let broken = |source| ClientError::File { path: "signal handlers".into(), source };
    let mut terminate = signal(SignalKind::terminate()).map_err(broken)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(broken)?;
    let mut group = Group::default();
    for rank in ranks {
        group.start(rank, sink)?;
    }
    let (mut status, mut limit) = (0, None);
    while !group.running.is_empty() {
        let deadline = limit.unwrap_or_else(Instant::now);
        tokio::select! {
            Some(Ok((rank, ended))) = group.ends.join_next() => {
                group.running.remove(&rank);
                let code = exit_code(ended);
                if code != 0 {
                    sink(true, &format!("[rank {rank}] ended with {}", ended.map_or("an unknown status".into(), |s| s.to_string())));
                }
                if code != 0 && status == 0 {
                    status = code;
                    group.signal(Signal::TERM);
                    limit = limit.or(Some(Instant::now() + grace));
                }
            }
            _ = terminate.recv() => {
                group.signal(Signal::TERM);
                limit = limit.or(Some(Instant::now() + grace));
            }
            _ = interrupt.recv() => {
                group.signal(Signal::INT);
                limit = limit.or(Some(Instant::now() + grace));
            }
            () = tokio::time::sleep_until(deadline), if limit.is_some() => {
                sink(true, &format!("still running after {} s: killed", grace.as_secs_f64()));
                group.signal(Signal::KILL);
                limit = Some(Instant::now() + grace.max(Duration::from_secs(1)));
            }
        }
    }
    while group.outputs.join_next().await.is_some() {}
    Ok(status)
}

/// Processes under way, each the first of a process group of its own. Dropping it kills them.
#[derive(Default)]
struct Group {
    running: BTreeMap<u32, Pid>,
    ends: JoinSet<(u32, Option<ExitStatus>)>,
    outputs: JoinSet<()>,
}

impl Group {
    fn start(&mut self, rank: Rank, sink: &Sink) -> Result<()> {
        let Rank { number, program, args, variables } = rank;
        let failed = |source| ClientError::File { path: program.to_string_lossy().into_owned(), source };
        let mut child: Child = Command::new(&program)
            .args(args)
            // Others use the GPUs of a host too; what this gives is small for one sum a step.
            .env("NCCL_NVLS_ENABLE", "0")
            .envs(variables)
            // Stays open as long as this process lives, so that a rank sees when it is gone.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        if let Some(stdout) = child.stdout.take() {
            self.outputs.spawn(forward(number, false, stdout, Arc::clone(sink)));
        }
        if let Some(stderr) = child.stderr.take() {
            self.outputs.spawn(forward(number, true, stderr, Arc::clone(sink)));
        }
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(id) = id {
            self.running.insert(number, id);
        }
        self.ends.spawn(async move {
            let open = child.stdin.take();
            let ended = child.wait().await.ok();
            drop(open);
            (number, ended)
        });
        Ok(())
    }

    /// To every process that has not ended, with those that it started.
    fn signal(&self, signal: Signal) {
        for id in self.running.values() {
            // One that has just ended gets nothing, and needs nothing.
            let _ = kill_process_group(*id, signal);
        }
    }
}

async fn forward(rank: u32, error: bool, output: impl AsyncRead + Unpin, sink: Sink) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).await.is_ok_and(|bytes| bytes > 0) {
        sink(
            error,
            &format!("[rank {rank}] {}", String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n'])),
        );
        line.clear();
    }
}

fn exit_code(status: Option<ExitStatus>) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.map_or(1, |status| status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: LaunchArgs,
    }

    fn parse(line: &[&str]) -> anyhow::Result<LaunchArgs> {
        Ok(Line::try_parse_from(std::iter::once(&"launch").chain(line))?.args)
    }

    /// Status and sorted lines of a shell script on every rank.
    async fn run(options: &[&str], script: &str, grace: Duration) -> anyhow::Result<(i32, Vec<String>)> {
        let args = parse(&[options, &["--", "sh", "-c", script]].concat())?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink: Sink = {
            let lines = Arc::clone(&lines);
            Arc::new(move |error, line| {
                let mut lines = lines.lock().expect("no test panics in here");
                lines.push(format!("{}{line}", if error { "! " } else { "" }));
            })
        };
        let status = supervise(args.ranks()?, grace, &sink).await?;
        let mut lines = lines.lock().expect("no test panics in here").clone();
        lines.sort();
        Ok((status, lines))
    }

    #[tokio::test]
    async fn ranks_get_torchruns_variables_and_their_lines_a_prefix() -> anyhow::Result<()> {
        let options = [
            "--nproc-per-node",
            "2",
            "--nnodes",
            "2",
            "--node-rank",
            "1",
            "--master-addr",
            "node-0",
            "--master-port",
            "4711",
            "--token",
            "0123456789abcdef",
            "--devices",
            "cuda:3,cuda:5",
        ];
        let script = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $PPX__TRAINER__DEVICE; \
                      echo $PPX_RANKS_TOKEN >&2";
        let (status, lines) = run(&options, script, Duration::from_secs(5)).await?;
        assert_eq!(status, 0);
        assert_eq!(
            lines,
            [
                "! [rank 2] 0123456789abcdef",
                "! [rank 3] 0123456789abcdef",
                "[rank 2] 2/4 0/2 node-0:4711 cuda:3",
                "[rank 3] 3/4 1/2 node-0:4711 cuda:5"
            ]
        );
        Ok(())
    }

    #[tokio::test]
    async fn one_that_ends_badly_ends_all_and_gives_its_status() -> anyhow::Result<()> {
        let begin = Instant::now();
        let folder = tempfile::tempdir()?;
        // Rank 1 ends when the others are ready for it.
        let script = "if [ $RANK = 1 ]; then until [ -e FOLDER/0 -a -e FOLDER/2 ]; do sleep 0.05; done; exit 7; fi; \
                      trap 'echo saved; exit 75' TERM; touch FOLDER/$RANK; sleep 60 & wait";
        let script = &script.replace("FOLDER", &folder.path().to_string_lossy());
        let (status, lines) = run(&["--nproc-per-node", "3"], script, Duration::from_secs(20)).await?;
        assert_eq!(status, 7);
        assert_eq!(
            lines,
            [
                "! [rank 0] ended with exit status: 75",
                "! [rank 1] ended with exit status: 7",
                "! [rank 2] ended with exit status: 75",
                "[rank 0] saved",
                "[rank 2] saved"
            ]
        );
        assert!(begin.elapsed() < Duration::from_secs(10));
        Ok(())
    }

    #[tokio::test]
    async fn one_that_does_not_end_is_killed_after_the_grace() -> anyhow::Result<()> {
        let script = "if [ $RANK = 1 ]; then kill -9 $$; fi; trap '' TERM; while true; do sleep 1; done";
        let (status, lines) = run(&["--nproc-per-node", "2"], script, Duration::from_millis(500)).await?;
        assert_eq!(status, 128 + 9);
        assert!(lines.iter().any(|line| line.contains("still running after 0.5 s: killed")), "{lines:?}");
        Ok(())
    }

    #[test]
    fn wrong_options_are_refused_with_their_values() -> anyhow::Result<()> {
        for (line, says) in [
            (&["--devices", "cuda:0", "--nproc-per-node", "2"][..], "--devices names 1 for 2"),
            (&["--nnodes", "2", "--node-rank", "2"], "--node-rank 2 is not below --nnodes 2"),
            (&["--nnodes", "2"], "several machines need one secret in PPX_RANKS_TOKEN"),
            (&["--token", "canary"], "has 6 characters"),
            (&["--master-port", "0"], "--master-port 0"),
        ] {
            let error = parse(line)?.ranks().err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(says) && !error.contains("canary"), "{error}");
        }
        assert_eq!(parse(&["--devices", "cuda:0,cuda:1", "--", "true"])?.ranks()?.len(), 2);
        Ok(())
    }
}
