//! What a player may say in the query of the websocket.

use domain::ErrorCode;
use domain::session::SamplingParams;
use rest::Problem;
use serde::Deserialize;
use utoipa::IntoParams;

/// Query of `/api/chat`; everything may be left out.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ChatQuery {
    /// Ticket of a session made before; the rest of the query is then not read.
    pub ticket: Option<String>,
    /// The brief, without tags.
    pub text_prompt: Option<String>,
    /// Name of a registered voice.
    #[param(example = "flite-slt")]
    pub voice_prompt: Option<String>,
    /// Id or name of the model; without it the newest merged one, else the newest base.
    pub model: Option<String>,
    /// Seed of the session's generator; negative or empty = random.
    #[param(value_type = Option<i64>)]
    pub seed: Option<String>,
    /// 0 to 1.5, clamped.
    #[param(value_type = Option<f64>)]
    pub text_temperature: Option<String>,
    /// 1 to 500, clamped.
    #[param(value_type = Option<u32>)]
    pub text_topk: Option<String>,
    /// 0 to 1.5, clamped.
    #[param(value_type = Option<f64>)]
    pub audio_temperature: Option<String>,
    /// 1 to 2048, clamped.
    #[param(value_type = Option<u32>)]
    pub audio_topk: Option<String>,
}

impl ChatQuery {
    /// The sampling parameters, clamped to their ranges.
    ///
    /// # Errors
    /// 400 when one is not a number.
    pub fn sampling(&self) -> Result<SamplingParams, Problem> {
        let defaults = SamplingParams::default();
        let temperature = |name, text: &Option<String>, default: f64| -> Result<f64, Problem> {
            Ok(number(name, text.as_deref())?.unwrap_or(default).clamp(0.0, 1.5))
        };
        let topk = |name, text: &Option<String>, default: u32, most: u32| -> Result<u32, Problem> {
            let given = number(name, text.as_deref())?.unwrap_or(f64::from(default));
            Ok(whole(given.round().clamp(1.0, f64::from(most))))
        };
        Ok(SamplingParams {
            text_temperature: temperature(
                "text_temperature",
                &self.text_temperature,
                defaults.text_temperature,
            )?,
            text_topk: topk("text_topk", &self.text_topk, defaults.text_topk, 500)?,
            audio_temperature: temperature(
                "audio_temperature",
                &self.audio_temperature,
                defaults.audio_temperature,
            )?,
            audio_topk: topk("audio_topk", &self.audio_topk, defaults.audio_topk, 2048)?,
            seed: seed(self.seed.as_deref())?,
        })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 1..=2048 before")]
fn whole(value: f64) -> u32 {
    value as u32
}

fn bad(name: &str, text: &str) -> Problem {
    let shown: String = text.chars().take(40).collect();
    Problem::new(ErrorCode::InvalidRequest, format!("query parameter {name:?}: {shown:?} is not a number"))
}

fn number(name: &str, text: Option<&str>) -> Result<Option<f64>, Problem> {
    let Some(text) = text.filter(|t| !t.is_empty()) else { return Ok(None) };
    text.parse::<f64>().ok().filter(|n| n.is_finite()).map(Some).ok_or_else(|| bad(name, text))
}

fn seed(text: Option<&str>) -> Result<Option<u64>, Problem> {
    let Some(text) = text.filter(|t| !t.is_empty()) else { return Ok(None) };
    let seed: i128 = text.parse().map_err(|_| bad("seed", text))?;
    Ok(u64::try_from(seed).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<SamplingParams, Problem> {
        rest::params::parse::<ChatQuery>(query)?.sampling()
    }

    #[test]
    fn values_are_clamped_and_players_own_parameters_are_ignored() {
        let query =
            "text_temperature=9&text_topk=0&audio_temperature=-1&audio_topk=99999&seed=7&pad_mult=0&x=y";
        let sampling = read(query).expect("reads");
        assert_eq!((sampling.text_temperature, sampling.text_topk), (1.5, 1));
        assert_eq!((sampling.audio_temperature, sampling.audio_topk), (0.0, 2048));
        assert_eq!(sampling.seed, Some(7));
        for random in ["", "seed=", "seed=-1"] {
            assert_eq!(read(random).expect("reads"), SamplingParams::default(), "{random}");
        }
        for bad in ["text_topk=x", "seed=1.5", "audio_temperature=NaN", "text_temperature=inf"] {
            assert_eq!(read(bad).expect_err(bad).code(), ErrorCode::InvalidRequest);
        }
    }
}
