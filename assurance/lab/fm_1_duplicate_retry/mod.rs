mod two_workers;
mod worker_processes;
