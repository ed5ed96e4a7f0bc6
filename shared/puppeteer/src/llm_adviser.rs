//! A language model that reads the conversation and chooses what the agent should know.

use std::fmt::Write as _;
use std::time::Duration;

use async_trait::async_trait;
use llm::{ChatRequest, Client, LlmError, ProviderSettings, Tool};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::advise::{Adviser, Consultation, Knowledge};
use crate::director::Advice;
use crate::knowledge::{Fact, KnowledgeBase};

/// Name of the tool that carries the answer.
const TOOL: &str = "inject";

const SYSTEM: &str = "You coach the agent of a live phone call through a hidden channel. You see the end of the \
conversation and facts that the agent does not know. Decide whether one of them, or two that belong together, would help \
the agent in its next turn. Say nothing when none is asked for or close to what is being talked about, when the agent was \
told already, or when the conversation is only small talk. What you inject is read by the agent before it speaks: one or \
two short plain sentences, only what the facts say, no advice of your own, no tags, no quotation marks.";

/// `[puppeteer.advice]`: the model that is asked; without one, sessions cannot ask for the mode `llm`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdviceSettings {
    /// Model id as the provider names it; empty = none.
    pub model: String,
    /// Most tokens of an answer.
    pub max_tokens: u32,
    /// Where it is asked.
    pub provider: ProviderSettings,
}

/// Asks a language model.
pub struct LanguageModel {
    client: Client,
    model: String,
    max_tokens: u32,
    deadline: Duration,
    knowledge: Knowledge,
}

/// What the tool is called with.
#[derive(Deserialize)]
struct Call {
    #[serde(default)]
    text: String,
    #[serde(default)]
    facts: Vec<String>,
    #[serde(default)]
    reason: String,
}

impl LanguageModel {
    /// Over what it may say; an answer is waited for as long as `deadline`.
    #[must_use]
    pub fn new(client: Client, settings: &AdviceSettings, deadline: Duration, knowledge: Knowledge) -> Self {
        let (model, max_tokens) = (settings.model.clone(), settings.max_tokens);
        Self { client, model, max_tokens, deadline, knowledge }
    }

    fn request(&self, consultation: &Consultation, facts: &[(String, String, f64)]) -> ChatRequest {
        let mut text = String::new();
        if let Some(instructions) = consultation.instructions.as_deref().filter(|i| !i.trim().is_empty()) {
            let _ = writeln!(text, "WHAT THE OWNER WANTS\n{}\n", instructions.trim());
        }
        let _ = writeln!(text, "FACTS");
        for (id, fact, _) in facts {
            let _ = writeln!(text, "[{id}] {fact}");
        }
        if !consultation.told.is_empty() {
            let _ = writeln!(text, "\nTOLD ALREADY");
            for told in &consultation.told {
                let _ = writeln!(text, "- {told}");
            }
        }
        let _ = write!(text, "\nCONVERSATION\n{}", consultation.look.said);
        ChatRequest {
            cache_system: true,
            tool: Some(tool()),
            temperature: Some(0.0),
            stream: false,
            ..ChatRequest::text(&self.model, SYSTEM, text, self.max_tokens)
        }
    }
}

fn tool() -> Tool {
    Tool {
        name: TOOL.into(),
        description: "Tells what the agent should know now; an empty text tells it nothing.".into(),
        schema: json!({
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "What the agent is told; empty for nothing."},
                "facts": {"type": "array", "items": {"type": "string"}, "description": "Ids of the facts in it."},
                "reason": {"type": "string", "description": "Why, in at most ten words, without names or numbers."}
            },
            "required": ["text", "facts", "reason"],
            "additionalProperties": false
        }),
    }
}

#[async_trait]
impl Adviser for LanguageModel {
    async fn advise(&self, consultation: &Consultation) -> Result<Advice, String> {
        let facts = self.knowledge.candidates(consultation).await?;
        if facts.is_empty() {
            return Ok(Advice { reason: "no fact is near".into(), ..Advice::default() });
        }
        let request = self.request(consultation, &facts);
        let answer = self.client.complete(&request, self.deadline).await.map_err(|e| line(&e))?;
        advice(answer.tool.ok_or("the model did not answer with the tool")?, &facts)
    }
}

/// The kind of an error; its text may repeat what was sent.
fn line(error: &LlmError) -> String {
    format!("the model failed: {:?}", error.kind).to_lowercase()
}

/// Takes only what may be injected, and only facts that were offered.
fn advice(call: Value, offered: &[(String, String, f64)]) -> Result<Advice, String> {
    let mut call: Call =
        serde_json::from_value(call).map_err(|_| "the model's answer has another shape".to_owned())?;
    call.facts.retain(|id| offered.iter().any(|(known, ..)| known == id));
    let reason = call.reason.chars().filter(|c| !c.is_control()).take(80).collect();
    if call.text.trim().is_empty() {
        return Ok(Advice { reason, ..Advice::default() });
    }
    if call.facts.is_empty() {
        return Err("the model used no fact that it was given".into());
    }
    // The same rules as for a stored fact.
    let fact = Fact { id: TOOL.into(), text: call.text, tags: Vec::new() };
    let checked = KnowledgeBase::new(vec![fact]).map_err(|error| format!("the model's text: {error}"))?;
    Ok(Advice { text: checked.facts()[0].text.clone(), facts: call.facts, reason })
}
