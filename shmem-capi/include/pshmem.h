/* The profiling interface: every function of shmem.h has a twin whose name begins with `p`, declared there beside it. */
#ifndef PSHMEM_H
#define PSHMEM_H

#include "shmem.h"

#endif
