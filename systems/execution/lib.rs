//! The execution system consists of its lifecycle file; this package contains its tests.
