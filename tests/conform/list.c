// The checks, in the order in which they run. A gate that fails ends the run: what follows rests on
// it.
#include "conform.h"

#include <string.h>

const char *const conform_level_names[CONFORM_LEVELS] = {"loads", "memory", "correct", "serves",
                                                         "fast"};

#define CHECK(name, level, gate, fn, what) \
    { name, level, gate, what, conform_##fn, NULL }
#define PART(name, level, fn, part, what) \
    { name, level, 0, what, conform_##fn, part }

const conform_check conform_checks[] = {
    CHECK("loads.manifest", 0, 1, manifest, "the JSON file beside the library is there and valid"),
    CHECK("loads.symbols", 0, 0, symbols, "one exported symbol, none needed of the host"),
    CHECK("loads.constructors", 0, 0, constructors, "no code runs when the library is opened"),
    CHECK("loads.dependencies", 0, 0, dependencies, "linked with the C library and little else"),
    CHECK("loads.truth", 0, 1, truth, "library and manifest say the same"),
    CHECK("loads.probe", 0, 0, probe, "probe answers, with a reason when it finds nothing"),
    CHECK("loads.silent", 0, 0, silent, "opening, work and closing print nothing, end nothing"),
    CHECK("loads.no_device", 0, 0, no_device, "drivers told to hide: a sentence, no crash"),
    CHECK("loads.info", 0, 1, info, "the device opens and describes itself"),
    CHECK("loads.sizes", 0, 0, sizes, "out-structs of older and newer hosts"),
    CHECK("loads.families", 0, 0, families, "weight and kv functions are filled as a whole"),
    CHECK("loads.manners", 0, 0, manners, "locale, signals, rounding, threads, files untouched"),
    CHECK("loads.open_close", 0, 0, open_close, "opening in a loop leaves nothing behind"),

    CHECK("memory.buffers", 1, 1, buffers, "zeroed, aligned, keep what is copied in"),
    CHECK("memory.import", 1, 0, import, "host memory as a buffer"),
    CHECK("memory.map", 1, 0, map, "the host address of a buffer"),
    CHECK("memory.too_much", 1, 0, too_much, "more than there is: OUT_OF_MEMORY, nothing changed"),
    CHECK("memory.no_memory", 1, 0, no_memory, "each allocation fails once, without a trace"),
    CHECK("memory.handles", 1, 0, handles_leak, "handles made and destroyed leave nothing behind"),
    CHECK("queue.copy", 1, 1, copy, "to the device, on it and back, at odd offsets"),
    CHECK("queue.pitch", 1, 0, pitch, "copies of rows with pitches"),
    CHECK("queue.lists", 1, 0, lists, "dependent copies in lists, in order"),
    CHECK("queue.fill", 1, 0, fill, "fills in order"),
    CHECK("queue.numbers", 1, 0, numbers, "signal, done, host_wait count up together"),
    CHECK("queue.timeouts", 1, 0, timeouts, "TIMEOUT when it is not reached, in time"),
    CHECK("queue.across", 1, 0, across, "order across queues by wait"),
    CHECK("queue.destroy", 1, 0, destroy, "destroy waits for what is enqueued"),
    CHECK("queue.notify", 1, 0, notify, "called once, when the number is reached"),

    PART("ops.embed", 2, ops, "embed",
         "embed against the reference: rows of a weight, tokens of slots"),
    PART("ops.gather_rows", 2, ops, "gather_rows",
         "gather_rows against the reference: output rows"),
    PART("ops.rmsnorm", 2, ops, "rmsnorm", "rmsnorm against the reference"),
    PART("ops.rope", 2, ops, "rope", "rope against the reference"),
    PART("ops.gemm", 2, ops, "gemm",
         "gemm against the reference: bias, activation, residual, slices"),
    PART("ops.kv_write", 2, ops, "kv_write",
         "kv_write against the reference: each token into its slot, rounded"),
    PART("ops.attn", 2, ops, "attn",
         "attn against the reference: windows, softcap, sinks, slopes, lse"),
    PART("ops.act_mul", 2, ops, "act_mul", "act_mul against the reference"),
    PART("ops.add", 2, ops, "add", "add against the reference"),
    PART("ops.argmax", 2, ops, "argmax",
         "argmax against the reference: lowest id on a tie, NaN never wins"),
    CHECK("correct.plans", 2, 0, plans, "nothing is written behind what plans asked for"),
    CHECK("correct.offsets", 2, 0, offsets, "weights and caches behind offsets of their buffers"),
    CHECK("correct.refusals", 2, 0, refusals, "what a version does not know is UNSUPPORTED"),
    PART("golden.llama-llama3", 2, golden, "llama-llama3",
         "tokens of a tiny model by other software: Llama, rope of Llama 3"),
    PART("golden.mistral-window", 2, golden, "mistral-window",
         "tokens of a tiny model by other software: Mistral, sliding window"),
    PART("golden.qwen2-window", 2, golden, "qwen2-window",
         "tokens of a tiny model by other software: Qwen2, biases, windows"),
    PART("golden.qwen3-window", 2, golden, "qwen3-window",
         "tokens of a tiny model by other software: Qwen3, norms of heads, windows"),

    PART("ops.sample", 3, ops, "sample", "sampled ids of equal logits, bit for bit"),
    PART("ops.sample_fields", 3, ops, "sample_fields",
         "masks, biases, penalties, log probabilities"),
    PART("ops.add_rmsnorm", 3, ops, "add_rmsnorm", "fused against its parts"),
    PART("ops.gemm_add", 3, ops, "gemm_add", "fused against its parts"),
    PART("ops.gate_up", 3, ops, "gate_up", "fused against its parts"),
    PART("ops.qkv_rope_write", 3, ops, "qkv_rope_write", "fused against its parts"),
    PART("ops.head_sample", 3, ops, "head_sample", "fused against its parts"),
    PART("invariant.gemm", 3, ops, "cut_gemm",
         "a row has the same bytes in any batch, if declared"),
    PART("invariant.gate_up", 3, ops, "cut_gate_up",
         "a row has the same bytes in any batch, if declared"),
    PART("invariant.rmsnorm", 3, ops, "cut_rmsnorm",
         "a row has the same bytes in any batch, if declared"),
    PART("invariant.add_rmsnorm", 3, ops, "cut_add_rmsnorm",
         "a row has the same bytes in any batch, if declared"),
    PART("invariant.attn", 3, ops, "cut_attn",
         "a row has the same bytes in any batch, if declared"),
    PART("invariant.qkv_rope_write", 3, ops, "cut_qkv_rope_write",
         "a row has the same bytes in any batch, if declared"),
    CHECK("serves.native", 3, 0, native, "no operation of a model runs by copies"),
    CHECK("serves.queued", 3, 0, queued, "five steps enqueued before the host sees one token"),
    CHECK("serves.allocations", 3, 0, allocations, "a step takes no memory of the host"),
    CHECK("serves.shared_blocks", 3, 0, shared_blocks,
          "sequences that share blocks of their prompt"),
    CHECK("serves.copied_blocks", 3, 0, copied_blocks,
          "copy-on-write: lists in order, originals untouched"),
    CHECK("serves.images", 3, 0, images, "blocks out and in, native and canonical"),
    CHECK("serves.batches", 3, 0, batches, "the same tokens alone, together, in chunks, preempted"),
    CHECK("serves.faults", 3, 0, faults, "refused calls leave the device working"),
    CHECK("serves.soak", 3, 0, soak, "random load: same tokens, no growth"),

    PART("fast.graph", 4, graph, "graph", "recorded steps give the bytes of the calls one by one"),
    CHECK("fast.blobs", 4, 0, adopt, "stored bytes of weights, put elsewhere and adopted"),
    CHECK("fast.quantized", 4, 0, quantized, "which quantized weights are taken"),
    CHECK("fast.overlap", 4, 0, overlap, "copies run beside products"),
    PART("fast.decode_1", 4, decode, "1", "one sequence: at least 60 % of copy bandwidth"),
    PART("fast.decode_64", 4, decode, "64", "64 sequences: at least 50 % of the roofline"),
    CHECK("fast.prefill", 4, 0, prefill, "at least 40 % of the device's own GEMM peak"),
};

const int32_t conform_n_checks = (int32_t)(sizeof(conform_checks) / sizeof(conform_checks[0]));

int32_t conform_wanted(const conform_options *o, const conform_check *check) {
    for (int32_t i = 0; i < o->n_only; i++) {
        const size_t n = strlen(o->only[i]);
        if (strcmp(o->only[i], check->name) == 0 ||
            (n > 0 && o->only[i][n - 1] == '*' && strncmp(o->only[i], check->name, n - 1) == 0)) {
            return 1;
        }
    }
    return o->n_only == 0;
}
