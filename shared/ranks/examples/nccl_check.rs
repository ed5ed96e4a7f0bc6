//! Adds up 139 million f32 (the gradients of a rank-64 adapter of the 7B backbone) over the ranks of torchrun's
//! variables, checks the result and prints the speed; on its own, with one GPU. `--die N` ends rank N in the middle,
//! `--tcp` adds a hundredth of that on CPUs over TCP.
//!
//! `ppx train launch --nproc-per-node 2 -- target/release/examples/nccl_check`

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use ranks::{Group, Membership, NcclGroup, Options, TcpGroup, Token};
use tch::{Device, Kind, Tensor};

const ELEMENTS: i64 = 139_000_000;
const TENSORS: i64 = 448;
const ROUNDS: u32 = 20;

/// Adds tensors over the ranks of torchrun's variables.
#[derive(Parser)]
struct Arguments {
    /// A hundredth of the numbers, on CPUs over TCP.
    #[arg(long)]
    tcp: bool,
    /// This rank ends in the middle.
    #[arg(long, value_name = "RANK")]
    die: Option<usize>,
    #[arg(long, env = "RANK")]
    rank: Option<String>,
    #[arg(long, env = "WORLD_SIZE")]
    world_size: Option<String>,
    #[arg(long, env = "LOCAL_RANK")]
    local_rank: Option<String>,
    #[arg(long, env = "MASTER_ADDR")]
    master_addr: Option<String>,
    #[arg(long, env = "MASTER_PORT")]
    master_port: Option<String>,
    #[arg(long, env = Token::VARIABLE, hide_env_values = true)]
    token: Option<String>,
}

impl Arguments {
    fn lookup(&self, name: &str) -> Option<String> {
        match name {
            "RANK" => self.rank.clone(),
            "WORLD_SIZE" => self.world_size.clone(),
            "LOCAL_RANK" => self.local_rank.clone(),
            "MASTER_ADDR" => self.master_addr.clone(),
            "MASTER_PORT" => self.master_port.clone(),
            _ => self.token.clone(),
        }
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let alone = Membership { rank: 0, world: 1, local_rank: 0, master: "127.0.0.1".into(), port: 0 };
    let lookup = |name: &str| arguments.lookup(name);
    let (member, token) = match arguments.world_size {
        Some(_) => (Membership::from_lookup(lookup)?, Token::from_lookup(lookup)?),
        None => (alone, Token::generate()),
    };
    let tcp = arguments.tcp;
    let (device, elements) =
        if tcp { (Device::Cpu, ELEMENTS / 100) } else { (Device::Cuda(member.local_rank), ELEMENTS) };
    let any = std::net::Ipv4Addr::UNSPECIFIED.into();
    let options = Options { timeout: Duration::from_secs(60), ..Options::default() };
    let control = TcpGroup::connect(&member, any, &token, &options)?;
    let group: Box<dyn Group> =
        if tcp { Box::new(control) } else { Box::new(NcclGroup::new(control, device)?) };
    check(group.as_ref(), device, elements, arguments.die)
}

fn check(group: &dyn Group, device: Device, elements: i64, dies: Option<usize>) -> Result<()> {
    let (rank, world) = (group.rank(), group.world());
    let (each, rest) = (elements / TENSORS, elements % TENSORS);
    let tensors: Vec<Tensor> = (0..TENSORS)
        .map(|index| {
            let size = if index == 0 { each + rest } else { each };
            Tensor::full([size], (rank + 1) as f64, (Kind::Float, device))
        })
        .collect();
    group.sum_tensors(&tensors).context("the first sum")?;
    let expected = (world * (world + 1) / 2) as f64;
    for tensor in &tensors {
        ensure!(
            (tensor.min().double_value(&[]), tensor.max().double_value(&[])) == (expected, expected),
            "wrong sum"
        );
    }
    let part = Tensor::full([1 << 20], rank as f64, (Kind::BFloat16, device));
    let whole = Tensor::zeros([(world as i64) << 20], (Kind::BFloat16, device));
    group.gather(&part, &whole)?;
    let sum = whole.sum(Kind::Float).double_value(&[]);
    ensure!(sum == (world * (world - 1) / 2) as f64 * f64::from(1 << 20), "wrong gather: {sum}");
    // Values grow by the world in every round and stay finite in f32.
    let start = Instant::now();
    for round in 0..ROUNDS {
        if dies == Some(rank) && round == ROUNDS / 2 {
            std::process::abort();
        }
        let begin = Instant::now();
        if let Err(error) = group.sum_tensors(&tensors) {
            println!("rank {rank}: after {:.3} s: {error}", begin.elapsed().as_secs_f64());
            return Err(error.into());
        }
    }
    let seconds = start.elapsed().as_secs_f64() / f64::from(ROUNDS);
    let gigabytes = elements as f64 * 4.0 / 1.0e9;
    println!("rank {rank} of {world}: {:.3} ms each, {:.1} GB/s", seconds * 1e3, gigabytes / seconds);
    Ok(())
}
