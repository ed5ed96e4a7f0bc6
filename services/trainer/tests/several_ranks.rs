//! Several processes that train one run, here as threads that talk over TCP as processes do.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use common::{Told, World, bits, order, own, series, spec};
use domain::run::TrainingSpec;
use ranks::{Group, Membership, Options, RanksError, Rendezvous, TcpGroup, Token};
use tch::Tensor;
use trainer::TrainError;
use trainer::dataset::RawDataset;

fn options() -> Options {
    Options { join: Duration::from_secs(60), timeout: Duration::from_secs(60), ..Options::default() }
}

/// What every rank of a run tells. `wrap` may put something between a rank and its group.
fn on_ranks(
    world: &World,
    ranks: usize,
    spec: &TrainingSpec,
    name: &str,
    resume: Option<trainer::plan::Resume>,
    wrap: impl Fn(TcpGroup) -> Box<dyn Group> + Sync,
) -> Vec<Told> {
    let rendezvous = Rendezvous::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let (port, token) = (rendezvous.address().port(), Token::generate());
    let work = |rank: usize, group: TcpGroup| {
        nn::device::set_threads(1);
        let order = common::Order { resume: resume.clone(), ..order(&format!("{name}-{rank}")) };
        let data = RawDataset { eval: vec![world.short("c", 3)], ..equal(world) };
        world.train_on(data, spec, order, &wrap(group).into())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..ranks)
            .map(|rank| {
                let (work, token) = (&work, token.clone());
                scope.spawn(move || {
                    let member =
                        Membership { rank, world: ranks, local_rank: rank, master: "127.0.0.1".into(), port };
                    let listen = Ipv4Addr::LOCALHOST.into();
                    work(rank, TcpGroup::connect(&member, listen, &token, &options()).unwrap())
                })
            })
            .collect();
        let first = work(0, rendezvous.wait(ranks, &token, &options(), || Ok(())).unwrap());
        std::iter::once(first).chain(others.into_iter().map(|o| o.join().unwrap())).collect()
    })
}

/// Windows of one length: a shorter one in a batch also learns its last delayed codes.
fn equal(world: &World) -> RawDataset {
    RawDataset { train: (0..4).map(|i| world.short(&format!("d{i}"), i)).collect(), eval: Vec::new() }
}

#[test]
fn two_ranks_give_the_numbers_of_one_with_the_doubled_batch() {
    let world = World::new();
    let two = on_ranks(&world, 2, &spec(6), "two", None, |group| Box::new(group));
    let doubled = TrainingSpec { batch_size: 2, ..spec(6) };
    let one = on_ranks(&world, 1, &doubled, "one", None, |group| Box::new(group)).remove(0);
    one.result.unwrap();
    for told in &two {
        assert!(told.result.is_ok(), "{:?}", told.result);
    }
    assert!(two[1].metrics.is_empty() && two[1].checkpoints.is_empty(), "rank 0 alone reports and saves");
    for name in ["train/loss", "train/grad_norm", "train/audio_cb3_loss", "eval/loss", "eval/text_loss"] {
        let (found, expected) = (series(&two[0].metrics, name), series(&one.metrics, name));
        assert_eq!(found.len(), expected.len(), "{name}");
        for ((step, a), (_, b)) in found.iter().zip(&expected) {
            assert!((a - b).abs() < 2e-4 * b.abs().max(1.0), "{name} {step}: {a}, not {b}");
        }
    }
}

#[test]
fn two_ranks_that_were_stopped_go_on_with_bit_equal_losses() {
    let world = World::new();
    let spec = TrainingSpec { ckpt_freq: 2, ..spec(4) };
    let whole = on_ranks(&world, 2, &spec, "whole", None, |group| Box::new(group)).remove(0);
    let resume = own(whole.checkpoints.first().unwrap());
    let rest = on_ranks(&world, 2, &spec, "rest", resume, |group| Box::new(group)).remove(0);
    let tail = bits(&series(&whole.metrics, "train/loss"))[2..].to_vec();
    assert_eq!(bits(&series(&rest.metrics, "train/loss")), tail);
}

#[test]
fn layers_that_two_ranks_split_give_the_numbers_of_layers_that_each_holds() {
    let world = World::new();
    let whole = TrainingSpec { gradient_checkpointing: true, kl_base_weight: 0.1, ..spec(3) };
    let split = TrainingSpec { shard_frozen: true, ..whole.clone() };
    let [whole, split] = [("whole", whole), ("split", split)]
        .map(|(name, spec)| on_ranks(&world, 2, &spec, name, None, |group| Box::new(group)));
    for told in whole.iter().chain(&split) {
        assert!(told.result.is_ok(), "{:?}", told.result);
    }
    for name in ["train/loss", "train/grad_norm", "eval/loss"] {
        let (whole, split) = (series(&whole[0].metrics, name), series(&split[0].metrics, name));
        assert_eq!(bits(&whole), bits(&split), "{name}");
    }
}

/// A rank that is gone after so many sums of gradients.
struct Mortal {
    group: TcpGroup,
    sums: std::cell::Cell<u32>,
}

impl Group for Mortal {
    fn rank(&self) -> usize {
        self.group.rank()
    }
    fn world(&self) -> usize {
        self.group.world()
    }
    fn sum(&self, values: &mut [f64]) -> Result<(), RanksError> {
        self.group.sum(values)
    }
    fn sum_tensors(&self, tensors: &[Tensor]) -> Result<(), RanksError> {
        self.sums.set(self.sums.get() + 1);
        if self.group.rank() == 1 && self.sums.get() == 3 {
            self.group.give_up("the test wants it so");
        }
        self.group.sum_tensors(tensors)
    }
    fn broadcast(&self, bytes: Vec<u8>) -> Result<Vec<u8>, RanksError> {
        self.group.broadcast(bytes)
    }
    fn gather(&self, part: &Tensor, whole: &Tensor) -> Result<(), RanksError> {
        self.group.gather(part, whole)
    }
}

#[test]
fn a_rank_that_is_lost_ends_the_attempt_of_all_and_the_checkpoint_before_it_is_kept() {
    let world = World::new();
    let spec = TrainingSpec { ckpt_freq: 1, ..spec(6) };
    let mortal = |group| -> Box<dyn Group> { Box::new(Mortal { group, sums: std::cell::Cell::new(0) }) };
    let told = on_ranks(&world, 2, &spec, "lost", None, mortal);
    for told in &told {
        assert!(matches!(told.result, Err(TrainError::Ranks(_))), "{:?}", told.result);
    }
    assert_eq!(told[0].checkpoints.len(), 2, "of the two steps before");
    let job: chassis::JobError = told.into_iter().next().unwrap().result.unwrap_err().into();
    assert!(matches!(job, chassis::JobError::Transient(..)), "the run is tried again: {job:?}");
}
