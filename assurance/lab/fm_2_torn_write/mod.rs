mod crash_points;
mod engine_kills;
mod lost_messages;
mod operation_kinds;
mod prune_crashes;
