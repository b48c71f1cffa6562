/* The collectives of active sets: of all PEs, and of every second one; the words they work with are as they were afterwards, and
 * what lies beside any buffer is not touched. */
#include <shmem.h>
#include <string.h>

#include "check.h"

#define LEN 5
#define MOST 16

static long sync_words[SHMEM_SYNC_SIZE + 2];
static int dest[LEN * MOST + 2], source[LEN * MOST];
static int work[LEN];
static long long word;

static void clear(void)
{
    for (int i = 0; i < LEN * MOST + 2; i++) dest[i] = -1;
    shmem_barrier_all();
}

static void use(int start, int log_stride, int size)
{
    long *sync = sync_words + 1;
    int me = shmem_my_pe(), stride = 1 << log_stride, mine = (me - start) / stride;
    int member = me >= start && (me - start) % stride == 0 && mine < size;
    for (int round = 0; round < 3; round++) {
        int *to = dest + 1, root = size - 1, at = 0;
        for (int i = 0; i < LEN * MOST; i++) source[i] = 1000 * me + i;
        clear();
        if (member) {
            shmem_broadcast32(to, source, LEN, root, start, log_stride, size, sync);
            for (int i = 0; i < LEN; i++) CHECK(to[i] == (mine == root ? -1 : 1000 * (start + root * stride) + i));
        }
        clear();
        if (member) {
            shmem_fcollect32(to, source, LEN, start, log_stride, size, sync);
            for (int i = 0; i < LEN * size; i++) CHECK(to[i] == 1000 * (start + i / LEN * stride) + i % LEN);
            CHECK(to[LEN * size] == -1);
        }
        clear();
        if (member) {
            shmem_collect32(to, source, (size_t)(mine % 3), start, log_stride, size, sync);
            for (int pe = 0; pe < size; pe++)
                for (int i = 0; i < pe % 3; i++) CHECK(to[at++] == 1000 * (start + pe * stride) + i);
            CHECK(to[at] == -1);
        }
        clear();
        if (member) {
            shmem_alltoall32(to, source, 2, start, log_stride, size, sync);
            for (int i = 0; i < 2 * size; i++) CHECK(to[i] == 1000 * (start + i / 2 * stride) + 2 * mine + i % 2);
            CHECK(to[2 * size] == -1);
        }
        clear();
        if (member) {
            shmem_alltoalls32(to, source, 2, 3, 1, start, log_stride, size, sync);
            for (int i = 0; i < size; i++) CHECK(to[2 * i] == 1000 * (start + i * stride) + 3 * mine && to[2 * i + 1] == -1);
        }
        clear();
        if (member) {
            shmem_int_sum_to_all(to, source, LEN, start, log_stride, size, work, sync);
            for (int i = 0; i < LEN; i++) CHECK(to[i] == 1000 * (size * start + stride * size * (size - 1) / 2) + size * i);
            shmem_barrier(start, log_stride, size, sync);
            /* In place. */
            shmem_int_max_to_all(source, source, LEN, start, log_stride, size, work, sync);
            for (int i = 0; i < LEN; i++) CHECK(source[i] == 1000 * (start + root * stride) + i);
            shmem_barrier(start, log_stride, size, sync);
            shmem_longlong_p(&word, mine + 1, start + (mine + 1) % size * stride);
            shmem_barrier(start, log_stride, size, sync);
            CHECK(word == (mine + size - 1) % size + 1);
            shmem_sync(start, log_stride, size, sync);
        }
        shmem_barrier_all();
        for (int i = 0; i < SHMEM_SYNC_SIZE; i++) CHECK(sync[i] == SHMEM_SYNC_VALUE);
        CHECK(sync_words[0] == 77 && sync_words[SHMEM_SYNC_SIZE + 1] == 77 && dest[0] == -1);
    }
}

int main(void)
{
    sync_words[0] = sync_words[SHMEM_SYNC_SIZE + 1] = 77;
    for (int i = 0; i < SHMEM_SYNC_SIZE; i++) sync_words[i + 1] = _SHMEM_SYNC_VALUE;
    start_pes(0);
    int n = _num_pes();
    CHECK(_my_pe() == shmem_my_pe() && n == shmem_n_pes() && n <= MOST);
    use(0, 0, n);
    use(0, 1, (n + 1) / 2);
    if (n > 2) use(1, 1, n / 2);
    if (n > 2) use(1, 0, n - 1);
    use(n - 1, 0, 1);

    int *old = (int *)shmalloc(2 * sizeof *old);
    old[0] = 0;
    shmem_barrier_all();
    shmem_int_add(old, 2, 0);
    CHECK(shmem_int_fadd(old, 1, 0) >= 2 && shmem_int_fetch(old, 0) >= 3);
    shmem_int_inc(old, 0);
    shmem_int_finc(old, 0);
    shmem_barrier_all();
    if (shmem_my_pe() == 0) CHECK(old[0] == 5 * n);
    shmem_barrier_all();
    CHECK(shmem_int_cswap(old, -5, 1, 0) == 5 * n);
    shmem_barrier_all();
    if (shmem_my_pe() == 0) CHECK(shmem_int_swap(old, 9, n - 1) != 9);
    shmem_barrier_all();
    shmem_int_wait(old, shmem_my_pe() == n - 1 ? 5 * n : -1);
    old = (int *)shrealloc(old, 4 * sizeof *old);
    CHECK(old != NULL);
    shfree(old);
    void *wide = shmemalign(1 << 20, 8);
    CHECK(((uintptr_t)wide & ((1 << 20) - 1)) == 0);
    shfree(wide);
    return 0; /* finalised by the end of the process */
}
