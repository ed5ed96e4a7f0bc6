//! Ranks as threads of one process, over loopback.

use std::net::{Ipv4Addr, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ranks::{Group, Membership, Options, RanksError, Rendezvous, TcpGroup, Token};
use tch::{Device, Kind, Tensor};

/// A death must be known everywhere within this.
const QUICK: Duration = Duration::from_secs(5);

fn options() -> Options {
    Options { join: Duration::from_secs(20), bucket_bytes: 4096, ..Options::default() }
}

fn member(rank: usize, world: usize, port: u16) -> Membership {
    Membership { rank, world, local_rank: rank, master: "127.0.0.1".into(), port }
}

fn listen() -> Result<Rendezvous> {
    Ok(Rendezvous::bind((Ipv4Addr::LOCALHOST, 0).into())?)
}

fn join(rank: usize, world: usize, port: u16, token: &Token) -> Result<TcpGroup, RanksError> {
    join_within(options().join, rank, world, port, token)
}

fn join_within(
    join: Duration,
    rank: usize,
    world: usize,
    port: u16,
    token: &Token,
) -> Result<TcpGroup, RanksError> {
    let options = Options { join, ..options() };
    TcpGroup::connect(&member(rank, world, port), Ipv4Addr::LOCALHOST.into(), token, &options)
}

/// What `work` gives on every rank, in their order.
fn on_ranks<T: Send>(world: usize, work: impl Fn(TcpGroup) -> T + Sync) -> Result<Vec<T>> {
    tch::set_num_threads(1);
    let (token, rendezvous) = (Token::generate(), listen()?);
    let port = rendezvous.address().port();
    std::thread::scope(|scope| {
        let (token, work) = (&token, &work);
        let others: Vec<_> =
            (1..world).map(|rank| scope.spawn(move || join(rank, world, port, token).map(work))).collect();
        let mut results = vec![work(rendezvous.wait(world, token, &options(), || Ok(()))?)];
        for other in others {
            results.push(other.join().ok().context("a rank panicked")??);
        }
        Ok(results)
    })
}

/// A number of rank `rank` that shows in which order f32 sums were added.
fn odd(rank: usize, index: i64) -> f64 {
    [1.0e8, 1.0, -1.0e8][rank] + index as f64 * 0.37
}

#[test]
fn sums_are_added_in_the_order_of_ranks_and_bit_equal_everywhere() -> Result<()> {
    for world in [1, 2, 3] {
        let sums = on_ranks(world, |group| -> Result<Vec<u64>> {
            let mut values: Vec<f64> = (0..1000).map(|index| odd(group.rank(), index) / 3.0).collect();
            group.sum(&mut values)?;
            group.sum(&mut [])?;
            Ok(values.into_iter().map(f64::to_bits).collect())
        })?;
        let expected: Vec<u64> = (0..1000)
            .map(|index| {
                (1..world).fold(odd(0, index) / 3.0, |sum, rank| sum + odd(rank, index) / 3.0).to_bits()
            })
            .collect();
        for sum in sums {
            assert_eq!(sum?, expected, "{world} ranks");
        }
    }
    Ok(())
}

#[test]
fn tensors_are_summed_in_place_across_buckets() -> Result<()> {
    for world in [2, 3] {
        let sums = on_ranks(world, |group| -> Result<Vec<Vec<u32>>> {
            let numbers =
                |count: i64| -> Vec<f32> { (0..count).map(|i| odd(group.rank(), i) as f32).collect() };
            let long = Tensor::from_slice(&numbers(5000)).set_requires_grad(true);
            let turned = Tensor::from_slice(&numbers(6)).view([2, 3]).transpose(0, 1);
            let scalar = Tensor::from(odd(group.rank(), 0) as f32);
            let tensors = [long, turned, scalar];
            group.sum_tensors(&tensors)?;
            group.sum_tensors(&[])?;
            let bits = |tensor: &Tensor| -> Result<Vec<u32>> {
                Ok(Vec::<f32>::try_from(tensor.detach().reshape([-1]))?
                    .into_iter()
                    .map(f32::to_bits)
                    .collect())
            };
            tensors.iter().map(bits).collect()
        })?;
        let expected =
            |i: i64| (1..world).fold(odd(0, i) as f32, |sum, rank| sum + odd(rank, i) as f32).to_bits();
        for sum in sums {
            let [long, turned, scalar] = &sum?[..] else { bail!("three tensors went in") };
            assert!(long.iter().enumerate().all(|(i, bits)| *bits == expected(i as i64)));
            assert_eq!(*turned, [0, 3, 1, 4, 2, 5].map(expected));
            assert_eq!(*scalar, [expected(0)]);
        }
    }
    Ok(())
}

#[test]
fn broadcast_gives_the_bytes_of_rank_0_whatever_their_size() -> Result<()> {
    for size in [0, 5, 4096, 10_001] {
        let bytes: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
        let given = on_ranks(3, |group| {
            let mine = if group.rank() == 0 { bytes.clone() } else { vec![1, 2, 3] };
            group.broadcast(mine)
        })?;
        for own in given {
            assert_eq!(own?, bytes);
        }
    }
    Ok(())
}

#[test]
fn gather_lays_the_parts_side_by_side_in_any_kind() -> Result<()> {
    for kind in [Kind::Float, Kind::BFloat16, Kind::Int64] {
        for count in [0, 3, 2500] {
            let wholes = on_ranks(3, |group| -> Result<Vec<f64>> {
                let numbers = Tensor::arange(count, (Kind::Int64, Device::Cpu)).remainder(100);
                let part = (numbers + group.rank() as i64 * 100).to_kind(kind);
                let whole = Tensor::zeros([count * 3], (kind, Device::Cpu));
                group.gather(&part, &whole)?;
                Ok(Vec::<f64>::try_from(whole.to_kind(Kind::Double))?)
            })?;
            let expected: Vec<f64> =
                (0..3).flat_map(|rank| (0..count).map(move |i| (i % 100 + rank * 100) as f64)).collect();
            // bf16 keeps 8 bits of a number.
            let expected = if kind == Kind::BFloat16 {
                Vec::<f64>::try_from(Tensor::from_slice(&expected).to_kind(kind).to_kind(Kind::Double))?
            } else {
                expected
            };
            for whole in wholes {
                assert!(whole? == expected, "{kind:?} {count}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_rank_that_panics_is_named_to_all_others_at_once() -> Result<()> {
    for dead in [0, 1, 2] {
        let outcomes = on_ranks(3, |group| -> Result<(String, Duration)> {
            if group.rank() == dead {
                group.sum(&mut [1.0])?;
                let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                    let _group = group;
                    std::panic::resume_unwind(Box::new("a fault"));
                }));
                assert!(caught.is_err());
                return Ok((String::new(), Duration::ZERO));
            }
            let start = Instant::now();
            // The first sum may be complete or not when the rank is missed.
            let calls = std::iter::repeat_with(|| group.sum(&mut [1.0])).take(2);
            let error = calls.filter_map(Result::err).next().context("a call must fail")?;
            assert_eq!(group.sum_tensors(&[]).err(), Some(error.clone()), "later calls fail alike");
            Ok((error.to_string(), start.elapsed()))
        })?;
        for (rank, outcome) in outcomes.into_iter().enumerate().filter(|(rank, _)| *rank != dead) {
            let (error, took) = outcome?;
            assert!(error.starts_with(&format!("rank {dead} is gone")), "rank {rank}: {error}");
            assert!(took < QUICK, "rank {rank} took {took:?}");
        }
    }
    Ok(())
}

#[test]
fn a_rank_that_left_in_good_order_is_missed_by_those_that_go_on() -> Result<()> {
    let errors = on_ranks(3, |group| match group.rank() {
        1 => None,
        _ => group.sum(&mut [1.0]).err(),
    })?;
    let expected = Some(RanksError::Lost { rank: 1, detail: "it left the group".into() });
    assert_eq!(errors, [expected.clone(), None, expected]);
    Ok(())
}

#[test]
fn an_error_of_one_rank_is_told_to_the_others() -> Result<()> {
    let errors = on_ranks(3, |group| match group.rank() {
        2 => {
            group.give_up("the disk is full");
            group.broadcast(Vec::new()).err()
        }
        _ => group.broadcast(Vec::new()).err(),
    })?;
    for error in errors {
        assert_eq!(error.context("fails")?.to_string(), "rank 2 gave up: the disk is full");
    }
    Ok(())
}

#[test]
fn ranks_that_make_other_calls_than_rank_0_fail_instead_of_mixing_data() -> Result<()> {
    type Call = fn(&TcpGroup) -> Result<(), RanksError>;
    let calls: [(Call, &str); 4] = [
        (|group| group.sum(&mut [1.0; 3]), "sum of 24 bytes (call 1)"),
        (|group| group.broadcast(vec![0; 9]).map(drop), "broadcast of 0 bytes (call 1)"),
        (
            |group| group.sum_tensors(&[Tensor::zeros([2], (Kind::Float, Device::Cpu))]),
            "sum_tensors of 8 bytes (call 1)",
        ),
        (
            |group| {
                let part = Tensor::zeros([5], (Kind::Half, Device::Cpu));
                group.gather(&part, &Tensor::zeros([15], (Kind::Half, Device::Cpu)))
            },
            "gather of 10 bytes of kind 5 (call 1)",
        ),
    ];
    for (call, says) in calls {
        let start = Instant::now();
        let errors = on_ranks(3, |group| {
            group
                .sum(&mut [0.0])
                .and_then(|()| if group.rank() == 2 { call(&group) } else { group.sum(&mut [1.0; 4]) })
        })?;
        for error in errors {
            let text = error.err().context("the call must fail")?.to_string();
            let expected = format!("rank 2 calls {says} where this one calls sum of 32 bytes (call 1)");
            assert!(text.ends_with(&expected), "{text}");
        }
        assert!(start.elapsed() < QUICK);
    }
    Ok(())
}

#[test]
fn a_rank_that_is_alive_but_silent_is_given_up_after_the_timeout() -> Result<()> {
    let (token, rendezvous) = (Token::generate(), listen()?);
    let port = rendezvous.address().port();
    let hurried = Options { timeout: Duration::from_secs(1), ..options() };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| -> Result<RanksError, RanksError> {
            let group = join(1, 2, port, &token)?;
            // It calls nothing until it hears that rank 0 waits no longer.
            let deadline = Instant::now() + Duration::from_secs(20);
            loop {
                std::thread::sleep(Duration::from_millis(1500));
                match group.sum(&mut []) {
                    Err(error) => return Ok(error),
                    Ok(()) => assert!(Instant::now() < deadline),
                }
            }
        });
        let group = rendezvous.wait(2, &token, &hurried, || Ok(()))?;
        assert_eq!(group.sum(&mut [1.0]).err(), Some(RanksError::Silent { rank: 1, seconds: 1 }));
        let told = other.join().ok().context("rank 1 panicked")??;
        assert_eq!(told.to_string(), "rank 0 gave up: rank 1 sent nothing for 1 s");
        Ok(())
    })
}

#[test]
fn a_rank_without_signs_of_life_is_gone_though_its_connections_are_open() -> Result<()> {
    let (token, rendezvous) = (Token::generate(), listen()?);
    let port = rendezvous.address().port();
    // Rank 1 sends signs of life every 15 s, rank 0 expects them within 1 s.
    let hurried = Options { silence: Duration::from_secs(1), ..options() };
    let (done, wait) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let token = &token;
        scope.spawn(move || {
            let group = join(1, 2, port, token);
            let ended = wait.recv_timeout(Duration::from_secs(20));
            drop(group);
            ended
        });
        let group = rendezvous.wait(2, token, &hurried, || Ok(()))?;
        let expected = RanksError::Lost { rank: 1, detail: "no sign of life for 1 s".into() };
        assert_eq!(group.sum(&mut [1.0]).err(), Some(expected));
        done.send(())?;
        Ok(())
    })
}

#[test]
fn a_stranger_is_refused_and_the_ranks_still_come_together() -> Result<()> {
    let (token, rendezvous) = (Token::generate(), listen()?);
    let port = rendezvous.address().port();
    std::thread::scope(|scope| {
        let token = &token;
        let other = scope.spawn(move || {
            let stranger = join(1, 2, port, &Token::generate()).err();
            // Someone who looks what is there, and says something else.
            let scanner = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).and_then(|stream| {
                std::io::Write::write_all(&mut &stream, b"GET / HTTP/1.1\r\n\r\n").map(|()| stream)
            });
            let rank = join(1, 2, port, token).map(|group| group.sum(&mut []));
            (stranger, scanner.is_ok(), rank)
        });
        let group = rendezvous.wait(2, token, &options(), || Ok(()))?;
        group.sum(&mut [])?;
        let (stranger, scanned, rank) = other.join().ok().context("rank 1 panicked")?;
        let text = stranger.context("refused")?.to_string();
        assert!(text.contains("the token is not that of this group"), "{text}");
        assert!(scanned);
        rank??;
        Ok(())
    })
}

#[test]
fn a_missing_rank_ends_the_wait_with_what_was_refused_and_the_others_hear_it() -> Result<()> {
    let (token, rendezvous) = (Token::generate(), listen()?);
    let port = rendezvous.address().port();
    let short = Options { join: Duration::from_secs(2), ..options() };
    std::thread::scope(|scope| {
        let token = &token;
        let first = scope.spawn(move || join(1, 3, port, token).err());
        let wrong = scope.spawn(move || join(2, 3, port, &Token::generate()).err());
        let error = rendezvous.wait(3, token, &short, || Ok(())).err().context("one is missing")?.to_string();
        assert!(error.contains("missing of 3: rank 2") && error.contains("the token is not"), "{error}");
        wrong.join().ok().flatten().context("refused")?;
        let told = first.join().ok().flatten().context("told")?.to_string();
        assert!(told.contains("missing of 3: rank 2"), "{told}");
        Ok(())
    })
}

#[test]
fn a_second_process_of_a_rank_and_another_world_are_refused_on_both_sides() -> Result<()> {
    for (rank, world, says) in [
        (1, 3, "rank 1 is here already"),
        (2, 4, "rank 2 was started for a world of 4 processes, rank 0 for one of 3"),
        (5, 3, "rank 5 is not one of 1 to 2"),
    ] {
        let (token, rendezvous) = (Token::generate(), listen()?);
        let port = rendezvous.address().port();
        let (both, errors) = std::thread::scope(|scope| -> Result<(String, Vec<String>)> {
            let token = &token;
            // Whoever comes when rank 0 has given up finds nobody, which takes as long as it is ready to wait.
            let join = Duration::from_secs(3);
            let start =
                |(rank, world)| scope.spawn(move || join_within(join, rank, world, port, token).err());
            let processes = [(1, 3), (rank, world)].map(start);
            let error = rendezvous.wait(3, token, &options(), || Ok(())).err().context("refused")?;
            let errors = processes.into_iter().filter_map(|process| process.join().ok().flatten());
            Ok((error.to_string(), errors.map(|error| error.to_string()).collect()))
        })?;
        assert!(both.contains(says), "{both}");
        assert!(errors.iter().any(|error| error.contains(says)), "{errors:?}");
        assert_eq!(errors.len(), 2);
    }
    Ok(())
}

#[test]
fn the_wait_ends_when_the_caller_finds_a_fault() -> Result<()> {
    let mut looks = 0;
    let error = listen()?.wait(2, &Token::generate(), &options(), || {
        looks += 1;
        if looks < 3 { Ok(()) } else { Err(RanksError::Input("a process has ended".into())) }
    });
    assert_eq!(error.err().map(|error| error.to_string()).as_deref(), Some("a process has ended"));
    Ok(())
}
