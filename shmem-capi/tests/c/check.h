/* What the test programs share. A check that fails names its place and its PE, and ends the job with status 1. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <shmem.h>

#define CHECK(WHAT)                                                                                                            \
    do {                                                                                                                       \
        if (!(WHAT)) {                                                                                                         \
            fprintf(stderr, "%s:%d: PE %d of %d: not so: %s\n", __FILE__, __LINE__, shmem_my_pe(), shmem_n_pes(), #WHAT);      \
            shmem_global_exit(1);                                                                                              \
        }                                                                                                                      \
    } while (0)

#endif
