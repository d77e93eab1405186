//! What goes wrong again and again is told when it begins, and when it becomes something else; not each time.

/// What was told last, of one thing that is tried again and again.
#[derive(Debug, Default)]
pub(crate) struct LogOnChange(Option<String>);

impl LogOnChange {
    /// Whether this was not told yet. From now on it was.
    pub(crate) fn should_log(&mut self, code: &str) -> bool {
        if self.0.as_deref() == Some(code) {
            return false;
        }
        self.0 = Some(code.to_owned());
        true
    }

    /// It goes well: should it fail again, that is new.
    pub(crate) fn reset(&mut self) {
        self.0 = None;
    }
}
