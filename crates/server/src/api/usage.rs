//! Serves what keys may use and have used.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::AppState;
use crate::caller::Caller;
use crate::keys::StoredApiKey;
use crate::problem::HttpProblem;
use crate::usage::{ApiKeyDailyUsage, ApiKeyLimits, UtcDay};

/// What keys used today.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApiKeyUsageReportView {
    /// The day in UTC.
    #[schema(example = "2026-11-18")]
    pub day: String,
    /// When daily limits are reset.
    pub resets_at: u64,
    /// All keys for an operator, otherwise the caller's own key.
    pub keys: Vec<ApiKeyDailyUsageView>,
}

/// A key, its limits and its usage of the day.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApiKeyDailyUsageView {
    pub key_id: String,
    pub name: String,
    pub owner: Option<String>,
    pub limits: ApiKeyLimitsView,
    pub cost_microusd: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Answers whose price is unknown. They are not part of the cost.
    pub unpriced_answers: u64,
}

/// The limits of a key. A limit that is `null` does not apply.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApiKeyLimitsView {
    pub cost_microusd_per_day: Option<u64>,
    pub tokens_per_day: Option<u64>,
    pub models: Option<Vec<String>>,
    pub turns_at_once: Option<u32>,
    pub requests_per_minute: Option<u32>,
}

impl From<ApiKeyLimits> for ApiKeyLimitsView {
    fn from(limits: ApiKeyLimits) -> Self {
        let ApiKeyLimits { cost_microusd_per_day, tokens_per_day, models, turns_at_once, requests_per_minute } = limits;
        let models = models.map(|models| models.iter().map(ToString::to_string).collect());
        Self { cost_microusd_per_day, tokens_per_day, models, turns_at_once, requests_per_minute }
    }
}

/// Get the limits of the caller's key, and what it used today
///
/// An operator gets all keys.
#[utoipa::path(get, path = "/v1/usage", tag = "server", responses((status = 200, body = ApiKeyUsageReportView)))]
pub(crate) async fn get_usage(
    State(app): State<AppState>,
    caller: Caller,
) -> Result<Json<ApiKeyUsageReportView>, HttpProblem> {
    let now = app.engine.now();
    let is_shown = |key: &StoredApiKey| caller.is_operator() || caller.key_id.as_ref() == Some(&key.id);
    let mut keys = Vec::new();
    for key in app.keys.current_keys().await.iter().filter(|key| is_shown(key)).cloned() {
        let usage = app
            .options
            .shared
            .key_usage
            .read_usage(&key.id, now)
            .await
            .map_err(|error| HttpProblem::from_usage_error(&error, "the usage of keys cannot be read"))?;
        let ApiKeyDailyUsage { cost_microusd, input_tokens, output_tokens, unpriced_answers } = usage;
        let (limits, StoredApiKey { id: key_id, name, owner, .. }) = (key.limits.clone().into(), key);
        keys.push(ApiKeyDailyUsageView {
            key_id,
            name,
            owner,
            limits,
            cost_microusd,
            input_tokens,
            output_tokens,
            unpriced_answers,
        });
    }
    let day = UtcDay::from_time(now);
    Ok(Json(ApiKeyUsageReportView { day: day.to_string(), resets_at: day.end_time().0, keys }))
}
