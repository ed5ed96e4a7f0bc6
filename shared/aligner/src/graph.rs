//! What may follow what: states with emissions, null states between them, and the exact best path through them.
//!
//! The graph knows nothing of words: scripts, lattices and CTC labels are all built from it.

/// Logarithm of an impossible thing.
pub const NEVER: f64 = f64::NEG_INFINITY;

/// A state while a graph is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Takes one frame at a time.
    Emitting(u32),
    /// Takes no time.
    Null(u32),
}

/// Collects states and arcs.
#[derive(Debug, Default)]
pub struct GraphBuilder {
    emissions: Vec<u32>,
    /// Rank of every null state.
    ranks: Vec<u8>,
    arcs: Vec<(State, State, f32)>,
}

impl GraphBuilder {
    /// A state that scores with this column of the emissions.
    pub fn state(&mut self, column: u32) -> State {
        self.emissions.push(column);
        State::Emitting(id(self.emissions.len() - 1))
    }

    /// A state without time. Arcs between null states lead to a higher rank.
    pub fn null(&mut self, rank: u8) -> State {
        self.ranks.push(rank);
        State::Null(id(self.ranks.len() - 1))
    }

    /// An arc with its natural-log probability; impossible ones are left out.
    ///
    /// # Panics
    /// When null states are joined against their ranks.
    pub fn arc(&mut self, from: State, to: State, weight: f32) {
        if let (State::Null(a), State::Null(b)) = (from, to) {
            assert!(self.ranks[a as usize] < self.ranks[b as usize], "null arcs lead to a higher rank");
        }
        if weight > f32::NEG_INFINITY {
            self.arcs.push((from, to, weight));
        }
    }

    /// Sorts the arcs by target. Emitting states keep their numbers.
    #[must_use]
    pub fn build(self, start: State, finish: State) -> Graph {
        let emitting = self.emissions.len();
        let mut order: Vec<usize> = (0..self.ranks.len()).collect();
        order.sort_by_key(|i| self.ranks[*i]);
        let mut place = vec![0; order.len()];
        for (position, null) in order.iter().enumerate() {
            place[*null] = id(emitting + position);
        }
        let number = |state: State| match state {
            State::Emitting(i) => i,
            State::Null(i) => place[i as usize],
        };
        let mut arcs: Vec<(u32, Arc)> = self
            .arcs
            .iter()
            .map(|(from, to, weight)| (number(*to), Arc { from: number(*from), weight: *weight }))
            .collect();
        // Stable: of equal paths the arc that was added first wins.
        arcs.sort_by_key(|(to, _)| *to);
        let mut first = vec![0; emitting + order.len() + 1];
        for (to, _) in &arcs {
            first[*to as usize + 1] += 1;
        }
        for i in 1..first.len() {
            first[i] += first[i - 1];
        }
        Graph {
            emissions: self.emissions,
            first,
            arcs: arcs.into_iter().map(|(_, arc)| arc).collect(),
            start: number(start),
            finish: number(finish),
        }
    }
}

fn id(index: usize) -> u32 {
    u32::try_from(index).expect("graphs are built for at most some minutes of sound")
}

#[derive(Debug, Clone, Copy)]
struct Arc {
    from: u32,
    weight: f32,
}

/// A finished graph.
#[derive(Debug)]
pub struct Graph {
    emissions: Vec<u32>,
    /// Arcs into state `s` are `first[s]..first[s + 1]`.
    first: Vec<u32>,
    arcs: Vec<Arc>,
    start: u32,
    finish: u32,
}

/// Where a path may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// In the finish state.
    Finish,
    /// Anywhere: the sound goes on after the last frame.
    Open,
}

/// A best path.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// Emitting state of every frame.
    pub states: Vec<u32>,
    /// Its natural-log score.
    pub score: f64,
}

/// Scores per frame.
pub trait Emissions {
    /// Number of frames.
    fn frames(&self) -> usize;
    /// Values of a frame.
    fn width(&self) -> usize;
    /// Calls `each` for every frame in order with its row.
    fn for_each(&self, each: &mut dyn FnMut(usize, &[f32]));
}

/// Arc that led to a state, or none.
type Back = u16;
const NO_ARC: Back = Back::MAX;

impl Graph {
    /// Emitting states.
    #[must_use]
    pub fn emitting(&self) -> usize {
        self.emissions.len()
    }

    /// Column with which an emitting state scores.
    #[must_use]
    pub fn column(&self, state: u32) -> usize {
        self.emissions[state as usize] as usize
    }

    /// The best path; the first of equal ones. `None` when no path has as many frames.
    ///
    /// Memory: two bytes per state and frame.
    #[must_use]
    pub fn best_path(&self, emissions: &dyn Emissions, ending: Ending) -> Option<Path> {
        let (states, frames) = (self.first.len() - 1, emissions.frames());
        let emitting = self.emitting();
        let mut back = vec![NO_ARC; states * (frames + 1)];
        let mut before = vec![NEVER; states];
        let mut now = before.clone();
        before[self.start as usize] = 0.0;
        self.settle_nulls(&mut before, &mut back[..states]);
        emissions.for_each(&mut |frame, row| {
            let back = &mut back[(frame + 1) * states..(frame + 2) * states];
            for state in 0..emitting {
                let (score, arc) = self.best_arc(state, &before);
                now[state] = score + f64::from(row[self.emissions[state] as usize]);
                back[state] = arc;
            }
            now[emitting..].fill(NEVER);
            self.settle_nulls(&mut now, back);
            std::mem::swap(&mut now, &mut before);
        });
        let last = match ending {
            Ending::Finish => self.finish as usize,
            Ending::Open => {
                let best = |a: &usize, b: &usize| before[*a].total_cmp(&before[*b]).then(b.cmp(a));
                (0..states).max_by(best)?
            }
        };
        (before[last] > NEVER).then(|| Path { states: self.trace(&back, frames, last), score: before[last] })
    }

    #[inline]
    fn best_arc(&self, state: usize, scores: &[f64]) -> (f64, Back) {
        let (from, to) = (self.first[state] as usize, self.first[state + 1] as usize);
        let (mut best, mut winner) = (NEVER, NO_ARC);
        for (number, arc) in (0..).zip(&self.arcs[from..to]) {
            let score = scores[arc.from as usize] + f64::from(arc.weight);
            if score > best {
                (best, winner) = (score, number);
            }
        }
        (best, winner)
    }

    /// Null states in their order; the start keeps its score.
    fn settle_nulls(&self, scores: &mut [f64], back: &mut [Back]) {
        for state in self.emitting()..scores.len() {
            let (score, arc) = self.best_arc(state, scores);
            if score > scores[state] {
                scores[state] = score;
                back[state] = arc;
            }
        }
    }

    fn trace(&self, back: &[Back], frames: usize, last: usize) -> Vec<u32> {
        let states = self.first.len() - 1;
        let (mut path, mut state, mut frame) = (Vec::with_capacity(frames), last, frames);
        loop {
            let arc = back[frame * states + state];
            if arc == NO_ARC {
                break;
            }
            if state < self.emitting() {
                path.push(id(state));
                frame -= 1;
            }
            state = self.arcs[self.first[state] as usize + usize::from(arc)].from as usize;
        }
        path.reverse();
        path
    }
}

/// Rows in memory.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// Values row by row.
    pub values: &'a [f32],
    /// Values of a row; not 0.
    pub width: usize,
}

impl Emissions for Rows<'_> {
    fn frames(&self) -> usize {
        self.values.len() / self.width
    }

    fn width(&self) -> usize {
        self.width
    }

    fn for_each(&self, each: &mut dyn FnMut(usize, &[f32])) {
        self.values.chunks_exact(self.width).enumerate().for_each(|(frame, row)| each(frame, row));
    }
}
