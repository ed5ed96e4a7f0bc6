//! Takes up what fell down. Runs in every process; rows are locked, so two sweepers do not collide.

use tokio_util::sync::CancellationToken;

use store::{Store, events, idempotency, leases, outbox, sessions};

use crate::settings::{Sweeper, seconds};

/// Sweeps until shutdown.
pub(crate) async fn run(store: Store, settings: Sweeper, shutdown: CancellationToken) {
    let every = seconds(settings.interval_seconds);
    while shutdown.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
        match leases::sweep(&store, seconds(settings.ring_after_seconds)).await {
            Ok((0, 0)) => {}
            Ok((taken_up, rung)) => tracing::info!(taken_up, rung, "swept"),
            Err(error) => tracing::warn!(%error, "cannot sweep"),
        }
        if let Err(error) = idempotency::forget_old(&store).await {
            tracing::debug!(%error, "cannot forget idempotency keys");
        }
        if let Err(error) = sessions::end_stale(&store, seconds(settings.max_live_seconds)).await {
            tracing::debug!(%error, "cannot end stale sessions");
        }
        gauges(&store).await;
    }
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floats; counts are small")]
async fn gauges(store: &Store) {
    if let Ok(depths) = events::queue_depth(store).await {
        for kind in domain::job::JobKind::ALL {
            let depth = depths.iter().find(|(k, _)| *k == kind).map_or(0, |(_, n)| *n);
            metrics::gauge!("ppx_queue_depth_jobs", "kind" => kind.as_str()).set(depth as f64);
        }
    }
    if let Ok(waiting) = outbox::depth(store).await {
        metrics::gauge!("ppx_outbox_depth_messages").set(waiting as f64);
    }
}
