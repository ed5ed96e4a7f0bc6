/// Why processes cannot go on together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RanksError {
    /// A process does not answer any more.
    #[error("rank {rank} is gone: {detail}")]
    Lost {
        /// Its number.
        rank: usize,
        /// What was seen.
        detail: String,
    },
    /// A process is there but sent nothing for longer than the group's timeout.
    #[error("rank {rank} sent nothing for {seconds} s")]
    Silent {
        /// Its number.
        rank: usize,
        /// How long was waited.
        seconds: u64,
    },
    /// Another process found an error and told the others.
    #[error("rank {rank} gave up: {detail}")]
    GaveUp {
        /// Its number.
        rank: usize,
        /// Its error.
        detail: String,
    },
    /// Two processes make different calls where they must make the same.
    #[error("rank {rank} calls {theirs} where this one calls {ours}")]
    Mismatch {
        /// Number of the other process.
        rank: usize,
        /// Its call.
        theirs: String,
        /// The call of this process.
        ours: String,
    },
    /// A tensor or number that a call cannot work with.
    #[error("{0}")]
    Input(String),
    /// A variable of the environment is missing or wrong.
    #[error("{name} {detail}")]
    Variable {
        /// Its name.
        name: &'static str,
        /// What is wrong, with the value where it is no secret.
        detail: String,
    },
    /// The processes did not come together.
    #[error("the ranks did not come together: {0}")]
    Rendezvous(String),
    /// Rank 0 does not take a process into the group.
    #[error("refused: {0}")]
    Refused(String),
    /// A process of this machine could not be started.
    #[error("cannot start rank {rank} ({program}): {detail}")]
    Start {
        /// Its number.
        rank: usize,
        /// The program.
        program: String,
        /// Why.
        detail: String,
    },
    /// A process of this machine ended other than well.
    #[error("rank {rank} ended with {status}{}", if last.is_empty() { String::new() } else { format!(": {last}") })]
    Ended {
        /// Its number.
        rank: usize,
        /// Exit status or signal.
        status: String,
        /// The last lines that it wrote to its standard error output.
        last: String,
    },
    /// NCCL or CUDA failed, or are not there.
    #[error("{0}")]
    Nccl(String),
}
