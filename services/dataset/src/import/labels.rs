//! Who a label means.

use domain::dialogue::Speaker;

/// Labels that published data use for the model's speaker, in the order in which they are looked for.
pub const AGENT_LABELS: [&str; 6] =
    ["SPEAKER_BROKER", "SPEAKER_MAIN", "MODEL", "SPEAKER_AGENT", "AGENT", "BROKER"];
const USER_LABELS: [&str; 6] =
    ["SPEAKER_CLIENT", "USER", "SPEAKER_HUMAN", "SPEAKER_USER", "CLIENT", "SPEAKER_OTHER"];

/// Speaker of a label in a record or of a turn; `main` is the agent's label when it is known.
#[must_use]
pub fn speaker_of(label: &str, main: Option<&str>) -> Option<Speaker> {
    let plain = label.trim();
    if main.is_some_and(|main| main == plain) {
        return Some(Speaker::Agent);
    }
    let upper = plain.to_ascii_uppercase();
    if main.is_none() && AGENT_LABELS.contains(&upper.as_str()) {
        return Some(Speaker::Agent);
    }
    if USER_LABELS.contains(&upper.as_str()) {
        return Some(Speaker::User);
    }
    // A label that is not the named main one belongs to the other side, as the reference reads it.
    main.map(|_| Speaker::User)
}

/// The agent's label among those that occur.
#[must_use]
pub fn find_main<'l>(labels: &[&'l str]) -> Option<&'l str> {
    AGENT_LABELS.iter().find_map(|known| labels.iter().find(|l| l.trim() == *known).copied())
}

/// `A (120), B (98)`
#[must_use]
pub fn count(labels: &[&str]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for label in labels {
        match counts.iter_mut().find(|(name, _)| name == label) {
            Some((_, n)) => *n += 1,
            None => counts.push((label, 1)),
        }
    }
    let text: Vec<String> = counts.iter().map(|(name, n)| format!("{name} ({n})")).collect();
    if text.is_empty() { "none".into() } else { text.join(", ") }
}
