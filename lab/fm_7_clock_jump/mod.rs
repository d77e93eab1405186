mod jumps;
