mod returned;
