/* A shared library that is no Mooncake Store. */
int other(void) { return 0; }
