//! Where one thread waits until another lets it through.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::http::PATIENCE;

/// Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    arrived: usize,
    open: bool,
}

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    /// Let through all who wait, and all who come.
    pub fn open(&self) {
        let (state, changed) = &*self.0;
        state.lock().unwrap_or_else(PoisonError::into_inner).open = true;
        changed.notify_all();
    }

    /// Wait until somebody stands at it. Blocks the thread; panics when nobody comes for a long time.
    pub fn reached(&self) {
        let (state, changed) = &*self.0;
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (state, _) = changed
            .wait_timeout_while(state, PATIENCE, |state| state.arrived == 0)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(state.arrived > 0, "nobody came to the gate within {PATIENCE:?}");
    }

    /// Stand at it until it opens.
    pub(super) fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.arrived += 1;
        changed.notify_all();
        drop(changed.wait_while(state, |state| !state.open).unwrap_or_else(PoisonError::into_inner));
    }
}
