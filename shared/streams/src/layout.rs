//! The 17 channels of a frame: text, eight agent codebooks, eight user codebooks.

use std::ops::Range;

/// Channels of a frame.
pub const CHANNELS: usize = 17;
/// Codebooks of one audio side.
pub const CODEBOOKS: usize = 8;
/// Channel of the agent's text.
pub const TEXT: usize = 0;
/// Channels of the agent's audio, codebook 0 (semantic) first.
pub const AGENT: Range<usize> = 1..9;
/// Channels of the user's audio, codebook 0 (semantic) first.
pub const USER: Range<usize> = 9..17;

/// One column of the grid, 80 ms: `[text, agent 0..8, user 0..8]`.
pub type Frame = [i32; CHANNELS];
/// Codes of one side in one frame.
pub type Codes = [i32; CODEBOOKS];

/// A frame without any content: embeds to zero and carries no loss.
pub const EMPTY_FRAME: Frame = [-1; CHANNELS];

/// Builds a frame from its three streams.
#[must_use]
pub fn frame(text: i32, agent: &Codes, user: &Codes) -> Frame {
    let mut out = EMPTY_FRAME;
    out[TEXT] = text;
    out[AGENT].copy_from_slice(agent);
    out[USER].copy_from_slice(user);
    out
}

/// Agent codes of a frame.
#[must_use]
pub fn agent_codes(frame: &Frame) -> Codes {
    std::array::from_fn(|k| frame[AGENT.start + k])
}

/// User codes of a frame.
#[must_use]
pub fn user_codes(frame: &Frame) -> Codes {
    std::array::from_fn(|k| frame[USER.start + k])
}

/// Replaces the agent codes of a frame.
pub fn set_agent(frame: &mut Frame, codes: &Codes) {
    frame[AGENT].copy_from_slice(codes);
}

/// Replaces the user codes of a frame.
pub fn set_user(frame: &mut Frame, codes: &Codes) {
    frame[USER].copy_from_slice(codes);
}

/// A channel by name instead of number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// The agent's text.
    Text,
    /// Agent codebook 0..8.
    Agent(u8),
    /// User codebook 0..8.
    User(u8),
}

impl Channel {
    /// Channel at `index`, none above 16.
    #[must_use]
    pub fn from_index(index: usize) -> Option<Self> {
        let level = |start: usize| u8::try_from(index - start).unwrap_or(u8::MAX);
        match index {
            TEXT => Some(Self::Text),
            i if AGENT.contains(&i) => Some(Self::Agent(level(AGENT.start))),
            i if USER.contains(&i) => Some(Self::User(level(USER.start))),
            _ => None,
        }
    }

    /// Row in the grid.
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::Text => TEXT,
            Self::Agent(k) => AGENT.start + usize::from(k),
            Self::User(k) => USER.start + usize::from(k),
        }
    }

    /// Whether this is codebook 0 of a side.
    #[must_use]
    pub fn is_semantic(self) -> bool {
        matches!(self, Self::Agent(0) | Self::User(0))
    }

    /// Name used in metrics and reports: `text`, `agent_cb0`, …, `user_cb7`.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Agent(k) => format!("agent_cb{k}"),
            Self::User(k) => format!("user_cb{k}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_cover_the_frame_once() {
        let names: std::collections::BTreeSet<_> =
            (0..CHANNELS).filter_map(Channel::from_index).map(Channel::name).collect();
        assert_eq!(names.len(), CHANNELS);
        for i in 0..CHANNELS {
            assert_eq!(Channel::from_index(i).map(Channel::index), Some(i));
        }
        assert_eq!(Channel::from_index(CHANNELS), None);
    }

    #[test]
    fn a_frame_gives_back_its_streams() {
        let (agent, user) = ([1, 2, 3, 4, 5, 6, 7, 8], [9; 8]);
        let f = frame(42, &agent, &user);
        assert_eq!((f[TEXT], agent_codes(&f), user_codes(&f)), (42, agent, user));
    }
}
