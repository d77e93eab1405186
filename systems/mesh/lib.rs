//! The mesh system consists of its lifecycle files; this package contains its tests.
