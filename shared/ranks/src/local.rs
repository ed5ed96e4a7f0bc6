//! Processes of this machine that are the other ranks of a training whose rank 0 is the process that starts them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{Membership, RanksError, Token};

/// Lines of its standard error output that are kept of each process.
const KEPT: usize = 20;
/// Most bytes that are kept of a line.
const LINE: usize = 2000;
/// How long the last lines of a process that has ended may take to arrive.
const DRAIN: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);

/// What to start.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Number of processes of this machine, with rank 0.
    pub local: usize,
    /// Number of processes of all machines.
    pub world: usize,
    /// Where rank 0 listens, as the processes reach it.
    pub master: String,
    /// Port of rank 0 ([`crate::Rendezvous::address`]).
    pub port: u16,
    /// The secret of the group; it goes into the environment of the processes and nowhere else.
    pub token: Token,
    /// More variables of their environment; `NCCL_NVLS_ENABLE` is 0 unless it is among them.
    pub variables: Vec<(String, String)>,
}

/// Processes under way. Dropping it kills and reaps all of them.
pub struct Children {
    members: Vec<Member>,
}

struct Member {
    rank: usize,
    /// Its standard input stays open in it as long as this process lives ([`end_with_parent`]).
    child: Child,
    last: Arc<Lines>,
    status: Option<ExitStatus>,
}

#[derive(Default)]
struct Lines {
    kept: Mutex<VecDeque<String>>,
    ended: Mutex<bool>,
}

/// Starts the ranks 1 to `local - 1`. Their standard output is that of this process; what they write to their standard
/// error output is logged.
///
/// # Errors
/// When one does not start; those that did are ended.
pub fn spawn(plan: &Plan) -> Result<Children, RanksError> {
    let mut children = Children { members: Vec::new() };
    for rank in 1..plan.local {
        let failed =
            |detail: String| RanksError::Start { rank, program: plan.program.display().to_string(), detail };
        let member = Membership {
            rank,
            world: plan.world,
            local_rank: rank,
            master: plan.master.clone(),
            port: plan.port,
        };
        let mut command = Command::new(&plan.program);
        command
            .args(&plan.args)
            .env("NCCL_NVLS_ENABLE", "0")
            .envs(plan.variables.iter().map(|(name, value)| (name, value)))
            .envs(member.variables())
            .env("LOCAL_WORLD_SIZE", plan.local.to_string())
            .env(Token::VARIABLE, plan.token.reveal())
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let last = Arc::new(Lines::default());
        let stderr = child.stderr.take();
        tracing::info!(rank, pid = child.id(), program = %plan.program.display(), "started a rank");
        children.members.push(Member { rank, child, last: Arc::clone(&last), status: None });
        if let Some(stderr) = stderr {
            let name = format!("rank-{rank}-stderr");
            let thread = std::thread::Builder::new().name(name).spawn(move || last.follow(rank, stderr));
            thread.map_err(|error| failed(format!("cannot follow its output: {error}")))?;
        }
    }
    Ok(children)
}

impl Children {
    /// Looks whether all processes are under way or ended well.
    ///
    /// # Errors
    /// The first that was found to have ended otherwise, with its last lines.
    pub fn check(&mut self) -> Result<(), RanksError> {
        for member in &mut self.members {
            if member.status.is_none() {
                member.status = member.child.try_wait().map_err(|error| RanksError::Ended {
                    rank: member.rank,
                    status: format!("an unknown status ({error})"),
                    last: String::new(),
                })?;
            }
            if let Some(status) = member.status.filter(|status| !status.success()) {
                return Err(RanksError::Ended {
                    rank: member.rank,
                    status: status.to_string(),
                    last: member.last.text(),
                });
            }
        }
        Ok(())
    }

    /// The error of a group, or how a process ended that explains it: connections close a moment before a process has
    /// ended, so this waits up to a second when `error` says that a rank is gone.
    pub fn explain(&mut self, error: RanksError) -> RanksError {
        let deadline = Instant::now() + Duration::from_secs(1);
        while matches!(error, RanksError::Lost { .. }) && Instant::now() < deadline {
            if let Err(ended) = self.check() {
                return ended;
            }
            std::thread::sleep(PAUSE);
        }
        error
    }

    /// Waits until all processes have ended well.
    ///
    /// # Errors
    /// When one ends otherwise, or is still under way after `limit`.
    pub fn finish(&mut self, limit: Duration) -> Result<(), RanksError> {
        let deadline = Instant::now() + limit;
        loop {
            self.check()?;
            let Some(busy) = self.members.iter().find(|member| member.status.is_none()) else {
                return Ok(());
            };
            if Instant::now() > deadline {
                return Err(RanksError::Silent { rank: busy.rank, seconds: limit.as_secs() });
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Process ids, in the order of ranks from 1.
    #[must_use]
    pub fn ids(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.child.id()).collect()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for member in self.members.iter_mut().filter(|member| member.status.is_none()) {
            if let Err(error) = member.child.kill() {
                tracing::warn!(rank = member.rank, %error, "cannot end a rank");
            }
        }
        for member in self.members.iter_mut().filter(|member| member.status.is_none()) {
            if let Err(error) = member.child.wait() {
                tracing::warn!(rank = member.rank, %error, "cannot wait for the end of a rank");
            }
        }
    }
}

impl Lines {
    fn follow(&self, rank: usize, stderr: ChildStderr) {
        let mut stderr = BufReader::new(stderr);
        let mut line = Vec::new();
        loop {
            line.clear();
            match (&mut stderr).take(LINE as u64).read_until(b'\n', &mut line) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(rank, %error, "cannot read what a rank writes");
                    break;
                }
            }
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if text.is_empty() {
                continue;
            }
            tracing::info!(rank, "{text}");
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() == KEPT {
                kept.pop_front();
            }
            kept.push_back(text);
        }
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// What is kept, once nothing more can come or after a moment.
    fn text(&self) -> String {
        let deadline = Instant::now() + DRAIN;
        while !*self.ended.lock().unwrap_or_else(PoisonError::into_inner) && Instant::now() < deadline {
            std::thread::sleep(PAUSE);
        }
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// For a process that [`spawn`] started: calls `end` when its parent is gone, however that ended, which closes this
/// process's standard input. `end` should end the process.
///
/// # Errors
/// When no thread can be started.
pub fn end_with_parent(end: impl FnOnce() + Send + 'static) -> Result<(), RanksError> {
    let watch = move || {
        let mut sink = [0; 64];
        let mut input = std::io::stdin().lock();
        loop {
            match input.read(&mut sink) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot watch whether the parent lives");
                    break;
                }
            }
        }
        tracing::warn!("the process that started this rank is gone");
        end();
    };
    let thread = std::thread::Builder::new().name("parent".into()).spawn(watch);
    thread.map(drop).map_err(|error| RanksError::Input(format!("cannot watch the parent: {error}")))
}
