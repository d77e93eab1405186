mod crash_points;
mod messages;
