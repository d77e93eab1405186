//! Runs a function on many items, a few at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow};

/// The smallest machine that the gate runs on has two cores.
const DEFAULT_WORKERS: usize = 2;

/// Calls `each` on all items, two at a time, and returns the results in the items' order. The first error stops it.
pub(crate) fn at_once<T: Sync, R: Send>(items: &[T], each: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    at_once_with(DEFAULT_WORKERS, items, each)
}

/// Like [`at_once`], with `workers` items at a time.
pub(crate) fn at_once_with<T: Sync, R: Send>(
    workers: usize,
    items: &[T],
    each: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return Ok(()) };
            let result = each(item).inspect_err(|_| next.store(items.len(), Ordering::Relaxed))?;
            results.lock().map_err(|_| anyhow!("a worker panicked"))?.push((index, result));
        }
    };
    std::thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a worker panicked"))?)
    })?;
    let mut results = results.into_inner().map_err(|_| anyhow!("a worker panicked"))?;
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::{at_once, at_once_with};

    #[test]
    fn results_keep_the_order_of_the_items() {
        assert_eq!(at_once(&[1, 2, 3, 4, 5], |number| Ok(number * 2)).expect("no error"), [2, 4, 6, 8, 10]);
        assert_eq!(at_once_with(9, &[1, 2], |number| Ok(number + 1)).expect("no error"), [2, 3]);
    }

    #[test]
    fn an_error_of_one_item_is_returned() {
        assert!(at_once(&[1, 2, 3], |number| if *number == 2 { bail!("two") } else { Ok(()) }).is_err());
    }
}
