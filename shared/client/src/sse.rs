//! Server-sent events, cut from bytes as they come.

/// One event of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The `id` field, if it came with this event.
    pub id: Option<String>,
    /// The `event` field; empty means `message`.
    pub event: String,
    /// The `data` lines, joined by newlines.
    pub data: String,
}

/// Collects bytes into events; lines may be cut anywhere, also inside a character.
#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    after_cr: bool,
    current: SseEvent,
    has_data: bool,
}

impl SseParser {
    /// Events that `bytes` complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<SseEvent> {
        let mut events = Vec::new();
        for &byte in bytes {
            let after_cr = std::mem::take(&mut self.after_cr);
            match byte {
                b'\n' if after_cr => {}
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    events.extend(self.end_line(&String::from_utf8_lossy(&line)));
                }
                other => self.line.push(other),
            }
        }
        events
    }

    fn end_line(&mut self, line: &str) -> Option<SseEvent> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.current);
            let complete = std::mem::take(&mut self.has_data) || !event.event.is_empty();
            return complete.then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.current.id = Some(value.to_owned()),
            "event" => self.current.event = value.to_owned(),
            "data" => {
                if self.has_data {
                    self.current.data.push('\n');
                }
                self.current.data.push_str(value);
                self.has_data = true;
            }
            // Comments (empty field), retry and what is not known.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_for_every_cut_and_line_ending() {
        let text =
            ": heartbeat\n\nid: 1\nevent: job.progress\ndata: {\"a\":\ndata: \"é\"}\n\nevent: done\n\n";
        for ending in ["\n", "\r\n", "\r"] {
            let text = text.replace('\n', ending);
            for size in 1..text.len() {
                let mut parser = SseParser::default();
                let events: Vec<SseEvent> =
                    text.as_bytes().chunks(size).flat_map(|c| parser.push(c)).collect();
                assert_eq!(events.len(), 2, "{ending:?} {size}");
                assert_eq!(events[0].id.as_deref(), Some("1"));
                assert_eq!(events[0].data, "{\"a\":\n\"é\"}");
                assert_eq!(events[1].event, "done");
            }
        }
    }
}
