mod seats;
