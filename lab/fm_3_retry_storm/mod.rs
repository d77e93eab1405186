mod storm;
