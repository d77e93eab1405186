//! Request metrics by route pattern, so that the number of label values is fixed regardless of the paths requested.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::http::Method;
use onceward_store::{Histogram, HistogramSnapshot, LATENCY_BUCKETS_MICROS};

/// Label of requests that match no route.
pub(crate) const UNMATCHED_ROUTE: &str = "unmatched";

/// Methods with a label of their own.
const METHOD_LABELS: [&str; 4] = ["GET", "POST", "DELETE", "other"];

/// Status class of the response; `gone` if the caller disconnected before.
const STATUS_CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "gone"];

const GONE_CLASS_INDEX: usize = 5;

/// Bounds memory; the server has fewer routes.
const MAX_ROUTES: usize = 200;

#[derive(Debug, Default)]
pub(crate) struct RequestMetrics(RwLock<HashMap<Box<str>, Arc<RouteMetrics>>>);

#[derive(Debug, Default)]
struct RouteMetrics([MethodMetrics; METHOD_LABELS.len()]);

#[derive(Debug)]
struct MethodMetrics {
    status_classes: [AtomicU64; STATUS_CLASSES.len()],
    latency: Histogram,
}

impl Default for MethodMetrics {
    fn default() -> Self {
        Self { status_classes: Default::default(), latency: Histogram::new(LATENCY_BUCKETS_MICROS) }
    }
}

/// A snapshot of the counts of one method of one route.
#[derive(Debug)]
pub(crate) struct MethodMetricsSnapshot {
    pub(crate) route: Box<str>,
    pub(crate) method: &'static str,
    pub(crate) status_classes: Vec<(&'static str, u64)>,
    pub(crate) latency: HistogramSnapshot,
}

impl RequestMetrics {
    /// Counts a request. `status` is `None` if the caller disconnected.
    pub(crate) fn record_request(&self, route: &str, method: &Method, status: Option<u16>, elapsed: Duration) {
        let method = METHOD_LABELS.iter().position(|name| *name == method.as_str()).unwrap_or(METHOD_LABELS.len() - 1);
        let class = status.map_or(GONE_CLASS_INDEX, |status| usize::from(status / 100).clamp(1, GONE_CLASS_INDEX) - 1);
        let found = self.route_metrics(route);
        found.0[method].status_classes[class].fetch_add(1, Ordering::Relaxed);
        found.0[method].latency.record_duration(elapsed);
    }

    fn route_metrics(&self, route: &str) -> Arc<RouteMetrics> {
        if let Some(found) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(route) {
            return Arc::clone(found);
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let route = if all.len() < MAX_ROUTES { route } else { UNMATCHED_ROUTE };
        Arc::clone(all.entry(route.into()).or_default())
    }

    pub(crate) fn snapshot(&self) -> Vec<MethodMetricsSnapshot> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut snapshots = Vec::new();
        for (route, metrics) in all.iter() {
            for (method, requests) in METHOD_LABELS.into_iter().zip(&metrics.0) {
                let classes: Vec<_> = STATUS_CLASSES
                    .into_iter()
                    .zip(&requests.status_classes)
                    .map(|(class, count)| (class, count.load(Ordering::Relaxed)))
                    .filter(|(_, count)| *count > 0)
                    .collect();
                if !classes.is_empty() {
                    snapshots.push(MethodMetricsSnapshot {
                        route: route.clone(),
                        method,
                        status_classes: classes,
                        latency: requests.latency.snapshot(),
                    });
                }
            }
        }
        snapshots.sort_by(|a, b| (&a.route, a.method).cmp(&(&b.route, b.method)));
        snapshots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_tracked_routes_is_bounded() {
        let requests = RequestMetrics::default();
        for number in 0..10 * MAX_ROUTES {
            requests.record_request(&format!("/{number}"), &Method::GET, Some(200), Duration::ZERO);
        }
        requests.record_request("/0", &Method::PATCH, None, Duration::from_secs(1));
        let counted = requests.snapshot();
        let routes: std::collections::HashSet<_> = counted.iter().map(|own| own.route.clone()).collect();
        assert!(routes.len() <= MAX_ROUTES + 1);
        let gone: Vec<_> = counted.iter().filter(|own| own.method == "other").collect();
        assert_eq!(gone.len(), 1);
        assert_eq!((&*gone[0].route, &gone[0].status_classes[..]), ("/0", &[("gone", 1)][..]));
        let all: u64 = counted.iter().flat_map(|own| &own.status_classes).map(|(_, count)| count).sum();
        assert_eq!(all, 10 * MAX_ROUTES as u64 + 1);
    }
}
