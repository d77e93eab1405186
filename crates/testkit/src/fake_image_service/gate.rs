//! Where one thread waits until another lets it through.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::http::TEST_TIMEOUT;

/// Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct TestGate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Debug, Default)]
struct GateState {
    arrived: usize,
    open: bool,
}

impl TestGate {
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
    pub fn wait_until_reached(&self) {
        let (state, changed) = &*self.0;
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (state, _) = changed
            .wait_timeout_while(state, TEST_TIMEOUT, |state| state.arrived == 0)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(state.arrived > 0, "nobody came to the gate within {TEST_TIMEOUT:?}");
    }

    /// Stand at it until it opens.
    pub(super) fn wait_until_open(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.arrived += 1;
        changed.notify_all();
        drop(changed.wait_while(state, |state| !state.open).unwrap_or_else(PoisonError::into_inner));
    }
}
