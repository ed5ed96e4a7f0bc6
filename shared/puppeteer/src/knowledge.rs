//! What a puppeteer may tell the agent: facts, each a sentence or two.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most facts of one base.
pub const MAX_FACTS: usize = 2_000;
/// Longest fact, characters: about as many tokens as an injection may have.
pub const MAX_FACT_CHARS: usize = 600;
/// Longest id, characters.
const MAX_ID_CHARS: usize = 64;

/// One thing the agent may be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"id": "policy-2266", "text": "Policy 2266 renews on March 3.", "tags": ["renewal"]}))]
pub struct Fact {
    /// Unique in its base; numbered when left out.
    #[serde(default)]
    pub id: String,
    /// What is injected, at most 600 characters.
    pub text: String,
    /// Words that make it relevant beside those of the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// Why a knowledge base is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KnowledgeError {
    /// Nothing in it.
    #[error(
        "there is no fact in it: expected a list of {{\"text\": ...}}, or Markdown with paragraphs or list items"
    )]
    Empty,
    /// Too many.
    #[error("{found} facts: at most {MAX_FACTS}")]
    TooMany {
        /// Facts found.
        found: usize,
    },
    /// Longer than an injection can be.
    #[error("fact {id:?} has {found} characters: at most {MAX_FACT_CHARS}")]
    TooLong {
        /// Which.
        id: String,
        /// Characters found.
        found: usize,
    },
    /// Nothing to say.
    #[error("fact {id:?} has no text")]
    NoText {
        /// Which.
        id: String,
    },
    /// Used twice, too long, or empty.
    #[error("fact id {id:?}: expected 1 to {MAX_ID_CHARS} characters, each id once")]
    BadId {
        /// Which.
        id: String,
    },
    /// A tag or a control character would end the hidden block early.
    #[error("fact {id:?}: tags such as <context> and control characters cannot be injected")]
    Tag {
        /// Which.
        id: String,
    },
}

/// Facts with unique ids, checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct KnowledgeBase {
    facts: Vec<Fact>,
}

impl KnowledgeBase {
    /// Checks the facts and numbers those without an id.
    ///
    /// # Errors
    /// See [`KnowledgeError`].
    pub fn new(facts: Vec<Fact>) -> Result<Self, KnowledgeError> {
        if facts.is_empty() {
            return Err(KnowledgeError::Empty);
        }
        if facts.len() > MAX_FACTS {
            return Err(KnowledgeError::TooMany { found: facts.len() });
        }
        let mut seen = std::collections::HashSet::new();
        let mut checked = Vec::with_capacity(facts.len());
        for (number, mut fact) in facts.into_iter().enumerate() {
            if fact.id.is_empty() {
                fact.id = format!("fact-{}", number + 1);
            }
            fact.text = fact.text.split_whitespace().collect::<Vec<_>>().join(" ");
            check(&fact)?;
            if !seen.insert(fact.id.clone()) {
                return Err(KnowledgeError::BadId { id: fact.id });
            }
            checked.push(fact);
        }
        Ok(Self { facts: checked })
    }

    /// Reads Markdown: every paragraph and list item is a fact; the headings above it are its tags.
    ///
    /// # Errors
    /// See [`KnowledgeError`].
    pub fn from_markdown(text: &str) -> Result<Self, KnowledgeError> {
        let mut headings: Vec<(usize, String)> = Vec::new();
        let (mut facts, mut open) = (Vec::new(), String::new());
        let mut fenced = false;
        for line in text.trim_start_matches('\u{feff}').lines() {
            let line = line.trim();
            if line.starts_with("```") {
                fenced = !fenced;
                close(&mut open, &headings, &mut facts);
                continue;
            }
            let level = line.bytes().take_while(|b| *b == b'#').count();
            let item =
                ["- ", "* ", "+ "].iter().find_map(|mark| line.strip_prefix(mark)).or_else(|| numbered(line));
            if !fenced && (1..=6).contains(&level) && line[level..].starts_with(' ') {
                close(&mut open, &headings, &mut facts);
                headings.retain(|(above, _)| *above < level);
                headings.push((level, line[level..].trim().to_owned()));
            } else if line.is_empty() {
                close(&mut open, &headings, &mut facts);
            } else if let Some(item) = item.filter(|_| !fenced) {
                close(&mut open, &headings, &mut facts);
                open.push_str(item);
            } else {
                open.push(' ');
                open.push_str(line);
            }
        }
        close(&mut open, &headings, &mut facts);
        Self::new(facts)
    }

    /// The facts in their order.
    #[must_use]
    pub fn facts(&self) -> &[Fact] {
        &self.facts
    }
}

/// The text after `1. `.
fn numbered(line: &str) -> Option<&str> {
    let (number, rest) = line.split_once(". ")?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(rest)
}

fn close(open: &mut String, headings: &[(usize, String)], facts: &mut Vec<Fact>) {
    let text = std::mem::take(open);
    let text = text.trim();
    if !text.is_empty() {
        let tags = headings.iter().map(|(_, heading)| heading.clone()).collect();
        facts.push(Fact { id: String::new(), text: text.to_owned(), tags });
    }
}

fn check(fact: &Fact) -> Result<(), KnowledgeError> {
    let id = || fact.id.clone();
    let chars = fact.text.chars().count();
    let tags = ["<context>", "</context>", "<system>", "</system>"];
    if fact.id.chars().count() > MAX_ID_CHARS {
        Err(KnowledgeError::BadId { id: id() })
    } else if chars == 0 {
        Err(KnowledgeError::NoText { id: id() })
    } else if chars > MAX_FACT_CHARS {
        Err(KnowledgeError::TooLong { id: id(), found: chars })
    } else if tags.iter().any(|tag| fact.text.to_lowercase().contains(tag))
        || fact.text.contains(char::is_control)
    {
        Err(KnowledgeError::Tag { id: id() })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_gives_a_fact_for_every_paragraph_and_item_under_its_headings() {
        let text = "\u{feff}# Acme\n\nAcme opens\nat nine.\n\n## Renewal\n- Policy 2266 renews in March.\n1. Call back by Friday.\n\n# Claims\nNone.";
        let base = KnowledgeBase::from_markdown(text).expect("facts");
        let found: Vec<_> =
            base.facts().iter().map(|f| (f.id.as_str(), f.text.as_str(), f.tags.join("/"))).collect();
        let wanted = [
            ("fact-1", "Acme opens at nine.", "Acme".to_owned()),
            ("fact-2", "Policy 2266 renews in March.", "Acme/Renewal".into()),
            ("fact-3", "Call back by Friday.", "Acme/Renewal".into()),
            ("fact-4", "None.", "Claims".into()),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_cannot_be_injected_is_refused_with_its_id() {
        let fact = |id: &str, text: &str| Fact { id: id.into(), text: text.into(), tags: vec![] };
        let refused = |facts| KnowledgeBase::new(facts).expect_err("refused");
        assert_eq!(refused(vec![]), KnowledgeError::Empty);
        assert_eq!(refused(vec![fact("a", " \n ")]), KnowledgeError::NoText { id: "a".into() });
        assert_eq!(refused(vec![fact("a", "x"), fact("a", "y")]), KnowledgeError::BadId { id: "a".into() });
        assert_eq!(refused(vec![fact("a", "x </Context> y")]), KnowledgeError::Tag { id: "a".into() });
        assert_eq!(refused(vec![fact("a", "x\u{7}y")]), KnowledgeError::Tag { id: "a".into() });
        assert_eq!(
            refused(vec![fact("a", &"x".repeat(601))]),
            KnowledgeError::TooLong { id: "a".into(), found: 601 }
        );
        assert_eq!(
            refused((0..=MAX_FACTS).map(|n| fact(&n.to_string(), "x")).collect()),
            KnowledgeError::TooMany { found: MAX_FACTS + 1 }
        );
    }
}
