/* The calls of cost.rs, from C: nanoseconds of each, on a line each. */
#include <shmem.h>
#include <stdio.h>
#include <time.h>

#define CALLS 200000
#define BATCHES 15

static long in_globals;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

#define MEASURE(NAME, CALL)                                                                                                    \
    do {                                                                                                                       \
        double best = 1e9;                                                                                                     \
        for (int batch = 0; batch < BATCHES; batch++) {                                                                        \
            double begin = now();                                                                                              \
            for (long i = 0; i < CALLS; i++) CALL;                                                                             \
            double each = (now() - begin) / CALLS;                                                                             \
            if (each < best) best = each;                                                                                      \
        }                                                                                                                      \
        printf("%s\t%f\n", NAME, best);                                                                                        \
    } while (0)

int main(void)
{
    shmem_init();
    int other = 1;
    long *heap = shmem_calloc(8, sizeof *heap), source[8] = {1, 2, 3, 4, 5, 6, 7, 8}, target[8];
    volatile long sum = 0;
    if (shmem_my_pe() == 0) {
        MEASURE("p", shmem_long_p(heap, i, other));
        MEASURE("p to a global variable", shmem_long_p(&in_globals, i, other));
        MEASURE("g", sum += shmem_long_g(heap, other));
        MEASURE("put, 8 bytes", shmem_long_put(heap, source, 1, other));
        MEASURE("get, 8 bytes", shmem_long_get(target, heap, 1, other));
        MEASURE("put_nbi, 8 bytes", shmem_long_put_nbi(heap, source, 1, other));
        MEASURE("put, then quiet", (shmem_long_put(heap, source, 1, other), shmem_quiet()));
        MEASURE("iput, 4 elements", shmem_long_iput(heap, source, 2, 1, 4, other));
        MEASURE("atomic_fetch_add", sum += shmem_long_atomic_fetch_add(heap, 1, other));
        MEASURE("test", sum += shmem_long_test(heap, SHMEM_CMP_EQ, -1));
    }
    shmem_barrier_all();
    shmem_finalize();
    return 0;
}
