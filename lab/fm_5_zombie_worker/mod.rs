mod zombie;
