//! Doing a few things at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow};

/// As many as the smallest machine that the gate runs on has processors.
const WORKERS: usize = 2;

/// Does this with each of them, some at a time, and answers in their order.
pub(crate) fn at_once<T: Sync, R: Send>(all: &[T], each: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = all.get(at) else { return Ok(()) };
            let result = each(one)?;
            done.lock().map_err(|_| anyhow!("a worker panicked"))?.push((at, result));
        }
    };
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow!("a worker panicked"))?)
    })?;
    let mut done = done.into_inner().map_err(|_| anyhow!("a worker panicked"))?;
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::at_once;

    #[test]
    fn answers_come_in_order_and_a_fault_is_told() {
        let doubled = at_once(&[1, 2, 3, 4, 5], |number| Ok(number * 2)).expect("no fault");
        assert_eq!(doubled, [2, 4, 6, 8, 10]);
        assert!(at_once(&[1, 2, 3], |number| if *number == 2 { bail!("two") } else { Ok(()) }).is_err());
    }
}
