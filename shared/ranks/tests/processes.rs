//! Ranks as processes: this test program starts itself again, to run only [`a_rank_of_another_test`].

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ranks::local::{Children, Plan, end_with_parent, spawn};
use ranks::{Group, Membership, Options, RanksError, Rendezvous, TcpGroup, Token};
use tch::Tensor;

const ROLE: &str = "PPX_RANKS_TEST_ROLE";
const QUICK: Duration = Duration::from_secs(5);

#[expect(clippy::disallowed_methods, reason = "what a process of a test reads")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn options() -> Options {
    Options { join: Duration::from_secs(20), ..Options::default() }
}

fn plan(rendezvous: &Rendezvous, world: usize, token: &Token, role: &str) -> Result<Plan> {
    Ok(Plan {
        program: std::env::current_exe()?,
        args: ["--exact", "a_rank_of_another_test", "--nocapture"].map(Into::into).into(),
        local: world,
        world,
        master: "localhost".into(),
        port: rendezvous.address().port(),
        token: token.clone(),
        variables: vec![(ROLE.into(), role.into())],
    })
}

/// Starts `world - 1` processes and joins them as rank 0.
fn start(world: usize, role: &str) -> Result<(TcpGroup, Children)> {
    tch::set_num_threads(1);
    let token = Token::generate();
    let rendezvous = Rendezvous::bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let mut children = spawn(&plan(&rendezvous, world, &token, role)?)?;
    let group = rendezvous.wait(world, &token, &options(), || children.check())?;
    Ok((group, children))
}

fn is_running(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The state follows the name in brackets; a zombie has ended.
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn until_ended(ids: &[u32]) -> Result<()> {
    let deadline = Instant::now() + QUICK;
    while ids.iter().any(|id| is_running(*id)) {
        ensure!(Instant::now() < deadline, "processes {ids:?} are still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Numbers of one rank, of which only one order of adding gives one sum.
fn numbers(rank: usize) -> Vec<f32> {
    (0..70_000).map(|index| ((index * 7919 + rank * 104_729) % 65_537) as f32 / (rank + 3) as f32).collect()
}

#[test]
fn a_rank_of_another_test() -> Result<()> {
    let Some(role) = variable(ROLE) else { return Ok(()) };
    tch::set_num_threads(1);
    end_with_parent(|| std::process::exit(3))?;
    if role == "fail" {
        eprintln!("the weights\nare missing");
        std::process::exit(137);
    }
    let member = Membership::from_lookup(variable)?;
    let token = Token::from_lookup(variable)?;
    if role == "orphans" {
        return orphan_maker(&member, &token);
    }
    if role == "wait" {
        std::thread::sleep(Duration::from_secs(60));
    }
    let group = TcpGroup::connect(&member, Ipv4Addr::LOCALHOST.into(), &token, &options())?;
    if role == "die" {
        return die(&group);
    }
    let tensor = Tensor::from_slice(&numbers(member.rank));
    group.sum_tensors(&[tensor.shallow_clone()])?;
    let expected: Vec<u8> = group.broadcast(Vec::new())?;
    let own: Vec<u8> = Vec::<f32>::try_from(tensor)?.into_iter().flat_map(f32::to_le_bytes).collect();
    ensure!(own == expected, "rank {} has another sum than rank 0", member.rank);
    Ok(())
}

/// Rank 2 is killed after a call; the others must see it. That call may be complete for them or not.
fn die(group: &TcpGroup) -> Result<()> {
    if group.rank() == 2 {
        group.sum(&mut [0.0])?;
        std::process::abort();
    }
    let calls = std::iter::repeat_with(|| (Instant::now(), group.sum(&mut [0.0]))).take(2);
    let (begin, error) =
        calls.filter_map(|(begin, call)| Some((begin, call.err()?))).next().context("a call must fail")?;
    let text = error.to_string();
    ensure!(text.starts_with("rank 2 is gone: its connection closed"), "rank {} sees: {text}", group.rank());
    ensure!(begin.elapsed() < QUICK, "rank {} waited {:?}", group.rank(), begin.elapsed());
    Ok(())
}

/// Starts ranks that wait, says their ids, and is killed.
fn orphan_maker(member: &Membership, token: &Token) -> Result<()> {
    let rendezvous = Rendezvous::bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let children = spawn(&plan(&rendezvous, member.world, token, "wait")?)?;
    let ids: Vec<String> = children.ids().iter().map(u32::to_string).collect();
    let file = PathBuf::from(variable("PPX_RANKS_TEST_FILE").context("names a file")?);
    let partial = file.with_extension("part");
    std::fs::write(&partial, ids.join(" "))?;
    std::fs::rename(&partial, &file)?;
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}

#[test]
fn processes_have_the_same_sums_to_the_last_bit_and_end_well() -> Result<()> {
    let (group, mut children) = start(3, "sum")?;
    let tensor = Tensor::from_slice(&numbers(0));
    group.sum_tensors(&[tensor.shallow_clone()])?;
    let own = Vec::<f32>::try_from(tensor)?;
    let (one, two) = (numbers(1), numbers(2));
    let expected = numbers(0).into_iter().zip(one).zip(two).map(|((a, b), c)| (a + b) + c);
    assert!(own.iter().copied().eq(expected));
    group.broadcast(own.into_iter().flat_map(f32::to_le_bytes).collect())?;
    children.finish(Duration::from_secs(20))?;
    until_ended(&children.ids())
}

#[test]
fn a_process_that_is_killed_is_named_to_rank_0_and_by_it_to_the_others_at_once() -> Result<()> {
    let (group, mut children) = start(3, "die")?;
    die(&group)?;
    let error = group.sum(&mut []).err();
    let explained = children.explain(error.context("rank 2 was killed")?).to_string();
    assert!(explained.starts_with("rank 2 ended with signal: 6"), "{explained}");
    // Rank 1 ends well: it saw in time what it had to see.
    let error = children.finish(Duration::from_secs(20)).err().context("rank 2 was killed")?.to_string();
    assert!(error.starts_with("rank 2 ended with signal: 6"), "{error}");
    let rest = children.ids();
    drop(children);
    until_ended(&rest)
}

#[test]
fn a_process_that_ends_before_it_has_joined_ends_the_wait_with_its_last_lines() -> Result<()> {
    let begin = Instant::now();
    let error = start(2, "fail").err().context("rank 1 cannot join")?.to_string();
    assert!(error.starts_with("rank 1 ended with exit status: 137: "), "{error}");
    assert!(error.contains("the weights\nare missing"), "{error}");
    assert!(begin.elapsed() < QUICK);
    Ok(())
}

#[test]
fn dropping_the_children_ends_them() -> Result<()> {
    let rendezvous = Rendezvous::bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let mut children = spawn(&plan(&rendezvous, 3, &Token::generate(), "wait")?)?;
    children.check()?;
    let ids = children.ids();
    assert!(ids.len() == 2 && ids.iter().all(|id| is_running(*id)));
    let busy = children.finish(Duration::from_millis(100)).err();
    assert_eq!(busy, Some(RanksError::Silent { rank: 1, seconds: 0 }));
    drop(children);
    until_ended(&ids)
}

#[test]
fn children_end_when_their_parent_is_killed() -> Result<()> {
    let file = std::env::temp_dir().join(format!("ppx-ranks-{}-ids", std::process::id()));
    let member = Membership { rank: 0, world: 3, local_rank: 0, master: "localhost".into(), port: 1 };
    let mut parent = Command::new(std::env::current_exe()?)
        .args(["--exact", "a_rank_of_another_test"])
        .envs(member.variables())
        .envs([
            (ROLE, "orphans"),
            (Token::VARIABLE, "0123456789abcdef"),
            ("PPX_RANKS_TEST_FILE", &file.to_string_lossy()),
        ])
        .stdin(Stdio::piped())
        .spawn()?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while !file.exists() {
        ensure!(Instant::now() < deadline, "no processes were started");
        std::thread::sleep(Duration::from_millis(20));
    }
    let ids: Vec<u32> =
        std::fs::read_to_string(&file)?.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    std::fs::remove_file(&file)?;
    assert!(ids.len() == 2 && ids.iter().all(|id| is_running(*id)));
    parent.kill()?;
    parent.wait()?;
    until_ended(&ids)
}

#[test]
fn a_program_that_is_not_there_is_named() -> Result<()> {
    let rendezvous = Rendezvous::bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let plan =
        Plan { program: "/nonexistent/trainer".into(), ..plan(&rendezvous, 2, &Token::generate(), "sum")? };
    let error = spawn(&plan).err().context("cannot start")?.to_string();
    assert!(error.starts_with("cannot start rank 1 (/nonexistent/trainer): "), "{error}");
    Ok(())
}
