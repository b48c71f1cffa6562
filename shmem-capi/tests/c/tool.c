/* A program that puts its own function in the place of one of the library's, and calls that by its twin's name. */
#include <pshmem.h>

#include "check.h"

static int calls;
static long word;

void shmem_long_p(long *dest, long value, int pe)
{
    calls++;
    pshmem_long_p(dest, value + 1, pe);
}

int main(void)
{
    shmem_init();
    shmem_long_p(&word, 5, shmem_my_pe());
    CHECK(calls == 1 && word == 6);
    return 0;
}
