//! Log lines and trace context. One trace id goes from the HTTP request through the broker into the worker's lines.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::settings::{LogFormat, Telemetry};

/// Starts logging to standard error; a second call changes nothing.
pub(crate) fn start(settings: &Telemetry) {
    let filter = EnvFilter::try_new(&settings.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(true);
    let started = match settings.format {
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init(),
        LogFormat::Pretty => {
            registry.with(layer.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))).try_init()
        }
    };
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
}

/// A W3C `traceparent` (version 00).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: String,
    span_id: String,
}

impl TraceContext {
    /// A new trace.
    #[must_use]
    pub fn generate() -> Self {
        let trace_id = uuid::Uuid::new_v4().as_simple().to_string();
        Self { trace_id, span_id: new_span_id() }
    }

    /// Reads a `traceparent` header; `None` when it is malformed or all zero.
    #[must_use]
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let (version, trace_id, span_id, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let hex =
            |s: &str, n| s.len() == n && s.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase());
        let good =
            hex(version, 2) && version != "ff" && hex(trace_id, 32) && hex(span_id, 16) && hex(flags, 2);
        let nonzero = trace_id.bytes().any(|b| b != b'0') && span_id.bytes().any(|b| b != b'0');
        (good && nonzero).then(|| Self { trace_id: trace_id.into(), span_id: span_id.into() })
    }

    /// The same trace, one span deeper.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { trace_id: self.trace_id.clone(), span_id: new_span_id() }
    }

    /// The trace id: 32 hex digits.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        &self.trace_id
    }

    /// As a header.
    #[must_use]
    pub fn header(&self) -> String {
        format!("00-{}-{}-01", self.trace_id, self.span_id)
    }
}

fn new_span_id() -> String {
    uuid::Uuid::new_v4().as_simple().to_string().chars().take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_survives_its_header_and_a_child_keeps_its_id() {
        let trace = TraceContext::generate();
        let read = TraceContext::parse(&trace.header()).expect("own headers parse");
        assert_eq!(read, trace);
        assert_eq!(trace.child().trace_id(), trace.trace_id());
        for bad in ["", "00-0-0-00", "00-00000000000000000000000000000000-0000000000000000-00", "zz"] {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
    }
}
