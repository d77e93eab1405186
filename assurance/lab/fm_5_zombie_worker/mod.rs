mod stale_commit;
