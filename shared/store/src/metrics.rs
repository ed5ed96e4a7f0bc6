//! Numbers of a run, visible while it runs.

use chrono::{DateTime, Utc};
use domain::RunId;
use domain::run::MetricPoint;

use crate::leases::{self, Claim};
use crate::{Result, Store};

/// Writes a batch, fenced by the claim; a step that is trained again after a crash replaces its earlier numbers.
///
/// # Errors
/// `LeaseLost`.
pub async fn record(store: &Store, claim: Claim, run: RunId, points: &[MetricPoint]) -> Result<()> {
    let names: Vec<&str> = points.iter().map(|p| p.name.as_str()).collect();
    let steps: Vec<i32> = points.iter().map(|p| i32::try_from(p.step).unwrap_or(i32::MAX)).collect();
    let values: Vec<f64> = points.iter().map(|p| p.value).collect();
    let mut tx = store.begin().await?;
    leases::fence(&mut tx, claim).await?;
    sqlx::query(
        "INSERT INTO run_metrics (run_id, name, step, value) \
         SELECT $1, n, s, v FROM unnest($2::text[], $3::int[], $4::float8[]) AS t (n, s, v) \
         ON CONFLICT (run_id, name, step) DO UPDATE SET value = excluded.value, recorded_at = now()",
    )
    .bind(run.uuid())
    .bind(&names)
    .bind(&steps)
    .bind(&values)
    .execute(&mut *tx)
    .await?;
    Ok(tx.commit().await?)
}

/// Numbers of a run in step order, of one metric or of all.
///
/// # Errors
/// When the database is unreachable.
pub async fn of_run(store: &Store, run: RunId, name: Option<&str>) -> Result<Vec<MetricPoint>> {
    let rows: Vec<(i32, String, f64)> = sqlx::query_as(
        "SELECT step, name, value FROM run_metrics WHERE run_id = $1 AND ($2::text IS NULL OR name = $2) \
         ORDER BY step, name",
    )
    .bind(run.uuid())
    .bind(name)
    .fetch_all(&store.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(step, name, value)| MetricPoint { step: u32::try_from(step).unwrap_or_default(), name, value })
        .collect())
}

/// Numbers of a run in step order with the times at which they were written.
///
/// # Errors
/// When the database is unreachable.
pub async fn timed(
    store: &Store,
    run: RunId,
    name: Option<&str>,
) -> Result<Vec<(MetricPoint, DateTime<Utc>)>> {
    let rows: Vec<(i32, String, f64, DateTime<Utc>)> = sqlx::query_as(
        "SELECT step, name, value, recorded_at FROM run_metrics \
         WHERE run_id = $1 AND ($2::text IS NULL OR name = $2) ORDER BY step, name",
    )
    .bind(run.uuid())
    .bind(name)
    .fetch_all(&store.pool)
    .await?;
    let point =
        |step: i32, name, value| MetricPoint { step: u32::try_from(step).unwrap_or_default(), name, value };
    Ok(rows.into_iter().map(|(step, name, value, at)| (point(step, name, value), at)).collect())
}
