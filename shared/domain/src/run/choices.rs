use serde::{Deserialize, Serialize};

/// The learning rate as a function of the step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Up and down along cosines over exactly `max_steps`.
    #[default]
    Onecycle,
    /// Linear warm-up, then a cosine down to nearly zero.
    CosineWarmup,
    /// Linear warm-up, then constant.
    ConstantWarmup,
}

/// What weighted loss sums are divided by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossNorm {
    /// The weights of the whole update, all processes: micro-batches add up to one large batch.
    #[default]
    Global,
    /// Each micro-batch's own weights; the update is the mean of their means.
    PerMicrobatch,
}

/// Whose first codebook is semantic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SemanticStreams {
    /// The agent's only.
    Agent,
    /// The agent's and the user's.
    #[default]
    Both,
}

/// A floating point type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FloatType {
    /// 16 bits, the range of f32.
    Bfloat16,
    /// 32 bits.
    #[default]
    Float32,
}

/// How context is put between the frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpliceMode {
    /// Over frames where the agent is silent, as many inserted as are missing.
    #[default]
    OverlayThenStretch,
    /// Frames inserted with copies of the user's.
    InsertCopyUser,
}

/// What a later window knows of contexts that lie before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CarryContext {
    /// Nothing.
    None,
    /// Their texts stand at the end of its prompt.
    #[default]
    Prompt,
}

/// What happens to tokens still unspoken when the next word starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// They are lost.
    #[default]
    Drop,
    /// The next word waits for them.
    Shift,
    /// The next word waits a bounded time.
    ShiftBounded,
}
