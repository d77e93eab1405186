mod crash_points;
mod cuts;
mod kinds;
mod messages;
mod pruning;
