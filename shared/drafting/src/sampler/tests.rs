#![expect(clippy::expect_used, reason = "tests")]

use domain::pack::{INJECTION_AXIS, OUTCOME_AXIS, When, built_in};
use proptest::prelude::*;

use super::*;
use crate::allocate::largest_remainder;

fn counts(column: &[usize], levels: usize) -> Vec<usize> {
    let mut counts = vec![0; levels];
    for level in column {
        counts[*level] += 1;
    }
    counts
}

fn packs() -> &'static [DomainPack] {
    static PACKS: std::sync::LazyLock<Vec<DomainPack>> =
        std::sync::LazyLock::new(|| built_in().into_iter().map(|(_, pack)| pack).collect());
    &PACKS
}

fn rule(parts: &[(&str, &[&str])]) -> When {
    parts
        .iter()
        .map(|(axis, levels)| ((*axis).into(), levels.iter().map(|l| (*l).into()).collect()))
        .collect()
}

/// A third of one axis excludes half of another.
fn constrained(pack: &DomainPack) -> DomainPack {
    let mut pack = pack.clone();
    let part = |axis: usize, share: usize| {
        let values = &pack.axes[axis].values;
        (
            pack.axes[axis].name.clone(),
            values.iter().take(values.len().div_ceil(share)).map(|v| v.id.clone()).collect(),
        )
    };
    let rules = vec![When::from([part(0, 3), part(2, 2)]), When::from([part(1, 4), part(3, 2)])];
    pack.forbid.extend(rules);
    pack
}

fn broken(pack: &DomainPack, design: &Design) -> usize {
    let rows = u32::try_from(design.rows()).expect("is small");
    let values = |row| design.values(pack, row).expect("is in the design");
    let breaks = |row: u32| {
        let chosen = values(row);
        pack.forbid.iter().any(|when| when.iter().all(|(axis, levels)| levels.contains(&chosen[axis])))
    };
    (0..rows).filter(|row| breaks(*row)).count()
}

/// Each marginal is that of largest remainder, up to which of the levels with equal claims get the rows that are left.
fn assert_exact(pack: &DomainPack, design: &Design) -> Result<(), TestCaseError> {
    for (column, axis) in design.columns.iter().zip(&pack.axes) {
        let found = counts(column, axis.values.len());
        let natural: Vec<usize> = (0..axis.values.len()).collect();
        let mut wanted = largest_remainder(column.len(), &axis.shares(), &natural);
        let mut sorted = found.clone();
        if !axis.is_weighted() {
            wanted.sort_unstable();
            sorted.sort_unstable();
        }
        prop_assert_eq!(&sorted, &wanted, "{} {:?}", axis.name, found);
    }
    Ok(())
}

/// Any size up to 5,000, small ones as often as large ones.
fn sizes() -> impl Strategy<Value = u32> {
    prop_oneof![1u32..30, 30u32..400, 400u32..=5_000]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_marginal_of_every_size_is_exact_and_repairs_do_not_change_that(rows in sizes(), seed: u64) {
        for pack in packs() {
            let design = Design::new(pack, rows, seed).expect("the constraints of the pack can be kept");
            assert_exact(pack, &design)?;
            prop_assert_eq!(broken(pack, &design), 0);
            prop_assert!(design.report(pack).largest_deviation < 1.0);
        }
    }

    #[test]
    fn joint_cells_are_within_one_of_their_share(rows in sizes(), seed: u64) {
        for pack in packs() {
            let design = Design::new(pack, rows, seed).expect("designs");
            let at = |name| pack.axis(name).map(|(i, _)| i).expect("is checked");
            let (a, b) = (at(OUTCOME_AXIS), at(INJECTION_AXIS));
            let width = pack.axes[b].values.len();
            let cells: Vec<usize> = design.columns[a].iter().zip(&design.columns[b]).map(|(i, j)| i * width + j).collect();
            let found = counts(&cells, width * pack.axes[a].values.len());
            for (cell, count) in found.iter().enumerate() {
                let share = pack.axes[a].weights()[cell / width] * pack.axes[b].weights()[cell % width] * f64::from(rows);
                // Exact marginals and cells within 1 of shares that do not have those marginals exclude each other;
                // the marginals win.
                prop_assert!((*count as f64 - share).abs() < 2.0, "{cell} {count} {share}");
            }
        }
    }

    #[test]
    fn hard_constraints_are_kept_with_the_same_marginals(rows in 60u32..1_200, seed: u64) {
        for pack in packs() {
            let pack = constrained(pack);
            let design = Design::new(&pack, rows, seed).expect("there is room for exchanges");
            prop_assert_eq!(broken(&pack, &design), 0);
            assert_exact(&pack, &design)?;
        }
    }

    #[test]
    fn blocks_extend_a_design_without_touching_it_and_the_whole_is_exact_again(
        blocks in prop::collection::vec(1u32..260, 2..5), seed: u64,
    ) {
        for pack in packs() {
            let whole = Design::of_blocks(pack, &blocks, seed).expect("designs");
            let mut ends = 0;
            for number in 1..=blocks.len() {
                let part = Design::of_blocks(pack, &blocks[..number], seed).expect("designs");
                ends += usize::try_from(blocks[number - 1]).expect("is small");
                prop_assert_eq!(part.rows(), ends);
                for (short, long) in part.columns.iter().zip(&whole.columns) {
                    prop_assert_eq!(&short[..], &long[..ends]);
                }
                let last = u32::try_from(ends - 1).expect("is small");
                prop_assert_eq!(part.row(last), whole.row(last));
                let report = part.report(pack);
                prop_assert!(report.largest_deviation < 2.0, "{}", report.largest_deviation);
                // Axes without weights have no paradox: their counts are exact whatever the blocks, but where a tiny block
                // leaves a constraint no other way.
                for (column, axis) in part.columns.iter().zip(&pack.axes).filter(|(_, axis)| !axis.is_weighted()) {
                    let counts = counts(column, axis.values.len());
                    let (least, most) = (counts.iter().min(), counts.iter().max());
                    prop_assert!(most.zip(least).is_some_and(|(m, l)| m - l <= 2), "{} {counts:?}", axis.name);
                }
            }
            prop_assert_eq!(broken(pack, &whole), 0);
        }
    }

    #[test]
    fn blocks_of_a_hundred_rows_or_more_have_the_marginals_of_one_block(
        blocks in prop::collection::vec(100u32..900, 2..4), seed: u64,
    ) {
        for pack in packs() {
            let design = Design::of_blocks(pack, &blocks, seed).expect("designs");
            assert_exact(pack, &design)?;
        }
    }

    #[test]
    fn a_design_is_the_same_wherever_it_is_computed(rows in 1u32..200, more in 1u32..60, seed: u64) {
        for pack in packs() {
            let make = |seed| Design::of_blocks(pack, &[rows, more], seed).expect("designs");
            let (here, there) = (make(seed), make(seed));
            prop_assert_eq!(&here.columns, &there.columns);
            prop_assert_eq!(here.id(), there.id());
            let other = make(seed.wrapping_add(1));
            prop_assert_ne!(here.id(), other.id());
        }
    }
}

#[test]
fn a_design_has_the_bits_it_had_when_this_was_written() {
    let pack = small_pack();
    let design = Design::of_blocks(&pack, &[40, 9], 7).expect("designs");
    let mut hash = Sha256::new();
    for level in design.columns.iter().flatten() {
        hash.update(u32::try_from(*level).expect("is small").to_le_bytes());
    }
    let hash: String = hash.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect();
    assert_eq!(hash, "d9905570a5558986");
}

/// A pack whose axes do not change with the packs that ship.
fn small_pack() -> DomainPack {
    let mut pack = packs()[0].clone();
    pack.forbid.clear();
    for axis in pack.axes.iter_mut().filter(|axis| !axis.is_weighted()) {
        axis.values.truncate(4);
        for (i, value) in axis.values.iter_mut().enumerate() {
            value.id = format!("level_{i}");
        }
    }
    pack
}

#[test]
fn every_pair_hangs_together_less_than_by_chance_and_the_joint_pair_hardly_at_all() {
    for pack in packs() {
        for rows in [200u32, 500, 2_000, 5_000] {
            let report = Design::new(pack, rows, 7).expect("designs").report(pack);
            // What a constraint forbids hangs together on purpose.
            let ruled =
                |p: &&PairReport| !pack.forbid.iter().any(|w| w.contains_key(&p.a) && w.contains_key(&p.b));
            for pair in report.pairs.iter().filter(ruled) {
                let levels = |name: &str| pack.axis(name).map_or(0, |(_, axis)| axis.values.len());
                // With fewer rows than combinations most are empty, whatever the order.
                let limit = if levels(&pair.a) * levels(&pair.b) < usize::try_from(rows).expect("is small") {
                    0.9
                } else {
                    1.0
                };
                assert!(pair.cramers_v < limit * pair.by_chance, "{} {rows} {pair:?}", pack.id);
                if [&pair.a[..], &pair.b] == [OUTCOME_AXIS, INJECTION_AXIS] {
                    assert!(pair.cramers_v < 0.02, "{} {rows} {pair:?}", pack.id);
                }
            }
            let small = |name: &str| pack.axis(name).is_some_and(|(_, axis)| axis.values.len() <= 7);
            for pair in report.pairs.iter().filter(|p| rows >= 500 && small(&p.a) && small(&p.b)) {
                assert!(pair.cramers_v < 0.05, "{} {rows} {pair:?}", pack.id);
            }
        }
    }
}

#[test]
fn a_small_design_draws_other_levels_of_a_large_axis_with_another_seed() {
    let pack = &packs()[0];
    let used =
        |seed| counts(&Design::new(pack, 12, seed).expect("designs").columns[1], pack.axes[1].values.len());
    assert_ne!(used(1), used(2));
}

#[test]
fn a_constraint_that_nothing_can_keep_is_named() {
    let mut pack = packs()[0].clone();
    let most = |axis: usize| {
        let values = &pack.axes[axis].values;
        (pack.axes[axis].name.clone(), values[1..].iter().map(|v| v.id.clone()).collect())
    };
    pack.forbid = vec![When::from([most(3), most(5)])];
    let error = Design::new(&pack, 400, 1).expect_err("asks for too much").to_string();
    assert!(error.contains("/forbid/0") && error.contains("400 rows"), "{error}");
    pack.forbid = vec![rule(&[("tenor", &["nobody"])])];
    assert!(DomainPack::from_yaml(&serde_text(&pack)).is_err());
}

fn serde_text(pack: &DomainPack) -> String {
    serde_json::to_string(pack).expect("is JSON, which is YAML")
}

#[test]
fn rows_past_the_end_do_not_exist() {
    let pack = &packs()[0];
    let design = Design::new(pack, 5, 0).expect("designs");
    assert!(design.values(pack, 4).is_some());
    assert!(design.values(pack, 5).is_none());
}
