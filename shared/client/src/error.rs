//! What can go wrong between a program and the API, and the exit code that says so.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use domain::JobId;

/// Result of a call.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;

/// RFC 9457 problem document. Fields that this version does not know are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// Short title of the code.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What was wrong this time.
    pub detail: String,
    /// Trace id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Stable code, e.g. `name_taken`.
    pub code: String,
    /// Fields that are wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ProblemField>,
    /// Whether the same request may succeed later.
    pub retryable: bool,
}

/// One wrong field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProblemField {
    /// RFC 6901 pointer into the request.
    pub pointer: String,
    /// Stable code.
    pub code: String,
    /// What was expected and found.
    pub detail: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = if self.detail.is_empty() { &self.title } else { &self.detail };
        write!(f, "{text} ({}, HTTP {})", self.code, self.status)?;
        for field in &self.errors {
            write!(f, "; {}: {}", field.pointer, field.detail)?;
        }
        Ok(())
    }
}

impl Problem {
    /// The document in `body`, or one that says that the answer was none.
    #[must_use]
    pub fn from_body(status: u16, body: &[u8]) -> Self {
        match serde_json::from_slice::<Self>(body) {
            Ok(mut problem) if !problem.code.is_empty() => {
                problem.status = status;
                problem
            }
            _ => Self {
                title: "unexpected answer".into(),
                status,
                detail: String::from_utf8_lossy(body).trim().chars().take(200).collect(),
                code: "unexpected_answer".into(),
                ..Self::default()
            },
        }
    }
}

/// Why a call did not give what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The base URL cannot be used.
    #[error("{url:?} is not a base url: expected http://host:port")]
    BadUrl {
        /// As given.
        url: String,
    },
    /// The server refused.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// No answer came, in all attempts.
    #[error("{url} did not answer: {detail}")]
    Unreachable {
        /// Where.
        url: String,
        /// Why.
        detail: String,
    },
    /// The answer has another shape than this version expects.
    #[error("the answer of {path} cannot be read: {source}")]
    Shape {
        /// The path asked.
        path: String,
        /// Why.
        source: serde_json::Error,
    },
    /// A job ended as failed.
    #[error("{job} failed: {code}: {detail}")]
    JobFailed {
        /// The job.
        job: JobId,
        /// Stable code.
        code: String,
        /// For the reader.
        detail: String,
    },
    /// A job ended as cancelled.
    #[error("{job} was cancelled")]
    JobCancelled {
        /// The job.
        job: JobId,
    },
    /// A check before a training found errors.
    #[error("the training cannot start: {errors} error(s)")]
    Preflight {
        /// How many.
        errors: usize,
    },
    /// Something took longer than it was given.
    #[error("{what} took longer than {} s", after.as_secs_f64())]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
    },
    /// The live socket broke.
    #[error("the socket broke: {0}")]
    Socket(String),
    /// The server closed the live socket for a reason other than the end.
    #[error("the session was closed with {code}: {reason}")]
    SessionClosed {
        /// Close code.
        code: u16,
        /// Reason in words.
        reason: String,
    },
    /// Sound that cannot be read, written or coded.
    #[error(transparent)]
    Audio(#[from] audio::AudioError),
    /// A local file cannot be read or written.
    #[error("cannot access {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The files of a model are not what they must be.
    #[error("{0}")]
    Model(String),
    /// The caller's input is wrong.
    #[error("{0}")]
    Usage(String),
}

/// Exit codes of `ppx` (platform.md 1.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// A job or a session failed, or a model is damaged.
    JobFailed = 1,
    /// The request or the arguments are wrong.
    Usage = 2,
    /// The key is missing, unknown or lacks a scope.
    Auth = 3,
    /// No such resource.
    NotFound = 4,
    /// A job was cancelled.
    Cancelled = 5,
    /// Waiting took too long.
    Timeout = 6,
    /// The server failed or cannot be reached.
    Server = 7,
}

impl ClientError {
    /// The code that a command line ends with.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Problem(problem) => match problem.status {
                401 | 403 => ExitCode::Auth,
                404 => ExitCode::NotFound,
                429 | 500.. => ExitCode::Server,
                _ => ExitCode::Usage,
            },
            Self::BadUrl { .. } | Self::Usage(_) | Self::File { .. } | Self::Audio(_) => ExitCode::Usage,
            Self::JobFailed { .. } | Self::Model(_) | Self::Preflight { .. } => ExitCode::JobFailed,
            Self::JobCancelled { .. } => ExitCode::Cancelled,
            Self::TimedOut { .. } => ExitCode::Timeout,
            Self::Unreachable { .. } | Self::Shape { .. } | Self::Socket(_) => ExitCode::Server,
            Self::SessionClosed { code, .. } => match code {
                1008 => ExitCode::Auth,
                _ => ExitCode::Server,
            },
        }
    }

    /// The stable code of a refusal.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Problem(problem) => Some(&problem.code),
            Self::JobFailed { code, .. } => Some(code),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(status: u16) -> ClientError {
        ClientError::Problem(Box::new(Problem { status, ..Problem::default() }))
    }

    #[test]
    fn statuses_map_to_the_documented_exit_codes() {
        for (status, code) in [
            (401, ExitCode::Auth),
            (403, ExitCode::Auth),
            (404, ExitCode::NotFound),
            (409, ExitCode::Usage),
            (422, ExitCode::Usage),
            (429, ExitCode::Server),
            (503, ExitCode::Server),
        ] {
            assert_eq!(problem(status).exit_code(), code, "{status}");
        }
    }

    #[test]
    fn an_answer_that_is_no_problem_document_still_says_what_came() {
        let problem = Problem::from_body(502, b"<html>bad gateway</html>");
        assert_eq!((problem.status, problem.code.as_str()), (502, "unexpected_answer"));
        assert!(problem.to_string().contains("bad gateway"), "{problem}");
        let known = Problem::from_body(
            422,
            br#"{"code":"validation_failed","detail":"no","errors":[{"pointer":"/name","detail":"empty","x":1}],"y":2}"#,
        );
        assert_eq!(known.to_string(), "no (validation_failed, HTTP 422); /name: empty");
    }
}
