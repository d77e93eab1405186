//! The relay system is its lifecycle files; this package carries the tests that play it.
