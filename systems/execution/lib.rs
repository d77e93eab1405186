//! The execution system is its lifecycle file; this package carries the tests that play it.
