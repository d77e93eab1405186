//! A gate that blocks threads until a test opens it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::http::TEST_TIMEOUT;

/// A gate. Clones share its state.
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

    /// Releases all current and later waiters.
    pub fn open(&self) {
        let (state, changed) = &*self.0;
        state.lock().unwrap_or_else(PoisonError::into_inner).open = true;
        changed.notify_all();
    }

    /// Blocks until a thread waits at the gate. Panics after [`TEST_TIMEOUT`].
    pub fn wait_until_reached(&self) {
        let (state, changed) = &*self.0;
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (state, _) = changed
            .wait_timeout_while(state, TEST_TIMEOUT, |state| state.arrived == 0)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(state.arrived > 0, "no thread reached the gate within {TEST_TIMEOUT:?}");
    }

    /// Blocks until the gate opens.
    pub(super) fn wait_until_open(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.arrived += 1;
        changed.notify_all();
        drop(changed.wait_while(state, |state| !state.open).unwrap_or_else(PoisonError::into_inner));
    }
}
