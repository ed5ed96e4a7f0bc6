//! From bytes to a typed pack. The keys at the top are read one by one, so that each reports its own fault.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{DomainPack, PackFaults};
use crate::run::FieldFault;

/// Largest pack that is read, in bytes.
const MAX_BYTES: usize = 4 << 20;

pub(super) fn decode(bytes: &[u8]) -> Result<&str, PackFaults> {
    let one = |detail: String| PackFaults(vec![FieldFault { pointer: String::new(), detail }]);
    if bytes.len() > MAX_BYTES {
        return Err(one(format!("must have at most {MAX_BYTES} bytes, not {}", bytes.len())));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        one(format!("byte {at} is not UTF-8; the text looks like {}", guess(bytes)))
    })?;
    match text.find('\0') {
        // UTF-16 of plain ASCII is valid UTF-8 with NUL bytes.
        Some(at) => Err(one(format!("byte {at} is NUL; the text looks like {}", guess(bytes)))),
        None => Ok(text),
    }
}

fn guess(bytes: &[u8]) -> &'static str {
    let nul_at = |odd: usize| bytes.iter().skip(odd).step_by(2).take(64).filter(|b| **b == 0).count();
    match bytes {
        [0xff, 0xfe, ..] => "UTF-16LE",
        [0xfe, 0xff, ..] => "UTF-16BE",
        _ if nul_at(1) > 8 => "UTF-16LE",
        _ if nul_at(0) > 8 => "UTF-16BE",
        _ if bytes.contains(&0) => "binary data",
        _ => "Latin-1 or Windows-1252",
    }
}

pub(super) fn parse(text: &str) -> Result<DomainPack, PackFaults> {
    let one = |detail: String| PackFaults(vec![FieldFault { pointer: String::new(), detail }]);
    // By way of YAML's own value, which refuses keys that come twice.
    let yaml: serde_yaml_ng::Value = serde_yaml_ng::from_str(text).map_err(|e| one(e.to_string()))?;
    read(serde_json::to_value(yaml).map_err(|e| one(e.to_string()))?)
}

pub(super) fn read(document: Value) -> Result<DomainPack, PackFaults> {
    let Value::Object(map) = document else {
        let detail = "expected a mapping of the pack's keys".into();
        return Err(PackFaults(vec![FieldFault { pointer: String::new(), detail }]));
    };
    let mut top = Top { map, faults: Vec::new() };
    let pack = top.pack();
    top.reject_rest();
    match pack {
        Some(pack) if top.faults.is_empty() => Ok(pack),
        _ => Err(PackFaults(top.faults)),
    }
}

struct Top {
    map: Map<String, Value>,
    faults: Vec<FieldFault>,
}

impl Top {
    fn pack(&mut self) -> Option<DomainPack> {
        let id = self.take("id");
        let version = self.take("version");
        let short = self.take("short");
        let title = self.take("title");
        let roles = self.take("roles");
        let call = self.take("call");
        let prompt_sections = self.take("prompt_sections");
        let sections = self.take("sections");
        let axes = self.take("axes");
        let joint = self.take("joint");
        let forbid = if self.map.contains_key("forbid") { self.take("forbid") } else { Some(Vec::new()) };
        let injections = self.take("injections");
        let compliance = self.take("compliance");
        let claim_patterns = self.take("claim_patterns");
        let grammar = self.take("grammar");
        Some(DomainPack {
            id: id?,
            version: version?,
            short: short?,
            title: title?,
            roles: roles?,
            call: call?,
            prompt_sections: prompt_sections?,
            sections: sections?,
            axes: axes?,
            joint: joint?,
            forbid: forbid?,
            injections: injections?,
            compliance: compliance?,
            claim_patterns: claim_patterns?,
            grammar: grammar?,
        })
    }

    fn take<T: DeserializeOwned>(&mut self, key: &'static str) -> Option<T> {
        let Some(value) = self.map.remove(key) else {
            self.fault(format!("/{key}"), "is missing".into());
            return None;
        };
        match serde_path_to_error::deserialize(value) {
            Ok(read) => Some(read),
            Err(error) => {
                let pointer = pointer(key, error.path());
                self.fault(pointer, error.into_inner().to_string());
                None
            }
        }
    }

    fn reject_rest(&mut self) {
        let rest: Vec<String> = self.map.keys().cloned().collect();
        for key in rest {
            self.fault(format!("/{}", escaped(&key)), "is no key of a domain pack".into());
        }
    }

    fn fault(&mut self, pointer: String, detail: String) {
        self.faults.push(FieldFault { pointer, detail });
    }
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn pointer(key: &str, path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut pointer = format!("/{key}");
    for segment in path {
        pointer.push('/');
        match segment {
            Segment::Seq { index } => pointer.push_str(&index.to_string()),
            Segment::Map { key } => pointer.push_str(&escaped(key)),
            Segment::Enum { variant } => pointer.push_str(&escaped(variant)),
            Segment::Unknown => pointer.push('?'),
        }
    }
    pointer
}
