//! Train or eval: by hash of the record's id, never by chunk, so that no dialogue is on both sides.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

/// A dialogue to be put on a side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Record id.
    pub id: String,
    /// What near-duplicates share; they go to the same side.
    pub group: String,
}

/// Labels of the brief that make two dialogues near-duplicates when all are the same.
const SAME_CASE: [&str; 3] = ["CLIENT", "GOAL", "KNOWN"];

impl Candidate {
    /// Reads the group from the brief; a dialogue whose brief has none of the labels is its own group.
    #[must_use]
    pub fn new(id: &str, text_prompt: &str) -> Self {
        let mut parts: BTreeMap<&str, String> = BTreeMap::new();
        let mut open = None;
        for line in text_prompt.lines() {
            if let Some((label, rest)) = line.split_once(':').filter(|(label, _)| is_label(label)) {
                open = SAME_CASE.into_iter().find(|known| *known == label.trim());
                if let Some(label) = open {
                    parts.insert(label, rest.trim().to_owned());
                }
            } else if let Some(part) = open.and_then(|label| parts.get_mut(label)) {
                part.push('\n');
                part.push_str(line.trim());
            }
        }
        let group = if parts.is_empty() { format!("id {id}") } else { format!("brief {parts:?}") };
        Self { id: id.into(), group }
    }
}

fn is_label(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase() || b == b'_' || b == b' ')
}

/// First eight bytes, big-endian, of the SHA-256 of the seed (eight bytes, big-endian) and the id.
#[must_use]
pub fn split_number(seed: u64, id: &str) -> u64 {
    let digest = Sha256::new().chain_update(seed.to_be_bytes()).chain_update(id).finalize();
    u64::from_be_bytes(digest[..8].try_into().expect("a SHA-256 has 32 bytes"))
}

/// Which of the candidates are held out; `None` when there are too few for the two sides.
///
/// A group is held out when the number of its smallest id, divided by 2^64, is below `eval_fraction`. With a fraction
/// above zero each side gets at least one group: the one with the smallest number goes to eval, the one with the
/// largest to train.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "the spec's comparison is in f64")]
pub fn held_out(candidates: &[Candidate], seed: u64, eval_fraction: f64) -> Option<Vec<bool>> {
    let single = candidates.windows(2).all(|pair| pair[0].group == pair[1].group);
    // When all are alike, keeping them together would leave one side empty.
    let key = |c: &Candidate| if single { c.id.clone() } else { c.group.clone() };
    let mut first: BTreeMap<String, &str> = BTreeMap::new();
    for candidate in candidates {
        let id = first.entry(key(candidate)).or_insert(&candidate.id);
        *id = (*id).min(&candidate.id);
    }
    let mut groups: Vec<(u64, String)> =
        first.into_iter().map(|(group, id)| (split_number(seed, id), group)).collect();
    groups.sort();
    if groups.is_empty() || (eval_fraction > 0.0 && groups.len() < 2) {
        return None;
    }
    let two_to_64 = 2f64.powi(64);
    let below = groups.iter().filter(|(number, _)| (*number as f64) / two_to_64 < eval_fraction).count();
    let wanted = if eval_fraction > 0.0 { below.clamp(1, groups.len() - 1) } else { 0 };
    let eval: std::collections::BTreeSet<&String> =
        groups.iter().take(wanted).map(|(_, group)| group).collect();
    Some(candidates.iter().map(|c| eval.contains(&key(c))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(n: usize) -> Vec<Candidate> {
        (0..n).map(|i| Candidate::new(&format!("dial-{i:05}"), "ROLE: x")).collect()
    }

    #[test]
    fn the_side_depends_on_the_id_alone_and_the_share_is_kept() {
        let all = held_out(&candidates(2000), 7, 0.1).expect("splits");
        let share = all.iter().filter(|e| **e).count();
        assert!((150..250).contains(&share), "{share}");
        let half = held_out(&candidates(1000), 7, 0.1).expect("splits");
        assert_eq!(half, all[..1000], "adding dialogues moves none");
        assert_ne!(held_out(&candidates(1000), 8, 0.1).expect("splits"), half);
    }

    #[test]
    fn each_side_gets_one_when_a_share_is_asked_for() {
        for n in 2..6 {
            for fraction in [0.0001, 0.5, 0.9999] {
                let eval = held_out(&candidates(n), 0, fraction).expect("splits");
                assert!(eval.contains(&true) && eval.contains(&false), "{n} {fraction} {eval:?}");
            }
            assert_eq!(held_out(&candidates(n), 0, 0.0), Some(vec![false; n]));
        }
        assert_eq!(held_out(&candidates(1), 0, 0.05), None);
        assert_eq!(held_out(&[], 0, 0.0), None);
    }

    #[test]
    fn near_duplicates_stay_together_unless_all_are_alike() {
        let brief = |n: usize| format!("ROLE: a\nCLIENT: C{n}\nKNOWN: x\n  - y\nGOAL: g\nSTYLE: s{n}");
        let twins: Vec<Candidate> =
            (0..40).map(|i| Candidate::new(&format!("d{i}"), &brief(i / 2))).collect();
        assert_eq!(twins[0].group, twins[1].group);
        assert_ne!(twins[1].group, twins[2].group);
        let eval = held_out(&twins, 1, 0.3).expect("splits");
        assert!(eval.chunks(2).all(|pair| pair[0] == pair[1]), "{eval:?}");
        let alike: Vec<Candidate> = (0..3).map(|i| Candidate::new(&format!("d{i}"), &brief(0))).collect();
        let eval = held_out(&alike, 1, 0.3).expect("splits");
        assert!(eval.contains(&true) && eval.contains(&false));
    }
}
