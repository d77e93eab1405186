mod crash_points;
