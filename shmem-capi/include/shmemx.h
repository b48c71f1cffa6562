/* Extensions of `shmem`: reductions by numbers of type and operation, all-to-all of unequal blocks, collectives that do not
 * block, teams by lists, the heap, time-outs and errors. */
#ifndef SHMEMX_H
#define SHMEMX_H

#include "shmem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    SHMEMX_I8,
    SHMEMX_I16,
    SHMEMX_I32,
    SHMEMX_I64,
    SHMEMX_U8,
    SHMEMX_U16,
    SHMEMX_U32,
    SHMEMX_U64,
    SHMEMX_F16,
    SHMEMX_BF16,
    SHMEMX_F32,
    SHMEMX_F64,
    SHMEMX_COMPLEXF,
    SHMEMX_COMPLEXD
} shmemx_type_t;

typedef enum {
    SHMEMX_SUM,
    SHMEMX_PROD,
    SHMEMX_MIN,
    SHMEMX_MAX,
    SHMEMX_AND,
    SHMEMX_OR,
    SHMEMX_XOR,
    SHMEMX_AVG
} shmemx_op_t;

/* A collective that is under way; of no team, one that has ended. */
typedef struct {
    shmem_team_t team;
    uint64_t call;
} shmemx_req_t;

#define SHMEMX_REQ_NULL {SHMEM_TEAM_INVALID, 0}

/* The combination of all sources, to every target; and block i of it, of nreduce elements, to PE i. f16 and bf16 are combined
 * in single precision and rounded once. */
SHMEM_PROTOTYPE(int, shmemx_reduce,
                (shmem_team_t team, void *dest, const void *source, size_t nreduce, shmemx_type_t type, shmemx_op_t op))
SHMEM_PROTOTYPE(int, shmemx_reduce_scatter,
                (shmem_team_t team, void *dest, const void *source, size_t nreduce, shmemx_type_t type, shmemx_op_t op))

/* Bytes for each PE and from each, and where they lie; any count may be 0. */
SHMEM_PROTOTYPE(int, shmemx_alltoallvmem,
                (shmem_team_t team, void *dest, const size_t *dest_counts, const size_t *dest_displs, const void *source,
                 const size_t *source_counts, const size_t *source_displs))

/* Started here, ended by test or wait; those of a team get on in their order, and on each PE in such calls only: one that waits
 * for something else holds up those that wait for the collective. Any other collective call of the team ends them first. */
SHMEM_PROTOTYPE(int, shmemx_reduce_nbi,
                (shmem_team_t team, void *dest, const void *source, size_t nreduce, shmemx_type_t type, shmemx_op_t op,
                 shmemx_req_t *request))
SHMEM_PROTOTYPE(int, shmemx_broadcastmem_nbi,
                (shmem_team_t team, void *dest, const void *source, size_t nelems, int PE_root, shmemx_req_t *request))
SHMEM_PROTOTYPE(int, shmemx_fcollectmem_nbi,
                (shmem_team_t team, void *dest, const void *source, size_t nelems, shmemx_req_t *request))
SHMEM_PROTOTYPE(int, shmemx_collectmem_nbi,
                (shmem_team_t team, void *dest, const void *source, size_t nelems, shmemx_req_t *request))
SHMEM_PROTOTYPE(int, shmemx_alltoallmem_nbi,
                (shmem_team_t team, void *dest, const void *source, size_t nelems, shmemx_req_t *request))
SHMEM_PROTOTYPE(int, shmemx_team_barrier_nbi, (shmem_team_t team, shmemx_req_t *request))
SHMEM_PROTOTYPE(int, shmemx_req_test, (shmemx_req_t *request, int *done))
SHMEM_PROTOTYPE(int, shmemx_req_wait, (shmemx_req_t *request))

/* The team of the listed PEs of the parent, in the list's order. Collective over the parent. */
SHMEM_PROTOTYPE(int, shmemx_team_split_list,
                (shmem_team_t parent_team, const int *pes, size_t npes, const shmem_team_config_t *config, long config_mask,
                 shmem_team_t *new_team))

/* Bytes of the symmetric heap, without the program's global variables; and of the largest block that can still be had. */
SHMEM_PROTOTYPE(size_t, shmemx_heap_size, (void))
SHMEM_PROTOTYPE(size_t, shmemx_heap_available, (void))

/* How long a wait of this PE may last; 0 or less for ever. */
SHMEM_PROTOTYPE(void, shmemx_set_timeout, (double seconds))

/* Whether functions with a status return their errors, as -1, instead of ending the job; and the text of this thread's latest
 * error, until its next. */
SHMEM_PROTOTYPE(void, shmemx_return_errors, (int wanted))
SHMEM_PROTOTYPE(const char *, shmemx_error_text, (void))

#ifdef __cplusplus
}
#endif

#endif
