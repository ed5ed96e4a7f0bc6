//! Pronunciation from spelling: rules learned from the dictionary when the first unknown word comes.
//!
//! Each letter of a known word is matched with no, one or two of its phones (most likely segmentation, a few rounds of
//! counting). A rule maps a letter in a context of up to three letters on either side to such a piece; the widest
//! context that was seen decides.

use crate::lexicon::Pronunciation;
use crate::phones::Phone;

/// Rounds of matching letters with phones.
const ROUNDS: usize = 4;
/// Letters a to z, and the edge of a word.
const SYMBOLS: usize = 27;
const EDGE: u8 = 26;
/// Neighbours in the order in which a context grows, as offsets from the letter.
const GROWTH: [isize; 6] = [1, -1, 2, -2, 3, -3];
/// Choices of a context that are kept.
const CHOICES: usize = 2;

/// Phones of one letter: 0 none, `1 + a` one, `1 + a + (1 + b) * (phones + 1)` two.
type Piece = u16;

#[derive(Debug, Clone, Copy)]
struct Rule {
    context: u64,
    choices: [Piece; CHOICES],
    /// Share of the first choice.
    certainty: f32,
}

/// Rules for every width of context, sorted by context.
#[derive(Debug)]
pub(crate) struct SpellingRules {
    levels: Vec<Vec<Rule>>,
    base: u16,
}

/// A word as symbols, with the phones it is said with.
struct Pair {
    letters: Vec<u8>,
    phones: Vec<Phone>,
}

impl SpellingRules {
    /// Learns from words with their pronunciations; entries that are no plain words are passed over.
    pub(crate) fn learn<'a>(words: impl Iterator<Item = (&'a str, &'a [Phone])>, phones: usize) -> Self {
        let base = u16::try_from(phones + 1).expect("a phone is a byte");
        let mut pairs: Vec<Pair> = words
            .filter(|(word, said)| {
                word.bytes().all(|b| b.is_ascii_lowercase()) && said.len() <= 2 * word.len() && word.len() > 1
            })
            .map(|(word, said)| Pair { letters: symbols(word), phones: said.to_vec() })
            .collect();
        // The dictionary is a hash map: its order must not decide between equal counts.
        pairs.sort_by(|a, b| (&a.letters, &a.phones).cmp(&(&b.letters, &b.phones)));
        let mut costs = first_costs(&pairs, base);
        let mut pieces = Vec::new();
        for _ in 0..ROUNDS {
            pieces = pairs.iter().map(|pair| segment(pair, &costs, base)).collect();
            costs = counted(&pairs, &pieces, base);
        }
        let levels = (0..=GROWTH.len()).map(|width| rules(&pairs, &pieces, width)).collect();
        Self { levels, base }
    }

    /// The most likely pronunciation first, then those with one doubtful letter read otherwise. Empty when nothing can
    /// be said.
    pub(crate) fn pronounce(&self, letters: &str) -> Vec<Pronunciation> {
        let letters: String = letters.chars().filter(char::is_ascii_lowercase).collect();
        let letters = symbols(&letters);
        let rules: Vec<&Rule> = (0..letters.len()).filter_map(|i| self.rule(&letters, i)).collect();
        let mut doubtful: Vec<usize> = (0..rules.len()).collect();
        doubtful.sort_by(|a, b| rules[*a].certainty.total_cmp(&rules[*b].certainty));
        doubtful.retain(|i| rules[*i].choices[1] != rules[*i].choices[0]);
        let read = |other: Option<usize>| -> Pronunciation {
            rules
                .iter()
                .enumerate()
                .flat_map(|(i, rule)| self.phones_of(rule.choices[usize::from(other == Some(i))]))
                .collect()
        };
        let mut said = vec![read(None)];
        said.extend(doubtful.into_iter().take(2).map(|i| read(Some(i))));
        said.retain(|one| !one.is_empty());
        said
    }

    fn rule(&self, letters: &[u8], at: usize) -> Option<&Rule> {
        (0..self.levels.len()).rev().find_map(|width| {
            let context = context(letters, at, width);
            let level = &self.levels[width];
            level.binary_search_by_key(&context, |rule| rule.context).ok().map(|i| &level[i])
        })
    }

    fn phones_of(&self, piece: Piece) -> impl Iterator<Item = Phone> + use<> {
        [piece % self.base, piece / self.base]
            .into_iter()
            .filter_map(|p| p.checked_sub(1).and_then(|p| Phone::try_from(p).ok()))
    }
}

fn symbols(word: &str) -> Vec<u8> {
    word.bytes().map(|b| b - b'a').collect()
}

fn one(phone: Phone) -> Piece {
    1 + Piece::from(phone)
}

fn two(phones: [Phone; 2], base: u16) -> Piece {
    one(phones[0]) + one(phones[1]) * base
}

/// The letter and its nearest `width` neighbours in five bits each.
fn context(letters: &[u8], at: usize, width: usize) -> u64 {
    GROWTH[..width].iter().fold(u64::from(letters[at]), |context, shift| {
        let near = at.checked_add_signed(*shift).and_then(|i| letters.get(i)).copied().unwrap_or(EDGE);
        context << 5 | u64::from(near)
    })
}

/// Costs `[letter][piece]` from which letters and phones stand at similar places.
fn first_costs(pairs: &[Pair], base: u16) -> Vec<f32> {
    let mut counts = vec![0.01f32; SYMBOLS * usize::from(base)];
    for pair in pairs {
        let (letters, phones) = (pair.letters.len(), pair.phones.len());
        for (i, letter) in pair.letters.iter().enumerate() {
            for (j, phone) in pair.phones.iter().enumerate() {
                // |i / letters - j / phones| at most a letter's width.
                if (i * phones).abs_diff(j * letters) <= phones {
                    counts[usize::from(*letter) * usize::from(base) + usize::from(one(*phone))] += 1.0;
                }
            }
        }
    }
    let pieces = usize::from(base) * usize::from(base);
    let mut costs = vec![0.0; SYMBOLS * pieces];
    for letter in 0..SYMBOLS {
        let row = &counts[letter * usize::from(base)..(letter + 1) * usize::from(base)];
        let total: f32 = row.iter().sum();
        let cost = |piece: usize| -(row[piece] / total).ln();
        let own = &mut costs[letter * pieces..(letter + 1) * pieces];
        for (piece, slot) in own.iter_mut().enumerate() {
            let (a, b) = (piece % usize::from(base), piece / usize::from(base));
            *slot = match (a, b) {
                (0, 0) => 3.0,
                (a, 0) => cost(a),
                (a, b) => cost(a) + cost(b) + 2.0,
            };
        }
    }
    costs
}

/// Costs from the pieces that were found.
#[expect(clippy::cast_precision_loss, reason = "counts are below a million")]
fn counted(pairs: &[Pair], pieces: &[Vec<Piece>], base: u16) -> Vec<f32> {
    let width = usize::from(base) * usize::from(base);
    let mut counts = vec![0u32; SYMBOLS * width];
    for (letter, piece) in pairs.iter().zip(pieces).flat_map(|(pair, pieces)| pair.letters.iter().zip(pieces))
    {
        counts[usize::from(*letter) * width + usize::from(*piece)] += 1;
    }
    counts
        .chunks(width)
        .flat_map(|row| {
            let total = row.iter().sum::<u32>() as f32 + 1.0;
            row.iter().map(move |count| -((*count as f32 + 0.001) / total).ln())
        })
        .collect()
}

/// Cheapest way to give each letter its phones.
fn segment(pair: &Pair, costs: &[f32], base: u16) -> Vec<Piece> {
    let width = usize::from(base) * usize::from(base);
    let (letters, phones) = (&pair.letters, &pair.phones);
    let columns = phones.len() + 1;
    let mut best = vec![f32::INFINITY; (letters.len() + 1) * columns];
    let mut taken = vec![0u8; best.len()];
    best[0] = 0.0;
    for (i, letter) in letters.iter().enumerate() {
        let row = &costs[usize::from(*letter) * width..(usize::from(*letter) + 1) * width];
        for j in 0..columns {
            let so_far = best[i * columns + j];
            if so_far == f32::INFINITY {
                continue;
            }
            for take in 0..=2usize.min(phones.len() - j) {
                let piece = piece(&phones[j..j + take], base);
                let cost = so_far + row[usize::from(piece)];
                let to = (i + 1) * columns + j + take;
                if cost < best[to] {
                    best[to] = cost;
                    taken[to] = u8::try_from(take).expect("at most two");
                }
            }
        }
    }
    let mut pieces = vec![0; letters.len()];
    let mut j = phones.len();
    for i in (0..letters.len()).rev() {
        let take = usize::from(taken[(i + 1) * columns + j]);
        pieces[i] = piece(&phones[j - take..j], base);
        j -= take;
    }
    pieces
}

fn piece(phones: &[Phone], base: u16) -> Piece {
    match phones {
        [a] => one(*a),
        [a, b, ..] => two([*a, *b], base),
        [] => 0,
    }
}

/// The most frequent pieces of every context of one width.
#[expect(clippy::cast_precision_loss, reason = "counts are below a million")]
fn rules(pairs: &[Pair], pieces: &[Vec<Piece>], width: usize) -> Vec<Rule> {
    let mut seen: Vec<(u64, Piece)> = Vec::new();
    for (pair, pieces) in pairs.iter().zip(pieces) {
        seen.extend(pieces.iter().enumerate().map(|(i, piece)| (context(&pair.letters, i, width), *piece)));
    }
    seen.sort_unstable();
    let mut rules = Vec::new();
    for group in seen.chunk_by(|a, b| a.0 == b.0) {
        let mut counts: Vec<(usize, Piece)> =
            group.chunk_by(|a, b| a.1 == b.1).map(|same| (same.len(), same[0].1)).collect();
        counts.sort_by_key(|c| std::cmp::Reverse(c.0));
        let (most, first) = counts[0];
        let second = counts.get(1).map_or(first, |c| c.1);
        let certainty = most as f32 / group.len() as f32;
        rules.push(Rule { context: group[0].0, choices: [first, second], certainty });
    }
    rules
}
