//! The lab: each failure mode has a folder, with a page that tells it and tests that show it.
//!
//! A test named `damage_…` asserts the damage that is done when a guard is missing. `cargo xtask lab` runs it on an engine
//! whose guard was taken out in a copy of the sources; on the engine as it is it fails, so it is ignored here.
//! `prevented_…` holds on the engine as it is and fails without the guard. `recovered_…` shows the way back.

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
