/// Errors of loading, generating, training inputs and adapters.
#[derive(Debug, thiserror::Error)]
pub enum PersonaplexError {
    #[error(transparent)]
    Nn(#[from] nn::NnError),
    #[error(transparent)]
    Weights(#[from] weights::WeightsError),
    #[error(transparent)]
    Lora(#[from] weights::lora::LoraError),
    #[error("libtorch: {0}")]
    Torch(#[from] tch::TchError),
    #[error("{what} has shape {found:?}, not {wanted}")]
    Shape { what: &'static str, wanted: String, found: Vec<i64> },
    #[error("{what} id {value} is outside {low}..{high}")]
    IdRange { what: &'static str, value: i64, low: i64, high: i64 },
    #[error("{samples} samples are not one frame of {frame}")]
    FrameSize { samples: usize, frame: usize },
    #[error("a prompt of {rows} rows is longer than the window of {window}")]
    PromptTooLong { rows: usize, window: i64 },
    #[error("a prompt with embeddings needs the rows that follow them, one without has none")]
    PromptRows,
    #[error("the prompt was fed for another order of the step than the batch's")]
    OtherOrder,
    #[error("slot {slot} is not open")]
    SlotClosed { slot: usize },
    #[error("values were given for {found} slots of {wanted}")]
    SlotCount { found: usize, wanted: usize },
    #[error("user codes of frame {frame} are missing and this state does not sample the user")]
    NoUserCodes { frame: usize },
    #[error("the voice is for a model of width {found}, this one has {wanted}")]
    VoiceWidth { found: usize, wanted: i64 },
    #[error("the voice was encoded with codec {found}, this model has {wanted}")]
    VoiceCodec { found: String, wanted: String },
    #[error("a voice of embeddings needs a largest delay of 1, this model has {max_delay}")]
    VoiceDelays { max_delay: usize },
    #[error("the model already has an adapter")]
    AdapterPresent,
    #[error(
        "the adapter brings embedding tables of its own, which cannot lie beside others: merge it into a model"
    )]
    AdapterTables,
    #[error("the model has no adapter")]
    NoAdapter,
    #[error("{what} is not possible on a model that is trained as a whole")]
    WholeModel { what: &'static str },
    #[error("the model is not trained as a whole: its adapter is what there is to save")]
    NotWhole,
    #[error("{what} is not possible while the layers' weights are streamed")]
    Streamed { what: &'static str },
    /// For sources of layers outside this crate.
    #[error("the weights of layer {layer} cannot be brought: {detail}")]
    Layer { layer: usize, detail: String },
}
