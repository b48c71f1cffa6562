/* Extensions of `shmem`: reductions by numbers of type and operation, all-to-all of unequal blocks, collectives that do not
 * block, exchange between experts, teams by lists, the heap, time-outs and errors. */
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

/* Started here, ended by test or wait. Those of a team get on in their order, and those of all teams of a PE in each test and
 * wait, so that PEs may wait for different teams in different orders. They get on in nothing else: a PE in another call,
 * be it a collective of another team, holds up those that wait for them. Any other collective call of the team ends them first.
 * After the team is destroyed a request is an error. */
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

/* Exchange between the experts of a mixture (MoE), of PEs of a team: see docs/moe.md. Numbers of PEs are the team's. Values are
 * of the payload's element type: float, f16 or bf16 (fp8 travels, and is bf16 before and afterwards); those that are only read
 * may lie at any address. A handle is used by one thread at a time; others wait. */
typedef struct shmemx_moe_opaque *shmemx_moe_t;
typedef struct shmemx_moe_layout_opaque *shmemx_moe_layout_t;

#define SHMEMX_MOE_INVALID SHMEM_HANDLE(shmemx_moe_t, 0L)

typedef enum { SHMEMX_MOE_BF16, SHMEMX_MOE_F16, SHMEMX_MOE_F32, SHMEMX_MOE_FP8_E4M3 } shmemx_moe_payload_t;

typedef enum { SHMEMX_MOE_AUTO, SHMEMX_MOE_LATENCY, SHMEMX_MOE_THROUGHPUT } shmemx_moe_mode_t;

/* What an exchange is made for, equal on all PEs of the team. */
typedef struct {
    size_t experts;    /* in all */
    size_t max_tokens; /* of a PE in a round, at most */
    size_t hidden;     /* values of a token */
    size_t top_k;      /* choices of a token, 1 to 16 */
    shmemx_moe_payload_t payload;
    shmemx_moe_mode_t mode;
    const int *placement; /* the PE of each expert; NULL: neighbours, as many on each PE */
    void *memory;         /* symmetric, at a multiple of 128, of shmemx_moe_buffer_bytes(); NULL: it is allocated */
    int leave_out_lost;   /* not 0: lost PEs are left out; 0: they are errors, and may be masked */
} shmemx_moe_config_t;

/* A token for an expert: its position at its source, that PE, and the weight that combine() gives the output there. */
typedef struct {
    size_t position;
    int source;
    float weight;
} shmemx_moe_row_t;

/* Bytes of symmetric memory that an exchange takes. Of this PE alone. */
SHMEM_PROTOTYPE(int, shmemx_moe_buffer_bytes, (shmem_team_t team, const shmemx_moe_config_t *config, size_t *bytes))

/* Makes an exchange, and says how many bytes it takes (bytes may be NULL). Collective over the team; where memory is
 * allocated, over all PEs, and so is its free. What is wrong with a PE's arguments is told to all PEs, but for the team. An
 * exchange is freed before its team is destroyed. */
SHMEM_PROTOTYPE(int, shmemx_moe_create,
                (shmem_team_t team, const shmemx_moe_config_t *config, shmemx_moe_t *moe, size_t *bytes))
SHMEM_PROTOTYPE(int, shmemx_moe_free, (shmemx_moe_t moe))

/* A round, all of which is collective: dispatch, or send and recv; then combine. For each token there are `hidden` values, and
 * `top_k` experts (-1: none) and weights; there may be no token. Blocks until the tokens of all PEs are here; send returns when
 * the arguments may be used again. Called again after a loss, dispatch goes on where it stopped. What is wrong with a PE's
 * arguments is told to all PEs by dispatch and recv: the round does not take place, and the next may begin. */
SHMEM_PROTOTYPE(int, shmemx_moe_dispatch,
                (shmemx_moe_t moe, const void *tokens, const int *experts, const float *weights, size_t ntokens))
SHMEM_PROTOTYPE(int, shmemx_moe_send,
                (shmemx_moe_t moe, const void *tokens, const int *experts, const float *weights, size_t ntokens))
SHMEM_PROTOTYPE(int, shmemx_moe_recv, (shmemx_moe_t moe))

/* Ends the round: of each token of this PE the sum of its experts' outputs times their weights, made in single precision in the
 * order of its choices and rounded once. Blocks until the outputs are there. */
SHMEM_PROTOTYPE(int, shmemx_moe_combine, (shmemx_moe_t moe, void *outputs, size_t ntokens))

/* The experts of this PE, which have these numbers; their address (experts may be NULL) is good until the exchange is freed. */
SHMEM_PROTOTYPE(int, shmemx_moe_experts, (shmemx_moe_t moe, const int **experts, size_t *nexperts))

/* What was received, from recv until combine or the next send, for an expert by its place in that list: how many tokens; whose
 * they are, by source and position; their values, copied out one behind the other in that order; and its outputs, copied in in
 * the same. `nrows` must be the number that shmemx_moe_nrows() has said. Of this PE alone. */
SHMEM_PROTOTYPE(int, shmemx_moe_nrows, (shmemx_moe_t moe, size_t expert, size_t *nrows))
SHMEM_PROTOTYPE(int, shmemx_moe_rows, (shmemx_moe_t moe, size_t expert, shmemx_moe_row_t *rows, size_t nrows))
SHMEM_PROTOTYPE(int, shmemx_moe_gather, (shmemx_moe_t moe, size_t expert, void *dest, size_t nrows))
SHMEM_PROTOTYPE(int, shmemx_moe_scatter, (shmemx_moe_t moe, size_t expert, const void *source, size_t nrows))

/* Keeps who goes where of the round that was received, on all PEs or none; sends other tokens, as many, the same ways. A layout
 * lasts until it or the exchange is freed. */
SHMEM_PROTOTYPE(int, shmemx_moe_layout, (shmemx_moe_t moe, shmemx_moe_layout_t *layout))
SHMEM_PROTOTYPE(int, shmemx_moe_layout_free, (shmemx_moe_t moe, shmemx_moe_layout_t layout))
SHMEM_PROTOTYPE(int, shmemx_moe_dispatch_again,
                (shmemx_moe_t moe, shmemx_moe_layout_t layout, const void *tokens, size_t ntokens))
SHMEM_PROTOTYPE(int, shmemx_moe_send_again,
                (shmemx_moe_t moe, shmemx_moe_layout_t layout, const void *tokens, size_t ntokens))

/* The PE for which the last call failed (lost, late, or left out by another), or -1; leaves a PE out from now on, after which
 * the call can be made again; outputs that were missing from the sums of the last combine; bytes of tokens that the last send
 * has put. Of this PE alone. */
SHMEM_PROTOTYPE(int, shmemx_moe_culprit, (shmemx_moe_t moe, int *pe))
SHMEM_PROTOTYPE(int, shmemx_moe_mask, (shmemx_moe_t moe, int pe))
SHMEM_PROTOTYPE(int, shmemx_moe_missing, (shmemx_moe_t moe, size_t *noutputs))
SHMEM_PROTOTYPE(int, shmemx_moe_moved, (shmemx_moe_t moe, size_t *bytes))

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
 * error, until its next. What is wrong with a collective on one PE, but for its team, is then an error on all, of one that is
 * started at its end. */
SHMEM_PROTOTYPE(void, shmemx_return_errors, (int wanted))
SHMEM_PROTOTYPE(const char *, shmemx_error_text, (void))

#ifdef __cplusplus
}
#endif

#endif
