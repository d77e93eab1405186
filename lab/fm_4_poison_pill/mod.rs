mod pill;
