use super::TrainingSpec;
use super::choices::{CarryContext, FloatType, LossNorm, Overflow, Schedule, SemanticStreams, SpliceMode};
use super::parts::{
    AlarmSpec, DataSpec, InterleaverSpec, LoraSpec, OptimSpec, ProbeSpec, PuppeteerSpec, SystemPromptSpec,
};

impl Default for TrainingSpec {
    fn default() -> Self {
        Self {
            max_steps: 200,
            epochs: None,
            batch_size: 4,
            num_microbatches: 4,
            duration_sec: 163.84,
            data: DataSpec::default(),
            optim: OptimSpec::default(),
            lora: LoraSpec::default(),
            full_finetuning: false,
            max_norm: 1.0,
            text_padding_weight: 0.03,
            epad_weight: None,
            first_codebook_weight_multiplier: 4.0,
            semantic_streams: SemanticStreams::default(),
            text_loss_weight: 1.0,
            audio_loss_weight: 0.5,
            user_audio_weight: 1.0,
            loss_norm: LossNorm::default(),
            lora_l2_weight: 1e-4,
            lora_b_decay: 0.0,
            kl_base_weight: 0.0,
            neftune_alpha: 0.0,
            system_prompt: SystemPromptSpec::default(),
            puppeteer: PuppeteerSpec::default(),
            interleaver: InterleaverSpec::default(),
            param_dtype: None,
            grad_accum_dtype: FloatType::Float32,
            gradient_checkpointing: true,
            recompute_layers: None,
            offload_frozen: false,
            shard_frozen: false,
            sliced_heads_frames: 512,
            do_eval: true,
            eval_freq: 32,
            eval_max_windows: 200,
            probe: ProbeSpec::default(),
            alarms: AlarmSpec::default(),
            do_ckpt: true,
            ckpt_freq: 64,
            num_ckpt_keep: Some(3),
            best_metric: "eval/loss".into(),
            resume_from: None,
            force_warm_restart: false,
            schedule_restart: false,
            log_freq: 1,
            seed: 0,
        }
    }
}

impl Default for DataSpec {
    fn default() -> Self {
        Self { shuffle: true, main_speaker_label: "SPEAKER_BROKER".into() }
    }
}

impl Default for OptimSpec {
    fn default() -> Self {
        Self {
            lr: 1e-6,
            weight_decay: 0.1,
            betas: (0.9, 0.95),
            eps: 1e-8,
            pct_start: 0.1,
            schedule: Schedule::default(),
            cycle_momentum: true,
        }
    }
}

impl Default for LoraSpec {
    fn default() -> Self {
        Self { enable: true, rank: 64, scaling: 2.0, skip_depformer: true, ft_embed: false, rslora: false }
    }
}

impl Default for SystemPromptSpec {
    fn default() -> Self {
        Self { enable: true, audio_silence_frames: 6, max_frames: 1000 }
    }
}

impl Default for PuppeteerSpec {
    fn default() -> Self {
        Self {
            enable: true,
            max_tokens_per_injection: 50,
            splice_mode: SpliceMode::default(),
            guard: 1,
            min_post: 25,
            lookback: 25,
            min_window: 25,
            carry_context: CarryContext::default(),
            first_window_weight: 2.0,
        }
    }
}

impl Default for InterleaverSpec {
    fn default() -> Self {
        Self { keep_main_only: true, use_bos_eos: false, audio_delay: 0.0, overflow: Overflow::default() }
    }
}

impl Default for ProbeSpec {
    fn default() -> Self {
        Self { enable: true, prompts: 8, seconds: 20.0, temp_text: 0.7, temp_audio: 0.8 }
    }
}

impl Default for AlarmSpec {
    fn default() -> Self {
        Self { auto_stop: false, window: 20, pred_pad_pct: 99.0, repeat_ratio: 0.5, loss_ratio: 1.5 }
    }
}
