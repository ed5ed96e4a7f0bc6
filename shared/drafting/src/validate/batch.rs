//! Rules about several records at once: likeness (V10), and how a batch meets its targets (warnings).

use std::collections::{BTreeMap, HashMap, HashSet};

use domain::dialogue::{DialogueRecord, FaultCode, RecordFault};
use domain::injection::Placement;
use domain::pack::{DomainPack, OUTCOME_AXIS};
use sha2::{Digest, Sha256};

use super::placement_of;
use crate::brief;

/// Words of a shingle.
const SHINGLE: usize = 5;
/// Share of common shingles from which two records are the same dialogue again.
pub const MAX_LIKENESS: f64 = 0.5;
/// Distance of the share of proactive injections from its target that is worth a warning.
const SHARE_TOLERANCE: f64 = 0.15;
/// Share of the records that may have a client of one name.
const NAME_SHARE: f64 = 0.02;
/// Records from which shares mean anything.
const MIN_RECORDS: usize = 50;

/// Accepted records, found by the runs of words that they share with another.
#[derive(Debug, Default)]
pub struct Likeness {
    ids: Vec<(String, usize)>,
    /// Hash of a shingle to the records that have it.
    holders: HashMap<u64, Vec<usize>>,
}

impl Likeness {
    /// V10: the accepted record that shares half of its runs of five words or more (Jaccard), if there is one.
    #[must_use]
    pub fn fault(&self, record: &DialogueRecord) -> Option<RecordFault> {
        let own = shingles(record);
        let mut common: HashMap<usize, usize> = HashMap::new();
        for holder in own.iter().filter_map(|s| self.holders.get(s)).flatten() {
            *common.entry(*holder).or_default() += 1;
        }
        let likeness = |(holder, shared): (usize, usize)| {
            let (id, size) = &self.ids[holder];
            let union = own.len() + size - shared;
            (shared as f64 / union.max(1) as f64, id)
        };
        let (share, id) = common
            .into_iter()
            .map(likeness)
            .filter(|(_, id)| **id != record.id)
            .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)))?;
        let detail = || format!("shares {:.0}% of its runs of {SHINGLE} words with {id}", share * 100.0);
        (share >= MAX_LIKENESS).then(|| RecordFault { code: FaultCode::V10, detail: detail() })
    }

    /// Adds an accepted record.
    pub fn add(&mut self, record: &DialogueRecord) {
        let own = shingles(record);
        let number = self.ids.len();
        self.ids.push((record.id.clone(), own.len()));
        for shingle in own {
            self.holders.entry(shingle).or_default().push(number);
        }
    }
}

/// Hashes of the runs of five words, case and punctuation left out; a shorter text is one run.
fn shingles(record: &DialogueRecord) -> HashSet<u64> {
    let words: Vec<String> = record
        .turns
        .iter()
        .flat_map(|t| t.text.split(|c: char| !c.is_alphanumeric()))
        .filter(|w| !w.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.windows(SHINGLE.min(words.len()).max(1)).map(|run| hash(&run.join(" "))).collect()
}

/// Hashes do not differ from one process to the next: a second attempt decides the same.
fn hash(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).fold(0, |all, byte| (all << 8) | u64::from(*byte))
}

/// Hashes of a signature.
const SIGNATURE: usize = 64;
/// Hashes that the signatures of two records have in common when they are alike; two that share half of their runs have
/// about 43, and fewer than this in less than one case of a million.
pub const COMMON_HASHES: usize = 16;

/// The smallest hashes of a record's runs of words: two records that are alike have many of them in common.
#[must_use]
pub fn signature(record: &DialogueRecord) -> Vec<i64> {
    let mut hashes: Vec<i64> = shingles(record).into_iter().map(u64::cast_signed).collect();
    hashes.sort_unstable();
    hashes.truncate(SIGNATURE);
    hashes
}

/// What a second pair of eyes says about the outcome (V09, a warning): `judged` is the level that it named.
#[must_use]
pub fn outcome_fault(record: &DialogueRecord, judged: &str) -> Option<RecordFault> {
    let wanted = record.seed.get(OUTCOME_AXIS)?;
    (wanted != judged).then(|| RecordFault {
        code: FaultCode::V09,
        detail: format!("the outcome was to be {wanted:?}; the judge reads {judged:?}"),
    })
}

/// What a batch of records misses of its targets; none of it concerns one record alone, so none is rejected for it.
#[must_use]
pub fn warnings(pack: &DomainPack, records: &[DialogueRecord]) -> Vec<RecordFault> {
    let mut found = Vec::new();
    let placements: Vec<Placement> = records
        .iter()
        .flat_map(|r| r.context_injections.iter().filter_map(|i| placement_of(r, i.after_turn)))
        .collect();
    let proactive = placements.iter().filter(|p| **p == Placement::Proactive).count();
    let share = proactive as f64 / placements.len().max(1) as f64;
    let target = pack.injections.proactive_share;
    if placements.len() >= MIN_RECORDS && (share - target).abs() > SHARE_TOLERANCE {
        let detail =
            format!("{:.0}% of the injections are proactive; wanted {:.0}%", share * 100.0, target * 100.0);
        found.push(RecordFault { code: FaultCode::V06, detail });
    }
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for name in records.iter().filter_map(client_name) {
        *names.entry(name).or_default() += 1;
    }
    for (name, count) in names {
        if records.len() >= MIN_RECORDS && count as f64 > (NAME_SHARE * records.len() as f64).max(3.0) {
            let detail = format!("{count} of {} records have a client of the name {name:?}", records.len());
            found.push(RecordFault { code: FaultCode::V11, detail });
        }
    }
    found
}

/// The client's name: the first two words of the CLIENT line.
#[must_use]
pub fn client_name(record: &DialogueRecord) -> Option<String> {
    let lines = brief::parse(&record.text_prompt)?;
    let (_, body) = lines.into_iter().find(|(label, _)| *label == "CLIENT")?;
    let words: Vec<&str> = body.split([' ', ',']).filter(|w| !w.is_empty()).take(2).collect();
    (words.len() == 2).then(|| words.join(" "))
}

#[cfg(test)]
mod tests;
