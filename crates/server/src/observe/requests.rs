//! Requests, counted by the pattern of their route: as many as the program has, however many paths are asked for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::http::Method;
use onceward_store::{Distribution, Histogram, TIMES};

/// What no route takes.
pub(crate) const UNMATCHED: &str = "unmatched";

/// Methods that are told apart.
const METHODS: [&str; 4] = ["GET", "POST", "DELETE", "other"];

/// What became of a request: the class of its status, or that its caller went away before.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "gone"];

const GONE: usize = 5;

/// Routes at most: the program has fewer.
const ROUTES: usize = 200;

#[derive(Debug, Default)]
pub(crate) struct Requests(RwLock<HashMap<Box<str>, Arc<Route>>>);

#[derive(Debug, Default)]
struct Route([Asked; METHODS.len()]);

#[derive(Debug)]
struct Asked {
    classes: [AtomicU64; CLASSES.len()],
    times: Histogram,
}

impl Default for Asked {
    fn default() -> Self {
        Self { classes: Default::default(), times: Histogram::new(TIMES) }
    }
}

/// What was counted of one method of one route.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) route: Box<str>,
    pub(crate) method: &'static str,
    pub(crate) classes: Vec<(&'static str, u64)>,
    pub(crate) times: Distribution,
}

impl Requests {
    /// One was answered; `None` where its caller had gone.
    pub(crate) fn add(&self, route: &str, method: &Method, status: Option<u16>, took: Duration) {
        let method = METHODS.iter().position(|name| *name == method.as_str()).unwrap_or(METHODS.len() - 1);
        let class = status.map_or(GONE, |status| usize::from(status / 100).clamp(1, GONE) - 1);
        let found = self.route(route);
        found.0[method].classes[class].fetch_add(1, Ordering::Relaxed);
        found.0[method].times.add_time(took);
    }

    fn route(&self, route: &str) -> Arc<Route> {
        if let Some(found) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(route) {
            return Arc::clone(found);
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let route = if all.len() < ROUTES { route } else { UNMATCHED };
        Arc::clone(all.entry(route.into()).or_default())
    }

    pub(crate) fn counted(&self) -> Vec<Counted> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut counted = Vec::new();
        for (route, own) in all.iter() {
            for (method, asked) in METHODS.into_iter().zip(&own.0) {
                let classes: Vec<_> = CLASSES
                    .into_iter()
                    .zip(&asked.classes)
                    .map(|(class, count)| (class, count.load(Ordering::Relaxed)))
                    .filter(|(_, count)| *count > 0)
                    .collect();
                if !classes.is_empty() {
                    counted.push(Counted { route: route.clone(), method, classes, times: asked.times.counted() });
                }
            }
        }
        counted.sort_by(|a, b| (&a.route, a.method).cmp(&(&b.route, b.method)));
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_paths_there_are_few_are_counted() {
        let requests = Requests::default();
        for number in 0..10 * ROUTES {
            requests.add(&format!("/{number}"), &Method::GET, Some(200), Duration::ZERO);
        }
        requests.add("/0", &Method::PATCH, None, Duration::from_secs(1));
        let counted = requests.counted();
        let routes: std::collections::HashSet<_> = counted.iter().map(|own| own.route.clone()).collect();
        assert!(routes.len() <= ROUTES + 1);
        let gone: Vec<_> = counted.iter().filter(|own| own.method == "other").collect();
        assert_eq!(gone.len(), 1);
        assert_eq!((&*gone[0].route, &gone[0].classes[..]), ("/0", &[("gone", 1)][..]));
        let all: u64 = counted.iter().flat_map(|own| &own.classes).map(|(_, count)| count).sum();
        assert_eq!(all, 10 * ROUTES as u64 + 1);
    }
}
