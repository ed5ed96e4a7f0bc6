//! A pack on trial: one that cannot be spoken is refused when it is added, not in a job.

use domain::dialogue::RecordFault;
use domain::pack::DomainPack;

use crate::error::DraftError;
use crate::grammar::generate;
use crate::sampler::Design;
use crate::validate;

/// Dialogues written on trial.
const ROWS: u32 = 64;

/// Why a pack cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// No dialogue can be drafted.
    #[error(transparent)]
    Draft(#[from] DraftError),
    /// A dialogue breaks rules.
    #[error("record {id}: {}", listed(.faults))]
    Rejected {
        /// Its id.
        id: String,
        /// All rules it breaks.
        faults: Vec<RecordFault>,
    },
}

fn listed(faults: &[RecordFault]) -> String {
    faults.iter().map(|f| format!("{} {}", f.code, f.detail)).collect::<Vec<_>>().join("; ")
}

/// Writes dialogues with the pack and checks each.
///
/// # Errors
/// The first that cannot be written or breaks a rule.
pub fn try_out(pack: &DomainPack) -> Result<(), TrialError> {
    let design = Design::new(pack, ROWS, 0)?;
    for row in 0..ROWS {
        let record = generate(pack, &design, row, 0)?;
        let faults = validate::faults(pack, &record);
        if !faults.is_empty() {
            return Err(TrialError::Rejected { id: record.id, faults });
        }
    }
    Ok(())
}
