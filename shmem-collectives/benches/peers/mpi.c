/* The collectives of an MPI library, timed as benches/collectives.rs times ours: every iteration a barrier that is not timed, then the
 * call; the time of a batch is the mean over its iterations at the slowest process. Prints `RES label n test bytes us min median`. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCHES 11
#define LARGEST (16 << 20)

static int me, n;
static float *src, *dst;

static void broadcast(int len)
{
    /* The root's buffer is the source, everybody else's the target: no copy at the root, which is in the peer's favour. */
    MPI_Bcast(me == 0 ? src : dst, len, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void allreduce(int len) { MPI_Allreduce(src, dst, len, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static void alltoall(int len) { MPI_Alltoall(src, len, MPI_FLOAT, dst, len, MPI_FLOAT, MPI_COMM_WORLD); }
static void allgather(int len) { MPI_Allgather(src, len, MPI_FLOAT, dst, len, MPI_FLOAT, MPI_COMM_WORLD); }
static void reduce_scatter(int len) { MPI_Reduce_scatter_block(src, dst, len / n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double batch(long repeat, int len, void (*call)(int))
{
    double time = 0;
    for (long i = 0; i < repeat; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        call(len);
        time += MPI_Wtime() - begin;
    }
    return time;
}

static void measure(const char *label, const char *test, int bytes, void (*call)(int))
{
    double times[BATCHES];
    long repeat = 2;
    for (;;) {
        double begin = MPI_Wtime();
        batch(repeat, bytes / 4, call);
        long next = MPI_Wtime() - begin > 5e-3 ? 0 : 2 * repeat;
        MPI_Bcast(&next, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        if (next == 0)
            break;
        repeat = next;
    }
    for (int i = 0; i < BATCHES; i++) {
        double mine = batch(repeat, bytes / 4, call) / (double)repeat;
        MPI_Reduce(&mine, &times[i], 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    }
    qsort(times, BATCHES, sizeof times[0], ascending);
    if (me == 0)
        printf("RES %s %d %s %d us %.3f %.3f\n", label, n, test, bytes, times[0] * 1e6, times[BATCHES / 2] * 1e6);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    const char *label = argc > 1 ? argv[1] : "mpi";
    size_t room = (size_t)LARGEST * (size_t)n;
    if (posix_memalign((void **)&src, 4096, room) || posix_memalign((void **)&dst, 4096, room))
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t i = 0; i < room / 4; i++)
        src[i] = 1;
    memset(dst, 0, room);
    static const int sizes[] = {8, 1 << 10, 64 << 10, 1 << 20, LARGEST};
    for (int i = 0; i < 5; i++) {
        measure(label, "broadcast", sizes[i], broadcast);
        measure(label, "allreduce", sizes[i], allreduce);
        measure(label, "alltoall", sizes[i], alltoall);
        measure(label, "allgather", sizes[i], allgather);
        measure(label, "reduce_scatter", sizes[i], reduce_scatter);
    }
    MPI_Finalize();
    return 0;
}
