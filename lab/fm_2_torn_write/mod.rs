mod crash_points;
mod messages;
mod pruning;
