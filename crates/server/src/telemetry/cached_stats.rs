//! Statistics of the store, cached between scrapes.

use std::time::{Duration, Instant};

use onceward_core::time::Time;
use onceward_store::{AnyStore, Store as _, StoreStats};
use tokio::sync::Mutex;
use tracing::warn;

/// Store statistics are cached for at least this time, and for 20 times as long as the query took, so that frequent
/// scrapes keep one reader busy for at most 5% of the time.
const MIN_STATS_TTL: Duration = Duration::from_secs(1);
const STATS_TTL_COST_FACTOR: u32 = 20;

/// The latest statistics of the store.
#[derive(Debug, Default)]
pub(super) struct CachedStats(Mutex<Option<StatsSample>>);

#[derive(Clone, Debug)]
pub(super) struct StatsSample {
    /// `None` if the query failed.
    pub(super) stats: Option<StoreStats>,
    pub(super) sampled_at: Time,
    expires_at: Instant,
}

impl CachedStats {
    pub(super) async fn get(&self, store: &AnyStore) -> StatsSample {
        let mut last = self.0.lock().await;
        if let Some(sample) = last.as_ref().filter(|sample| Instant::now() < sample.expires_at) {
            return sample.clone();
        }
        let begun = Instant::now();
        let query = async {
            let at = store.now().await?;
            Ok::<_, onceward_store::StoreError>((store.stats(at).await?, at))
        };
        let (stats, at) = match query.await {
            Ok((stats, at)) => (Some(stats), at),
            Err(error) => {
                warn!(code = error.code(), "reading store statistics failed; the metrics page omits them");
                (None, Time::from_micros(0))
            }
        };
        let sample = StatsSample {
            stats,
            sampled_at: at,
            expires_at: Instant::now() + MIN_STATS_TTL.max(begun.elapsed() * STATS_TTL_COST_FACTOR),
        };
        *last = Some(sample.clone());
        sample
    }
}
