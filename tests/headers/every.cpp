#include "every.c"
