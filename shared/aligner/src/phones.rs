//! Phones, triphones and the senones of their states: the file `mdef`.

use std::path::Path;

use crate::bytes::Bytes;
use crate::error::AlignerError;

/// States of a phone that emit.
pub const STATES: usize = 3;

/// A context-independent phone: index into [`Phones::names`].
pub type Phone = u8;

/// Where in its word a phone stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Position {
    /// Neither first nor last.
    Internal = 0,
    /// First.
    Begin = 1,
    /// Last.
    End = 2,
    /// First and last.
    Single = 3,
}

impl Position {
    const ALL: [Self; 4] = [Self::Internal, Self::Begin, Self::End, Self::Single];
}

/// A phone in its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Triphone {
    /// Its number in the model.
    pub id: u32,
    /// The phone itself.
    pub base: Phone,
    /// Row of `sequences`.
    pub sequence: u32,
    /// Transition matrix.
    pub transitions: u32,
}

/// Target of a leaf without a phone.
const NOTHING: u32 = u32::MAX;

struct Branch {
    context: i16,
    below: i16,
    /// Phone id when `below` is 0, first child otherwise.
    target: u32,
}

/// The model's phone inventory.
pub struct Phones {
    names: Vec<String>,
    filler: Vec<bool>,
    silence: Phone,
    tree: Vec<Branch>,
    /// `(sequence, transitions)` of every phone and triphone.
    phones: Vec<(u32, u32)>,
    sequences: Vec<[u16; STATES]>,
    senones: usize,
    codebooks: Vec<Phone>,
}

impl std::fmt::Debug for Phones {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Phones").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Phones {
    /// Reads the file.
    ///
    /// # Errors
    /// When it is missing or is no binary `mdef` of three-state phones.
    pub(crate) fn open(path: &Path) -> Result<Self, AlignerError> {
        let mut file = Bytes::open(path)?;
        if file.take(4)? != b"BMDF" {
            return Err(file.wrong("it does not begin with BMDF"));
        }
        file.expect("versions", &[1])?;
        let text = file.count()?;
        file.take(text)?;
        let [base, all, states, _, senones, matrices, sequences, _, branches, silence] = counts(&mut file)?;
        if states != STATES || base == 0 || base > 255 || silence >= base || all < base {
            return Err(
                file.wrong(format!("{base} phones of {states} states, silence {silence}, {all} in all"))
            );
        }
        let start = file.position();
        let names = (0..base).map(|_| file.text()).collect::<Result<Vec<_>, _>>()?;
        let length = (file.position() - start).next_multiple_of(4);
        file.skip_to(start + length)?;
        let tree = (0..branches).map(|_| branch(&mut file)).collect::<Result<Vec<_>, _>>()?;
        let (mut phones, mut triphone_base, mut filler) = (Vec::new(), Vec::new(), Vec::new());
        for id in 0..all {
            let (sequence, transitions) = (file.count()?, file.count()?);
            let attributes = file.take(4)?;
            let (first, second) = (attributes[0], attributes[1]);
            if sequence >= sequences || transitions >= matrices {
                return Err(file.wrong(format!("phone {id} has sequence {sequence}, matrix {transitions}")));
            }
            if id < base {
                filler.push(first != 0);
            }
            triphone_base.push(if id < base { id } else { usize::from(second) });
            phones.push((index(sequence), index(transitions)));
        }
        let values = file.count()?;
        if values != sequences * STATES {
            return Err(file.wrong(format!("{values} senones in {sequences} sequences")));
        }
        let ids = file.u16s(values)?;
        let sequences: Vec<[u16; STATES]> = ids.chunks_exact(STATES).map(|s| [s[0], s[1], s[2]]).collect();
        let codebooks = codebooks(&file, senones, base, &phones, &triphone_base, &sequences)?;
        let silence = Phone::try_from(silence).expect("below 255");
        let known = Self { names, filler, silence, tree, phones, sequences, senones, codebooks };
        known.check(&file)?;
        Ok(known)
    }

    fn check(&self, file: &Bytes) -> Result<(), AlignerError> {
        for branch in &self.tree {
            let target = branch.target as usize;
            let inside = match usize::try_from(branch.below) {
                Ok(0) => target < self.phones.len() || branch.target == NOTHING,
                Ok(below) => target + below <= self.tree.len(),
                Err(_) => false,
            };
            if !inside {
                return Err(file.wrong(format!("a tree node points to {target}, {} below", branch.below)));
            }
        }
        Ok(())
    }

    /// Names of the context-independent phones.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The phone of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Phone> {
        self.names.iter().position(|n| n == name).and_then(|i| Phone::try_from(i).ok())
    }

    /// Silence.
    #[must_use]
    pub const fn silence(&self) -> Phone {
        self.silence
    }

    /// Whether the phone is silence or noise.
    #[must_use]
    pub fn is_filler(&self, phone: Phone) -> bool {
        self.filler[usize::from(phone)]
    }

    /// Senones in all.
    #[must_use]
    pub const fn senone_count(&self) -> usize {
        self.senones
    }

    /// Phones and triphones in all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.phones.len()
    }

    /// Whether there is none; never so for a model that was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.phones.is_empty()
    }

    /// The codebook (context-independent phone) of each senone.
    #[must_use]
    pub fn codebooks(&self) -> &[Phone] {
        &self.codebooks
    }

    /// Senones of the states of a triphone.
    #[must_use]
    pub fn states(&self, triphone: Triphone) -> [u16; STATES] {
        self.sequences[triphone.sequence as usize]
    }

    /// The phone without context.
    #[must_use]
    pub fn plain(&self, base: Phone) -> Triphone {
        self.triphone_of(u32::from(base), base)
    }

    /// The phone in its context; the nearest that the model knows.
    ///
    /// Tried in this order: the position asked for, the other positions, silence as the outer context of a word's
    /// edge, the phone without context.
    #[must_use]
    pub fn triphone(&self, base: Phone, left: Phone, right: Phone, position: Position) -> Triphone {
        if self.is_filler(base) {
            return self.plain(base);
        }
        let known = |phone: Phone| if self.is_filler(phone) { self.silence } else { phone };
        let (left, right) = (known(left), known(right));
        if let Some(id) = self.any_position(base, left, right, position) {
            return self.triphone_of(id, base);
        }
        let outer_left = matches!(position, Position::Begin | Position::Single);
        let outer_right = matches!(position, Position::End | Position::Single);
        let left = if outer_left { self.silence } else { left };
        let right = if outer_right { self.silence } else { right };
        self.any_position(base, left, right, position)
            .map_or_else(|| self.plain(base), |id| self.triphone_of(id, base))
    }

    fn triphone_of(&self, id: u32, base: Phone) -> Triphone {
        let (sequence, transitions) = self.phones[id as usize];
        Triphone { id, base, sequence, transitions }
    }

    fn any_position(&self, base: Phone, left: Phone, right: Phone, position: Position) -> Option<u32> {
        self.find(base, left, right, position).or_else(|| {
            let others = Position::ALL.into_iter().filter(|p| *p != position);
            others.into_iter().find_map(|p| self.find(base, left, right, p))
        })
    }

    /// Walks the tree: position, base, left, right.
    fn find(&self, base: Phone, left: Phone, right: Phone, position: Position) -> Option<u32> {
        let path = [position as u8, base, left, right];
        let mut level = self.tree.get(..Position::ALL.len())?;
        for (depth, wanted) in path.into_iter().enumerate() {
            let branch = level.iter().find(|b| b.context == i16::from(wanted))?;
            if branch.below == 0 {
                let leaf = depth + 1 == path.len() && branch.target != NOTHING;
                return leaf.then_some(branch.target);
            }
            let (first, below) = (branch.target as usize, usize::try_from(branch.below).ok()?);
            level = self.tree.get(first..first + below)?;
        }
        None
    }
}

fn counts<const N: usize>(file: &mut Bytes) -> Result<[usize; N], AlignerError> {
    let mut counts = [0; N];
    for count in &mut counts {
        *count = file.count()?;
    }
    Ok(counts)
}

fn index(value: usize) -> u32 {
    u32::try_from(value).expect("counts were limited when read")
}

fn branch(file: &mut Bytes) -> Result<Branch, AlignerError> {
    let (context, below, target) = (file.i16()?, file.i16()?, file.i32()?);
    // A leaf of a context that never occurs has -1.
    let target = u32::try_from(target).unwrap_or(NOTHING);
    Ok(Branch { context, below, target })
}

/// The base phone of the triphones that use a senone.
fn codebooks(
    file: &Bytes,
    senones: usize,
    base: usize,
    phones: &[(u32, u32)],
    bases: &[usize],
    sequences: &[[u16; STATES]],
) -> Result<Vec<Phone>, AlignerError> {
    let mut codebooks = vec![0; senones];
    for ((sequence, _), phone) in phones.iter().zip(bases) {
        for senone in sequences[*sequence as usize] {
            let slot = codebooks
                .get_mut(usize::from(senone))
                .ok_or_else(|| file.wrong(format!("senone {senone} of {senones}")))?;
            let phone = Phone::try_from(*phone).ok().filter(|p| usize::from(*p) < base);
            *slot = phone.ok_or_else(|| file.wrong("a triphone of an unknown phone"))?;
        }
    }
    Ok(codebooks)
}
