//! Limits on lifecycle files and operations. Lifecycle files come from untrusted authors, so one of these limits bounds
//! every loop over a file's content.

/// The sixteen lifecycles in use take at most 7 KB each; 256 KB leaves room for generated files.
pub const MAX_FILE_BYTES: usize = 256 * 1024;
/// Most files in one set.
pub const MAX_FILES: usize = 256;
/// Deepest nesting of arrays and inline tables in a file.
pub const MAX_NESTING_DEPTH: usize = 16;
/// A [`StateSet`](crate::model::StateSet) is one 64-bit word.
pub const MAX_STATES: usize = 64;
pub const MAX_FIELDS: usize = 256;
pub const MAX_EVENTS: usize = 256;
/// Most transitions of one file, over all events.
pub const MAX_TRANSITIONS: usize = 1_000;
/// Most entries of one list of a transition: refuse, set, move, spawn, require, cascade, deliver.
pub const MAX_TRANSITION_ENTRIES: usize = 64;
/// Longest expression. Checked before the `cel` parser runs, because its stack grows with nesting.
pub const MAX_EXPRESSION_BYTES: usize = 4_096;
/// Deepest nesting of brackets and operators in one expression.
pub const MAX_EXPRESSION_DEPTH: usize = 32;
/// Most steps of one evaluation. The body of a comprehension counts once per element that its range may have.
pub const MAX_EXPRESSION_COST: u64 = 1_000_000;
/// Most hops from record to record in one path.
pub const MAX_PATH_HOPS: usize = 3;
/// Most characters of a string that declares no bound, and of `error.message`.
pub const MAX_TEXT_CHARS: usize = 1_000;
/// Most bytes of a JSON field that declares no bound.
pub const DEFAULT_MAX_JSON_BYTES: usize = 64 * 1024;
/// Most elements of a list that declares no bound.
pub const DEFAULT_MAX_LIST_ITEMS: usize = 1_000;
/// Most patterns of one file. Compiling a pattern takes milliseconds at worst; no shipped file has more than one.
pub const MAX_PATTERNS_PER_FILE: usize = 32;
/// Most patterns of one set of files. A compiled pattern may take a quarter of a megabyte.
pub const MAX_PATTERNS_TOTAL: usize = 256;
/// Most records that one operation may reach. Beyond it, the engine refuses the whole operation.
pub const MAX_RECORDS_PER_OPERATION: usize = 100_000;
/// Most events that one operation may offer. A record takes a cascaded event once per operation, but each record that
/// refers to it may offer the event again.
pub const MAX_OFFERS_PER_OPERATION: usize = 1_000_000;
/// Longest `retry_after` of a worker. The engine cuts a longer one, so that adding it to a time does not overflow.
pub const MAX_RETRY_AFTER: crate::time::Duration = crate::time::Duration::from_secs(365 * 24 * 3600);
/// Longest name of a lifecycle, state, field or event.
pub const MAX_NAME_BYTES: usize = 100;
/// Most bytes of a payload if the lifecycle declares no `[payload] max`.
pub const DEFAULT_MAX_PAYLOAD_BYTES: u64 = 1024 * 1024;
/// Most diagnostics reported for one set of files. Later errors mostly follow from earlier ones.
pub const MAX_DIAGNOSTICS: usize = 1_000;
/// Diagnostics after which suggestions stop: a suggestion costs far more than the message itself.
pub const MAX_SUGGESTIONS: usize = 100;
