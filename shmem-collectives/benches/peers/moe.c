/* The exchange between experts by MPI_Alltoallv, timed as benches/moe.rs times ours: for each case a barrier that is not timed, then the
 * dispatch (pack the tokens for each process, each once whatever the number of its experts there; exchange counts; exchange tokens and
 * choices), a barrier, then the combination (outputs back in the order of the choices; weighted sums in f32). Arguments: iterations, then
 * cases `tokens:hidden:top_k:experts:bytes:routing`. Prints `RES case dispatch us` and `RES case combine us`. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, n;

static uint64_t state;
static long below(long bound)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (long)((state >> 11) % (uint64_t)bound);
}

static void *room(size_t bytes)
{
    void *start;
    if (posix_memalign(&start, 4096, bytes + 4096))
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(start, 1, bytes + 4096);
    return start;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double slowest(double mine)
{
    double all;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all * 1e6;
}

static float widen(uint16_t value)
{
    uint32_t bits = (uint32_t)value << 16;
    float number;
    memcpy(&number, &bits, 4);
    return number;
}

static uint16_t narrow(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void run(const char *text, int iterations)
{
    int tokens, hidden, top_k, experts, bytes;
    char routing[16];
    if (sscanf(text, "%d:%d:%d:%d:%d:%15s", &tokens, &hidden, &top_k, &experts, &bytes, routing) != 6)
        MPI_Abort(MPI_COMM_WORLD, 1);
    int choices = tokens * top_k;
    int *chosen = room(sizeof(int) * (size_t)choices);
    state = 88172645463325252u + (uint64_t)me;
    for (int t = 0; t < tokens; t++)
        for (int k = 0; k < top_k;) {
            int *own = chosen + t * top_k, expert, twice = 0;
            if (strcmp(routing, "single") == 0)
                expert = k == 0 ? 0 : -1;
            else if (strcmp(routing, "skewed") == 0 && below(2) == 0)
                expert = (int)below(experts / 8);
            else
                expert = (int)below(experts);
            for (int i = 0; i < k; i++)
                twice |= expert >= 0 && own[i] == expert;
            if (!twice)
                own[k++] = expert;
        }
    /* Neighbouring experts on each process, as ours lie; the counts of these cases divide. */
    int each = experts / n;
    size_t most = (size_t)tokens * (size_t)n;
    uint8_t *source = room((size_t)tokens * (size_t)bytes);
    uint8_t *packed = room(most * (size_t)bytes), *arrived = room(most * (size_t)bytes);
    int *heads = room(most * sizeof(int) * (size_t)(1 + top_k)), *heads_in = room(most * sizeof(int) * (size_t)(1 + top_k));
    size_t output = (size_t)hidden * 2;
    uint16_t *outputs = room(most * (size_t)top_k * output), *returned = room((size_t)choices * output);
    uint16_t *sums = room((size_t)tokens * output);
    int sent[64], sent_at[64], come[64], come_at[64], back[64], back_at[64], owed[64], owed_at[64], next[64];
    int head = 1 + top_k;
    float weight = 1.0f / (float)top_k;
    MPI_Datatype token, out, line;
    MPI_Type_contiguous(bytes, MPI_BYTE, &token);
    MPI_Type_contiguous((int)output, MPI_BYTE, &out);
    MPI_Type_contiguous(head, MPI_INT, &line);
    MPI_Type_commit(&token);
    MPI_Type_commit(&out);
    MPI_Type_commit(&line);
    double *there = malloc(sizeof(double) * (size_t)(iterations + 2)), *home = malloc(sizeof(double) * (size_t)(iterations + 2));
    float *acc = malloc(sizeof(float) * (size_t)hidden);
    for (int i = 0; i < iterations + 2; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        memset(sent, 0, sizeof sent);
        memset(back, 0, sizeof back);
        for (int t = 0; t < tokens; t++) {
            uint64_t seen = 0;
            for (int k = 0; k < top_k; k++) {
                int expert = chosen[t * top_k + k], pe = expert / each;
                if (expert < 0)
                    continue;
                sent[pe] += !(seen >> pe & 1);
                back[pe]++;
                seen |= (uint64_t)1 << pe;
            }
        }
        for (int pe = 0, at = 0; pe < n; at += sent[pe++])
            sent_at[pe] = next[pe] = at;
        for (int t = 0; t < tokens; t++) {
            uint64_t seen = 0;
            for (int k = 0; k < top_k; k++) {
                int expert = chosen[t * top_k + k], pe = expert / each;
                if (expert < 0)
                    continue;
                if (!(seen >> pe & 1)) {
                    int place = next[pe]++;
                    memcpy(packed + (size_t)place * (size_t)bytes, source + (size_t)t * (size_t)bytes, (size_t)bytes);
                    heads[place * head] = 0;
                    seen |= (uint64_t)1 << pe;
                }
                int *own = heads + (next[pe] - 1) * head;
                own[1 + own[0]++] = expert % each;
            }
        }
        MPI_Alltoall(sent, 1, MPI_INT, come, 1, MPI_INT, MPI_COMM_WORLD);
        for (int pe = 0, at = 0; pe < n; at += come[pe++])
            come_at[pe] = at;
        MPI_Alltoallv(heads, sent, sent_at, line, heads_in, come, come_at, line, MPI_COMM_WORLD);
        MPI_Alltoallv(packed, sent, sent_at, token, arrived, come, come_at, token, MPI_COMM_WORLD);
        there[i] = slowest(MPI_Wtime() - begin);
        MPI_Barrier(MPI_COMM_WORLD);
        begin = MPI_Wtime();
        for (int pe = 0, at = 0; pe < n; pe++) {
            owed[pe] = 0;
            for (int row = 0; row < come[pe]; row++)
                owed[pe] += heads_in[(come_at[pe] + row) * head];
            owed_at[pe] = at;
            at += owed[pe];
        }
        for (int pe = 0, at = 0; pe < n; at += back[pe++])
            back_at[pe] = next[pe] = at;
        MPI_Alltoallv(outputs, owed, owed_at, out, returned, back, back_at, out, MPI_COMM_WORLD);
        for (int t = 0; t < tokens; t++) {
            memset(acc, 0, sizeof(float) * (size_t)hidden);
            for (int k = 0; k < top_k; k++) {
                int expert = chosen[t * top_k + k], pe = expert / each;
                if (expert < 0)
                    continue;
                const uint16_t *row = returned + (size_t)next[pe]++ * (size_t)hidden;
                for (int h = 0; h < hidden; h++)
                    acc[h] += widen(row[h]) * weight;
            }
            for (int h = 0; h < hidden; h++)
                sums[(size_t)t * (size_t)hidden + (size_t)h] = narrow(acc[h]);
        }
        home[i] = slowest(MPI_Wtime() - begin);
    }
    qsort(there + 2, (size_t)iterations, sizeof *there, ascending);
    qsort(home + 2, (size_t)iterations, sizeof *home, ascending);
    if (me == 0)
        printf("RES %s dispatch %f\nRES %s combine %f\n", text, there[2 + iterations / 2], text, home[2 + iterations / 2]);
    MPI_Type_free(&token);
    MPI_Type_free(&out);
    MPI_Type_free(&line);
    void *all[] = {chosen, source, packed, arrived, heads, heads_in, outputs, returned, sums, there, home, acc};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    if (argc < 2 || n > 64)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 2; i < argc; i++)
        run(argv[i], atoi(argv[1]));
    MPI_Finalize();
    return 0;
}
