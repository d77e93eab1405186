//! Logs a repeated error when it begins or changes, not each time.

/// The error code that was logged last.
#[derive(Debug, Default)]
pub(crate) struct LogOnChange(Option<String>);

impl LogOnChange {
    /// Returns whether this code differs from the last one, and remembers it.
    pub(crate) fn should_log(&mut self, code: &str) -> bool {
        if self.0.as_deref() == Some(code) {
            return false;
        }
        self.0 = Some(code.to_owned());
        true
    }

    /// Forgets the last error after a success.
    pub(crate) fn reset(&mut self) {
        self.0 = None;
    }
}
