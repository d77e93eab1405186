mod clock_steps;
