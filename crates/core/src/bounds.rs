//! How much one lifecycle file may ask of us. Files come from untrusted authors: every loop over a file's content is
//! bounded by one of these.

/// Sixteen real lifecycles take at most 7 KB each; 256 KB leaves room for generated ones.
pub const MAX_FILE_BYTES: usize = 256 * 1024;
/// Files checked together.
pub const MAX_FILES: usize = 256;
/// Arrays and inline tables inside each other in a file.
pub const MAX_NESTING_DEPTH: usize = 16;
/// A state set is one machine word.
pub const MAX_STATES: usize = 64;
pub const MAX_FIELDS: usize = 256;
pub const MAX_EVENTS: usize = 256;
/// Rows of one file, all events together.
pub const MAX_TRANSITIONS: usize = 1_000;
/// Entries of one list in a row: refuse, set, move, spawn, require, cascade, deliver.
pub const MAX_TRANSITION_ENTRIES: usize = 64;
/// Bytes of one expression, before the `cel` parser sees it: its stack grows with nesting.
pub const MAX_EXPRESSION_BYTES: usize = 4_096;
/// Brackets inside each other, and operators applied one to another, in one expression.
pub const MAX_EXPRESSION_DEPTH: usize = 32;
/// Steps one evaluation may take, counting a comprehension's body once for each element its range may have.
pub const MAX_EXPRESSION_COST: u64 = 1_000_000;
/// Hops from record to record in one path.
pub const MAX_PATH_HOPS: usize = 3;
/// Characters of a string that declares no bound of its own, and of a bare `error.message`.
pub const MAX_TEXT_CHARS: usize = 1_000;
/// Bytes of a JSON field that declares no bound of its own.
pub const DEFAULT_MAX_JSON_BYTES: usize = 64 * 1024;
/// Elements of a list that declares no bound of its own.
pub const DEFAULT_MAX_LIST_ITEMS: usize = 1_000;
/// Patterns of one file. Compiling one takes milliseconds at worst, and no shipped file has more than one.
pub const MAX_PATTERNS_PER_FILE: usize = 32;
/// Patterns of all files given together: each may take a quarter of a megabyte once it is compiled.
pub const MAX_PATTERNS_TOTAL: usize = 256;
/// Records one operation may touch; beyond it the operation is refused whole.
pub const MAX_RECORDS_PER_OPERATION: usize = 100_000;
/// Events one operation may offer. A record takes the same one once, but may be offered it by each record it hangs on.
pub const MAX_OFFERS_PER_OPERATION: usize = 1_000_000;
/// The longest wait that a worker's `retry_after` can ask for; a longer one is cut, so that no sum overflows.
pub const MAX_RETRY_AFTER: crate::time::Duration = crate::time::Duration::from_secs(365 * 24 * 3600);
/// Names: lifecycles, states, fields, events.
pub const MAX_NAME_BYTES: usize = 100;
/// Bytes of a payload where the lifecycle declares no `[payload] max`.
pub const DEFAULT_MAX_PAYLOAD_BYTES: u64 = 1024 * 1024;
/// Errors of one set of files that are told; the rest mostly follow from them.
pub const MAX_DIAGNOSTICS: usize = 1_000;
/// Messages after which no more is guessed at what was meant: a guess costs far more than a message.
pub const MAX_SUGGESTIONS: usize = 100;
