//! The lab: one folder per failure mode, with a page that explains it and tests that show it.
//!
//! A test named `damage_…` asserts the damage without a safeguard. `cargo xtask lab` runs it on a copy of the sources
//! without that safeguard; it fails on the unchanged engine, so it is ignored here. `prevented_…` passes on the
//! unchanged engine and fails without the safeguard. `recovered_…` shows the recovery.

mod outside;
mod support;

mod fm_1_duplicate_retry;
mod fm_2_torn_write;
mod fm_3_retry_storm;
mod fm_4_poison_pill;
mod fm_5_zombie_worker;
mod fm_6_quota_off_by_one;
mod fm_7_clock_jump;
mod fm_8_same_name_restart;
