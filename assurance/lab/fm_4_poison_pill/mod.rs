mod poison_job;
