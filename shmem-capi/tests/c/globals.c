/* Global and static variables are symmetric where they are: initialised and not, large and small, of the file and of a function;
 * and a child that is forked has its own. */
#include <shmem.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

long initialised = 41;
static int file_local[3] = {7, 8, 9};
double large[1 << 20];
static char hardly_used[256 << 20];
const int constant = 5;
static long lock;
static uint64_t bell;

int main(void)
{
    static short in_function = 3;
    long before = initialised;
    initialised = 42;
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
    CHECK(before == 41 && initialised == 42 && file_local[2] == 9 && in_function == 3 && large[77] == 0);
    CHECK(shmem_addr_accessible(&initialised, right) && shmem_addr_accessible(&hardly_used[sizeof hardly_used - 1], right));
    int on_stack;
    CHECK(!shmem_addr_accessible(&on_stack, right) && !shmem_addr_accessible(&constant, right));
    shmem_barrier_all();

    shmem_long_p(&initialised, 100 + me, right);
    shmem_int_atomic_add(&file_local[1], me + 1, right);
    shmem_short_p(&in_function, (short)me, right);
    shmem_double_p(&large[(1 << 20) - 1], me + 0.5, right);
    shmem_char_p(&hardly_used[200 << 20], (char)(me + 1), right);
    shmem_barrier_all();
    CHECK(initialised == 100 + left && file_local[1] == 8 + left + 1 && in_function == left);
    CHECK(large[(1 << 20) - 1] == left + 0.5 && hardly_used[200 << 20] == left + 1);

    /* A pointer to another PE's, and what is written there. */
    long *theirs = shmem_ptr(&initialised, right);
    if (theirs != NULL) CHECK(*theirs == 100 + me);
    CHECK(shmem_ptr(&initialised, me) == &initialised && shmem_ptr(&on_stack, me) == NULL);
    shmem_barrier_all();

    /* From a global variable to one, and locks and signals in them. */
    shmem_double_put(large, &large[(1 << 20) - 1], 1, right);
    shmem_barrier_all();
    CHECK(large[0] == (me + 2 * n - 2) % n + 0.5);
    shmem_set_lock(&lock);
    shmem_long_p(&initialised, shmem_long_g(&initialised, 0) + 1, 0);
    shmem_clear_lock(&lock);
    shmem_barrier_all();
    if (me == 0) CHECK(initialised == 100 + left + n);
    shmem_int_put_signal(file_local, file_local, 3, &bell, 1, SHMEM_SIGNAL_SET, right);
    shmem_signal_wait_until(&bell, SHMEM_CMP_EQ, 1);
    shmem_barrier_all();

    /* What a forked child writes is its own. */
    long mine = initialised;
    pid_t child = fork();
    if (child == 0) {
        initialised = -1;
        memset(file_local, 0, sizeof file_local);
        _exit(initialised == -1 && large[0] != 0 ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(initialised == mine && file_local[2] == 9);

    /* They keep their values when the job ends, and when another begins. */
    shmem_finalize();
    if (initialised != mine || file_local[2] != 9) return 2;
    initialised = 5 + me;
    shmem_init();
    CHECK(initialised == 5 + me);
    CHECK(shmem_long_g(&initialised, right) == 5 + right);
    shmem_barrier_all();
    shmem_finalize();
    return 0;
}
