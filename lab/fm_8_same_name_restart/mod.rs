mod restarted_worker;
