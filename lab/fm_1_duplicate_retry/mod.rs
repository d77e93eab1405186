mod processes;
mod two_workers;
