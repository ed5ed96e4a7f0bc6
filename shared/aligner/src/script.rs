//! A script as a graph of triphones: optional silences, pronunciation variants, and what a voice may do wrong.

use std::collections::HashMap;

use crate::graph::{Graph, GraphBuilder, State};
use crate::lexicon::Pronunciation;
use crate::model::AcousticModel;
use crate::phones::{Phone, Position, STATES, Triphone};

/// What a voice may do that the script does not say, with natural-log costs (speech.md 3.4).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviations {
    /// Words that may be left out in one place.
    pub skip: usize,
    /// Words that may be said again in one place.
    pub back: usize,
    /// Cost of a jump back, and of every word left out.
    pub cost: f32,
    /// Speech between words that the script lacks.
    pub insertion: Option<Insertion>,
}

/// Speech that is in no script: any sound that the model knows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Insertion {
    /// Cost of beginning one.
    pub cost: f32,
    /// Cost of every frame, compared with the best sound without context.
    pub frame_cost: f32,
    /// Shortest one, frames.
    pub frames: usize,
}

impl Default for Deviations {
    fn default() -> Self {
        let insertion = Some(Insertion { cost: 60.0, frame_cost: 4.0, frames: 12 });
        Self { skip: 4, back: 6, cost: 60.0, insertion }
    }
}

/// Column of the best phone without context, silence and noise left out.
pub(crate) const SPEECH_COLUMN: u32 = 0;
/// Column of the best phone without context, silence and noise included.
pub(crate) const ANYTHING_COLUMN: u32 = 1;
/// Column of the first senone.
pub(crate) const FIRST_SENONE: u32 = 2;

/// What a state belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// A word of the script.
    Word(usize),
    /// A pause.
    Silence,
    /// Speech that the script lacks.
    Insertion,
}

/// An emitting state of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub part: Part,
    /// Number of the phone's node; a path that enters a node anew starts a phone anew.
    pub node: u32,
    pub state: u8,
    pub triphone: Triphone,
    /// Whether the node is the first of its word.
    pub begins: bool,
}

/// A graph with the meaning of its states and columns.
#[derive(Debug)]
pub(crate) struct ScriptGraph {
    pub graph: Graph,
    pub places: Vec<Place>,
    /// Senone of every column from [`FIRST_SENONE`] on.
    pub senones: Vec<u16>,
}

/// Speech that follows on other speech without a pause, and may be followed by it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script<'a> {
    /// Pronunciations of each word, none empty.
    pub words: Vec<&'a [Pronunciation]>,
    /// Last phones of the word before the first one.
    pub before: Vec<Phone>,
}

/// A phone node.
#[derive(Clone, Copy)]
struct Node {
    states: [State; STATES],
    triphone: Triphone,
}

/// Way out of a word: its last node and the contexts it was made for.
struct Exit {
    node: Node,
    last: Phone,
    right: Phone,
}

/// Way into a word.
struct Entry {
    node: Node,
    first: Phone,
    left: Phone,
}

struct Builder<'m> {
    model: &'m AcousticModel,
    graph: GraphBuilder,
    places: Vec<Place>,
    nodes: u32,
    columns: HashMap<u16, u32>,
    senones: Vec<u16>,
}

/// Ranks of null states: ends of words, then beginnings, then the finish.
const START: u8 = 0;
const WORD_END: u8 = 1;
const WORD_START: u8 = 2;
const FINISH: u8 = 3;

pub(crate) fn build(
    model: &AcousticModel,
    script: &Script<'_>,
    deviations: Option<&Deviations>,
) -> ScriptGraph {
    let builder = Builder {
        model,
        graph: GraphBuilder::default(),
        places: Vec::new(),
        nodes: 0,
        columns: HashMap::new(),
        senones: Vec::new(),
    };
    builder.build(script, deviations)
}

fn firsts(word: &[Pronunciation]) -> Vec<Phone> {
    distinct(word.iter().filter_map(|said| said.first().copied()))
}

fn lasts(word: &[Pronunciation]) -> Vec<Phone> {
    distinct(word.iter().filter_map(|said| said.last().copied()))
}

fn distinct(phones: impl Iterator<Item = Phone>) -> Vec<Phone> {
    let mut list: Vec<Phone> = phones.collect();
    list.sort_unstable();
    list.dedup();
    list
}

impl Builder<'_> {
    fn silence(&self) -> Phone {
        self.model.phones().silence()
    }

    fn build(mut self, script: &Script<'_>, deviations: Option<&Deviations>) -> ScriptGraph {
        let (start, finish) = (self.graph.null(START), self.graph.null(FINISH));
        let silence = self.silence();
        let with_silence = |mut phones: Vec<Phone>| {
            phones.retain(|p| *p != silence);
            phones.insert(0, silence);
            phones
        };
        // Sound that goes on from a word before: its contexts come without a pause, too.
        let mut open: Vec<(State, f32, Phone, Phone)> = Vec::new();
        let first = script.words.first().map(|w| firsts(w)).unwrap_or_default();
        for last in &script.before {
            open.extend(first.iter().map(|right| (start, 0.0, *last, *right)));
        }
        let mut pause = self.pause();
        self.graph.arc(start, pause.states[0], 0.0);
        let mut quiet = vec![(start, 0.0), (pause.states[STATES - 1], self.leaving(pause.triphone))];
        let mut left = script.before.clone();
        let (mut ends, mut starts) = (Vec::new(), Vec::new());
        for (index, word) in script.words.iter().enumerate() {
            let next = script.words.get(index + 1).map(|w| firsts(w)).unwrap_or_default();
            let (entries, exits) = self.word(index, word, &with_silence(left), &with_silence(next));
            self.connect(&quiet, &open, &entries);
            pause = self.pause();
            let leave = self.leaving(pause.triphone);
            let last_of = |exit: &Exit| exit.node.states[STATES - 1];
            for exit in exits.iter().filter(|exit| exit.right == silence) {
                self.graph.arc(last_of(exit), pause.states[0], self.leaving(exit.node.triphone));
            }
            open =
                exits.iter().map(|e| (last_of(e), self.leaving(e.node.triphone), e.last, e.right)).collect();
            quiet = vec![(pause.states[STATES - 1], leave)];
            left = lasts(word);
            if deviations.is_some() {
                starts.push(self.word_start(&entries));
                let all = open.iter().map(|o| (o.0, o.1)).chain(quiet.iter().copied());
                ends.push(self.word_end(all.collect()));
            }
        }
        for (state, weight, _, right) in &open {
            if *right == silence {
                self.graph.arc(*state, finish, *weight);
            }
        }
        for (state, weight) in &quiet {
            self.graph.arc(*state, finish, *weight);
        }
        if let Some(deviations) = deviations {
            self.deviate(deviations, start, finish, &starts, &ends);
        }
        let places = self.places;
        ScriptGraph { graph: self.graph.build(start, finish), places, senones: self.senones }
    }

    /// From silence or from the word before into a word.
    fn connect(&mut self, quiet: &[(State, f32)], open: &[(State, f32, Phone, Phone)], entries: &[Entry]) {
        let silence = self.silence();
        for entry in entries {
            let to = entry.node.states[0];
            if entry.left == silence {
                for (from, weight) in quiet {
                    self.graph.arc(*from, to, *weight);
                }
            }
            for (from, weight, last, right) in open {
                if *right == entry.first && *last == entry.left {
                    self.graph.arc(*from, to, *weight);
                }
            }
        }
    }

    fn word(
        &mut self,
        index: usize,
        word: &[Pronunciation],
        left: &[Phone],
        right: &[Phone],
    ) -> (Vec<Entry>, Vec<Exit>) {
        let part = Part::Word(index);
        let (mut entries, mut exits) = (Vec::new(), Vec::new());
        for said in word {
            let (Some(&first), Some(&last)) = (said.first(), said.last()) else { continue };
            if said.len() == 1 {
                for (left, right) in left.iter().flat_map(|l| right.iter().map(move |r| (*l, *r))) {
                    let node = self.triphone(part, first, left, right, Position::Single);
                    entries.push(Entry { node, first, left });
                    exits.push(Exit { node, last, right });
                }
                continue;
            }
            let mut before: Vec<Node> = Vec::new();
            for &left in left {
                let node = self.triphone(part, first, left, said[1], Position::Begin);
                entries.push(Entry { node, first, left });
                before.push(node);
            }
            for at in said.windows(3) {
                let node = self.triphone(part, at[1], at[0], at[2], Position::Internal);
                self.follow(&before, node);
                before = vec![node];
            }
            for &right in right {
                let node = self.triphone(part, last, said[said.len() - 2], right, Position::End);
                self.follow(&before, node);
                exits.push(Exit { node, last, right });
            }
        }
        (entries, exits)
    }

    fn follow(&mut self, before: &[Node], node: Node) {
        for from in before {
            self.graph.arc(from.states[STATES - 1], node.states[0], self.leaving(from.triphone));
        }
    }

    fn triphone(&mut self, part: Part, base: Phone, left: Phone, right: Phone, position: Position) -> Node {
        let triphone = self.model.phones().triphone(base, left, right, position);
        self.node(part, triphone, matches!(position, Position::Begin | Position::Single))
    }

    fn pause(&mut self) -> Node {
        let triphone = self.model.phones().plain(self.silence());
        self.node(Part::Silence, triphone, false)
    }

    /// Logarithm of the probability to leave the last state.
    fn leaving(&self, triphone: Triphone) -> f32 {
        self.model.transitions(triphone.transitions)[STATES - 1][STATES]
    }

    fn node(&mut self, part: Part, triphone: Triphone, begins: bool) -> Node {
        let senones = self.model.phones().states(triphone);
        let mut states = [State::Emitting(0); STATES];
        for ((state, senone), number) in states.iter_mut().zip(senones).zip(0u8..) {
            let next =
                FIRST_SENONE + u32::try_from(self.senones.len()).expect("a model has 65,536 senones at most");
            let column = *self.columns.entry(senone).or_insert_with(|| {
                self.senones.push(senone);
                next
            });
            *state = self.graph.state(column);
            self.places.push(Place { part, node: self.nodes, state: number, triphone, begins });
        }
        let matrix = *self.model.transitions(triphone.transitions);
        for (from, row) in matrix.iter().enumerate() {
            for to in from..STATES {
                self.graph.arc(states[from], states[to], row[to]);
            }
        }
        self.nodes += 1;
        Node { states, triphone }
    }

    fn word_start(&mut self, entries: &[Entry]) -> State {
        let null = self.graph.null(WORD_START);
        for entry in entries {
            self.graph.arc(null, entry.node.states[0], 0.0);
        }
        null
    }

    fn word_end(&mut self, ways: Vec<(State, f32)>) -> State {
        let null = self.graph.null(WORD_END);
        for (from, weight) in ways {
            self.graph.arc(from, null, weight);
        }
        null
    }

    /// Arcs over words, back to words, and speech between them.
    fn deviate(&mut self, may: &Deviations, start: State, finish: State, starts: &[State], ends: &[State]) {
        let over = |words: usize| -may.cost * f32::from(u8::try_from(words).unwrap_or(u8::MAX));
        for skipped in 1..=may.skip.min(starts.len().saturating_sub(1)) {
            self.graph.arc(start, starts[skipped], over(skipped));
            self.graph.arc(ends[starts.len() - 1 - skipped], finish, over(skipped));
        }
        for (index, end) in ends.iter().enumerate() {
            for skipped in 1..=may.skip {
                if let Some(to) = starts.get(index + 1 + skipped) {
                    self.graph.arc(*end, *to, over(skipped));
                }
            }
            for to in &starts[index.saturating_sub(may.back)..=index] {
                self.graph.arc(*end, *to, -may.cost);
            }
        }
        let Some(insertion) = may.insertion else { return };
        let gaps = std::iter::once(start).chain(ends.iter().copied()).collect::<Vec<_>>();
        for (index, from) in gaps.into_iter().enumerate() {
            let mut last = from;
            let triphone = self.model.phones().plain(self.silence());
            for frame in 0..insertion.frames.max(1) {
                let state = self.graph.state(SPEECH_COLUMN);
                let node = self.nodes;
                self.places.push(Place {
                    part: Part::Insertion,
                    node,
                    state: 0,
                    triphone,
                    begins: frame == 0,
                });
                let begin = if frame == 0 { insertion.cost } else { 0.0 };
                self.graph.arc(last, state, -insertion.frame_cost - begin);
                last = state;
            }
            self.nodes += 1;
            self.graph.arc(last, last, -insertion.frame_cost);
            let pause = self.pause();
            self.graph.arc(last, pause.states[0], 0.0);
            let leave = self.leaving(pause.triphone);
            let next = starts.get(index).copied().unwrap_or(finish);
            self.graph.arc(last, next, 0.0);
            self.graph.arc(pause.states[STATES - 1], next, leave);
        }
    }
}
