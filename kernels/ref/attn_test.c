// attn and kv_write against numpy: two sequences over shuffled blocks, 4 heads on 2 kv heads.
#include "ref/ref_test.h"

enum { BLOCK_TOKENS = 3, N_BLOCKS = 8, HQ = 4, HKV = 2, KD = 3, VD = 2, ROWS = 4 };

typedef struct setup {
    block b;
    pgd_batch batch;
    float mem[N_BLOCKS * 2 * BLOCK_TOKENS * HKV * (KD + VD)];
    float q[ROWS * HQ * KD], out[ROWS * HQ * VD], lse[ROWS * HQ];
    pgd_ref_kv kv;
    pgd_attn_args a;
} setup;

// Puts a whole sequence into the cache with kv_write, layer 1.
static void write_sequence(setup *s, int32_t slot, int32_t n, int64_t seed) {
    float k[7 * HKV * KD], v[7 * HKV * VD];
    pgd_kv_write_args a = {.size = sizeof(a),
                           .rows = PGD_ROWS_TOKENS,
                           .batch = &s->batch,
                           .kv = (pgd_kv *)&s->kv,
                           .layer = 1};
    int32_t i;
    fill(PGD_F32, k, (int64_t)n * HKV * KD, seed);
    fill(PGD_F32, v, (int64_t)n * HKV * VD, seed + 2);
    a.k = tensor3(PGD_F32, k, n, HKV, KD);
    a.v = tensor3(PGD_F32, v, n, HKV, VD);
    s->b.head.n_tokens = n;
    for (i = 0; i < n; i++) {
        s->b.slots[i] = s->b.table[slot][i / BLOCK_TOKENS] * BLOCK_TOKENS + i % BLOCK_TOKENS;
    }
    assert_int_equal(pgd_ref_kv_write(NULL, &a), PGD_OK);
}

static void prepare(setup *s) {
    size_t i;
    memset(s, 0, sizeof(*s));
    s->batch = batch_of(&s->b);
    memset(s->b.table, 0x7f, sizeof(s->b.table)); // entries nobody may read
    s->kv = (pgd_ref_kv){.desc = {.size = sizeof(pgd_kv_desc),
                                  .layers = 2,
                                  .heads = HKV,
                                  .k_dim = KD,
                                  .v_dim = VD,
                                  .k_dtype = PGD_F32,
                                  .v_dtype = PGD_F32,
                                  .block_tokens = BLOCK_TOKENS},
                         .n_blocks = N_BLOCKS,
                         .mem = (unsigned char *)s->mem};
    assert_int_equal(pgd_ref_kv_block_bytes(&s->kv.desc) * N_BLOCKS, sizeof(s->mem));
    for (i = 0; i < sizeof(s->mem) / sizeof(s->mem[0]); i++) {
        s->mem[i] = NAN; // what nobody wrote must not be read
    }
    s->b.table[4][0] = 6, s->b.table[4][1] = 2;
    s->b.table[1][0] = 3, s->b.table[1][1] = 7, s->b.table[1][2] = 1;
    write_sequence(s, 4, 5, 11);
    write_sequence(s, 1, 7, 12);
    s->b.head = (pgd_batch_head){.n_tokens = 4, .n_seqs = 2, .n_decode = 1};
    s->b.q_start[1] = 1, s->b.q_start[2] = 4;
    s->b.kv_len[0] = 5, s->b.kv_len[1] = 7;
    s->b.seq_slot[0] = 4, s->b.seq_slot[1] = 1;
    fill(PGD_F32, s->q, ROWS * HQ * KD, 15);
    s->a = (pgd_attn_args){.size = sizeof(s->a),
                           .rows = PGD_ROWS_TOKENS,
                           .batch = &s->batch,
                           .kv = (pgd_kv *)&s->kv,
                           .layer = 1,
                           .q = tensor3(PGD_F32, s->q, ROWS, HQ, KD),
                           .out = tensor3(PGD_F32, s->out, ROWS, HQ, VD),
                           .scale = 0.5F,
                           .causal = 1};
}

static void expect(setup *s, const double *want) {
    assert_int_equal(pgd_ref_attn(NULL, &s->a), PGD_OK);
    assert_close(s->out, want, ROWS * HQ * VD);
}

static void test_masks(void **state) {
    static const double causal[32] = {
        -0.10231385648884439, 0.008215150663309367, -0.0775868000184825,  -0.01976509381393434,
        0.06913729911436792,  0.0822347769065612,   0.03228032978258466,  0.46393919332913547,
        -0.5194059475922103,  0.06016173340403336,  -0.1313310579599521,  -0.7356609271966645,
        0.19009937011936545,  0.32514315265434895,  0.5601756098635002,   0.07130681088359697,
        -0.03846755123368545, -0.2158939194761147,  -0.36970451809781796, -0.014964796602971245,
        0.12028684348135123,  0.45938240843512695,  0.05640420990846763,  0.3750198574503869,
        0.26464489829510945,  -0.37825590162871475, -0.16298372998770025, -0.03940797432563206,
        0.1761104063880013,   0.13644915632373147,  0.1441936538244184,   0.10946021213036825};
    static const double causal_lse[16] = {
        1.837172690960406,  1.7687812165243817, 1.2677339119802016, 2.1272704514745517,
        2.0031078930821393, 1.838014594044037,  1.8285308042628023, 1.8501098661599862,
        1.457073795185567,  2.1596194330086864, 1.9340782395973406, 1.9268390224363379,
        2.249973885039359,  1.6071180028808034, 2.174710616942784,  2.2032002355315523};
    static const double full[32] = {
        -0.10231385648884439, 0.008215150663309367,  -0.0775868000184825,  -0.01976509381393434,
        0.06913729911436792,  0.0822347769065612,    0.03228032978258466,  0.46393919332913547,
        -0.4109302453125908,  0.2949537861612952,    0.08904597055276658,  -0.4431102336655468,
        0.05745129811521843,  0.25172203041780805,   -0.01539716348362409, 0.18328112050541795,
        -0.09678154994190986, -0.030680211631260862, -0.3982951823572498,  0.2626057167539484,
        0.12148638747386284,  0.08795544777961622,   0.06132806766608583,  0.276319890835061,
        0.26464489829510945,  -0.37825590162871475,  -0.16298372998770025, -0.03940797432563206,
        0.1761104063880013,   0.13644915632373147,   0.1441936538244184,   0.10946021213036825};
    static const double windowed[32] = {
        0.18162278342522808,  -0.4848534569874292,  0.19576931262915898,  -0.48552135205443075,
        -0.17038861088901788, 0.5652524290038524,   -0.5973180818591202,  0.8987039411971913,
        -0.8445345072700546,  -0.14060121277469498, -0.15868065223890504, -0.9028391314378684,
        0.3756873025282792,   -0.2908999876784199,  0.594237297584217,    -0.1259896756708478,
        0.04599020185181629,  -0.25608866032400257, -0.8394195405267915,  0.044618390429204624,
        -0.626416960160487,   0.6589632392743421,   -0.03046549272994553, -0.10939878722530494,
        0.5489550782007762,   -0.31644117641617175, 0.11210473594913417,  -0.006887960803313109,
        -0.07063235468517183, -0.5997823616577155,  -0.06974255747133838, -0.6074613804723644};
    static const double both_windows[32] = {
        0.18162278342522808,  -0.4848534569874292,   0.19576931262915898,   -0.48552135205443075,
        -0.17038861088901788, 0.5652524290038524,    -0.5973180818591202,   0.8987039411971913,
        -0.5052100153820046,  -0.11637750158430493,  0.16201395716882855,   -0.67728798512317,
        0.11733270650958808,  -0.133220922285166,    -0.10625475735789608,  0.17999618322726862,
        -0.07999786690896699, 0.09144358668916827,   -0.7029990391307102,   0.529088917070212,
        -0.326402010969173,   -0.003403726511003291, -0.009355764930246428, -0.23032818994757487,
        0.5489550782007762,   -0.31644117641617175,  0.11210473594913417,   -0.006887960803313109,
        -0.07063235468517183, -0.5997823616577155,   -0.06974255747133838,  -0.6074613804723644};
    setup s;
    (void)state;
    prepare(&s);
    s.a.lse = tensor2(PGD_F32, s.lse, ROWS, HQ);
    expect(&s, causal);
    assert_close(s.lse, causal_lse, ROWS * HQ);
    s.a.causal = 0;
    expect(&s, full);
    s.a.window_left = 3;
    s.a.window_right = 2;
    expect(&s, both_windows);
    s.a.window_right = 0;
    s.a.causal = 1;
    expect(&s, windowed);
}

// Table entries that no row sees are not read; one that a row sees is checked.
static void test_unseen_blocks(void **state) {
    setup s;
    (void)state;
    prepare(&s);
    s.a.window_left = 3; // row 4 of the second sequence sees 2 and later
    s.b.table[1][0] = -1;
    assert_int_equal(pgd_ref_attn(NULL, &s.a), PGD_INVALID);
    s.a.window_left = 2; // rows 4, 5, 6 see 3 and later
    assert_int_equal(pgd_ref_attn(NULL, &s.a), PGD_OK);
}

static void test_logits(void **state) {
    static const double capped[32] = {
        -0.07998124529800599,  0.01848183576294836,  -0.06984956157507757, 0.008162242574741678,
        0.070725802514461,     0.08584696765025195,  0.006174355853262203, 0.4242407278973479,
        -0.47309327937982626,  -0.01545742767454368, -0.16178786392879407, -0.6322325980682643,
        0.20909312617742176,   0.33109467495769695,  0.45549533005225873,  0.17647823576367339,
        -0.044794744027687405, -0.2225525699310793,  -0.33089365112321883, -0.0413449399256689,
        0.11513629803713543,   0.43978915633474447,  0.05959230827771697,  0.37058049193260156,
        0.1365634018642243,    -0.32443452325618055, -0.15851382884359724, -0.03903242119613165,
        0.14345519630378784,   0.1323154642158819,   0.12909723638779375,  0.12004686190628461};
    static const double sloped[32] = {
        0.587352935266582,     -0.34042229360294474, 0.46761480984690185,  -0.35333163422512304,
        -0.07350316519167122,  0.3191611700194251,   -0.7695620442885274,  0.8282059348441441,
        -0.7752536904853058,   -0.24221755201061482, -0.20206573755065416, -1.0192403145201343,
        0.2674412757268851,    -0.03254832620249426, 0.37087320262423706,  -0.2654091638855226,
        0.6826243354562377,    -0.2211211341678899,  -0.22181902881690196, -0.10673591692439832,
        -0.3035325962399923,   0.4965396948140075,   -0.4012916330719818,  0.10231289226239432,
        0.49775243396581925,   0.13437539264799794,  -0.12815936540209863, 0.5417480888170024,
        -0.060933804340659245, -0.26054092216489017, 0.02742878146087066,  -0.8447742943204246};
    static const double sunk[32] = {
        -0.08103509197627427,  0.0065066014755568655, -0.07109680845278482, -0.01811178046530937,
        0.03703152892064873,   0.044046839525230336,  0.028843301180239367, 0.4145415481389835,
        -0.42489356882347795,  0.04921455699755596,   -0.12102261907896023, -0.6779174214110557,
        0.1271708006303809,    0.2175110575935964,    0.4840701526391842,   0.0616190677010147,
        -0.027794173203948475, -0.15599103137981424,  -0.3482021359095056,  -0.014094429160390151,
        0.08322803650423256,   0.31785268240552467,   0.04923518601118887,  0.3273545089882984,
        0.22546409091794611,   -0.3222549293202915,   -0.14719009640121522, -0.03558921826371339,
        0.13044838148968627,   0.10107052708088396,   0.12985165197158866,  0.09857291908003418};
    static const double sunk_lse[16] = {
        2.0703355091657887, 1.8561360787346108, 1.8920585989254066, 2.2398507399368155,
        2.2039549318703027, 1.9197584266822298, 2.2305466705726813, 1.9961303500896486,
        1.782062454255654,  2.21954035839979,   2.302373224075048,  2.0627742912015714,
        2.4102019017672056, 1.709043458530902,  2.474844119953417,  2.3079647896935533};
    float sinks[HQ], slopes[HQ];
    setup s;
    int i;
    (void)state;
    prepare(&s);
    fill(PGD_F32, sinks, HQ, 16);
    for (i = 0; i < HQ; i++) {
        slopes[i] = (float)fabs(number(i, 17));
    }
    s.a.softcap = 0.75F;
    expect(&s, capped);
    s.a.softcap = 0;
    s.a.slopes = tensor1(PGD_F32, slopes, HQ);
    expect(&s, sloped);
    s.a.slopes.rank = 0;
    s.a.sinks = tensor1(PGD_F32, sinks, HQ);
    s.a.lse = tensor2(PGD_F32, s.lse, ROWS, HQ);
    expect(&s, sunk);
    assert_close(s.lse, sunk_lse, ROWS * HQ);
}

// More than two tiles, one block per 16 tokens, f16 keys and values.
static void test_long(void **state) {
    static const double long_all[2] = {0.4075949104073292, -0.15857590019689657};
    static const double long_window[2] = {0.3980990017728573, -0.11559679441518769};
    static uint16_t mem[11 * 16 * 5], k[150 * 3], v[150 * 2];
    block b = {.head = {.n_tokens = 1, .n_seqs = 1}, .q_start = {0, 1}, .kv_len = {150}};
    const pgd_batch batch = batch_of(&b);
    pgd_ref_kv kv = {.desc = {.layers = 1,
                              .heads = 1,
                              .k_dim = 3,
                              .v_dim = 2,
                              .k_dtype = PGD_F16,
                              .v_dtype = PGD_F16,
                              .block_tokens = 16},
                     .n_blocks = 11,
                     .mem = (unsigned char *)mem};
    float q[3], out[2];
    pgd_attn_args a = {.size = sizeof(a), .batch = &batch, .kv = (pgd_kv *)&kv, .scale = 0.5F};
    int i;
    (void)state;
    fill(PGD_F16, k, 450, 21);
    fill(PGD_F16, v, 300, 22);
    for (i = 0; i < 10; i++) {
        b.table[0][i] = (i * 3) % 10 + 1;
    }
    for (i = 0; i < 150; i++) {
        int64_t slot = b.table[0][i / 16] * 16 + i % 16;
        memcpy(pgd_ref_kv_row(&kv, 0, 0, slot), k + 3 * i, 6);
        memcpy(pgd_ref_kv_row(&kv, 0, 1, slot), v + 2 * i, 4);
    }
    for (i = 0; i < 3; i++) {
        q[i] = (float)number(i, 23) * 4;
    }
    a.q = tensor3(PGD_F32, q, 1, 1, 3);
    a.out = tensor3(PGD_F32, out, 1, 1, 2);
    a.causal = 1;
    assert_int_equal(pgd_ref_attn(NULL, &a), PGD_OK);
    assert_close(out, long_all, 2);
    a.window_left = 70;
    assert_int_equal(pgd_ref_attn(NULL, &a), PGD_OK);
    assert_close(out, long_window, 2);
}

static void test_nothing_seen(void **state) {
    setup s;
    (void)state;
    prepare(&s);
    s.b.head.n_seqs = 0;
    s.b.head.n_tokens = 0;
    assert_int_equal(pgd_ref_attn(NULL, &s.a), PGD_OK);
    prepare(&s);
    s.a.plan = tensor1(PGD_I32, s.lse, 1); // read by nobody here
    assert_int_equal(pgd_ref_attn_plan(NULL, &s.a), PGD_OK);
    assert_int_equal(pgd_ref_attn(NULL, &s.a), PGD_OK);
}

static void test_refusals(void **state) {
    setup s;
    (void)state;
    prepare(&s);
    s.a.layer = 2;
    assert_int_equal(pgd_ref_attn(NULL, &s.a), PGD_INVALID);
    s.a.layer = 1;
    s.a.group = 1;
    assert_int_equal(pgd_ref_attn(NULL, &s.a), PGD_INVALID);
    s.a.group = 0;
    s.b.table[1][2] = N_BLOCKS;
    assert_int_equal(pgd_ref_attn(NULL, &s.a), PGD_INVALID);
    prepare(&s);
    s.b.seq_slot[0] = SLOTS;
    assert_int_equal(pgd_ref_attn(NULL, &s.a), PGD_INVALID);
    prepare(&s);
    s.b.kv_len[1] = 2; // three rows cannot be in a cache of two tokens
    assert_int_equal(pgd_ref_attn(NULL, &s.a), PGD_INVALID);
    prepare(&s);
    s.b.head.n_tokens = 3; // sequences have four rows
    assert_int_equal(pgd_ref_attn(NULL, &s.a), PGD_INVALID);
    prepare(&s);
    s.a.q.shape[1] = 3;
    assert_int_equal(pgd_ref_attn(NULL, &s.a), PGD_INVALID);
    assert_true(s.out[0] == 0);
}

// bf16 cache: rows land rounded, in the documented place, and nowhere else.
static void test_write(void **state) {
    uint16_t mem[3 * 2 * 2 * 2 * 3]; // blocks, layers, tokens, heads, k_dim 2 + v_dim 1
    block b = {.head = {.n_tokens = 1}};
    const pgd_batch batch = batch_of(&b);
    pgd_ref_kv kv = {.desc = {.layers = 2,
                              .heads = 2,
                              .k_dim = 2,
                              .v_dim = 1,
                              .k_dtype = PGD_BF16,
                              .v_dtype = PGD_BF16,
                              .block_tokens = 2},
                     .n_blocks = 3,
                     .mem = (unsigned char *)mem};
    float k[4] = {1, 2, 3, 1 + 0x1p-9F}, v[2] = {5, 6};
    pgd_kv_write_args a = {.size = sizeof(a), .batch = &batch, .kv = (pgd_kv *)&kv, .layer = 1};
    int i, touched = 0;
    (void)state;
    memset(mem, 0xff, sizeof(mem));
    a.k = tensor3(PGD_F32, k, 1, 2, 2);
    a.v = tensor3(PGD_F32, v, 1, 2, 1);
    b.slots[0] = 2 * 2 + 1; // block 2, token 1
    assert_int_equal(pgd_ref_kv_write(NULL, &a), PGD_OK);
    // block 2 starts at 48, layer 1 at + 12, its v part at + 8; token 1 is one row further
    assert_true(pgd_ref_load(PGD_BF16, mem, 48 + 12 + 4) == 1);
    assert_true(pgd_ref_load(PGD_BF16, mem, 48 + 12 + 6) == 3);
    assert_true(pgd_ref_load(PGD_BF16, mem, 48 + 12 + 7) == 1);
    assert_true(pgd_ref_load(PGD_BF16, mem, 48 + 12 + 8 + 2) == 5);
    assert_true(pgd_ref_load(PGD_BF16, mem, 48 + 12 + 8 + 3) == 6);
    for (i = 0; i < 72; i++) {
        touched += mem[i] != 0xffff;
    }
    assert_int_equal(touched, 6);
    b.slots[0] = 6;
    assert_int_equal(pgd_ref_kv_write(NULL, &a), PGD_INVALID);
    b.slots[0] = -1;
    assert_int_equal(pgd_ref_kv_write(NULL, &a), PGD_INVALID);
}

// Keys and values that int8 holds without loss (128ths, the largest 127) give what an f32 cache of
// the same numbers gives; a head of zeros stays zeros, and the rounding is to even.
static void test_int8(void **state) {
    enum {
        N = 5,
        K_BYTES = BLOCK_TOKENS * HKV * (KD + 4),
        V_BYTES = BLOCK_TOKENS * HKV * (VD + 4)
    };
    static setup plain, small;
    static unsigned char mem[N_BLOCKS * 2 * (K_BYTES + V_BYTES)];
    float k[N * HKV * KD], v[N * HKV * VD], scale;
    setup *both[2] = {&plain, &small};
    int i, j;
    (void)state;
    for (i = 0; i < N * HKV * KD; i++) {
        k[i] = (float)(i % KD == 0 ? 127 : (i * 37) % 255 - 127) / 128;
    }
    for (i = 0; i < N * HKV * VD; i++) {
        v[i] = i / VD == 1 ? 0 : (float)(i % VD == 1 ? -127 : (i * 11) % 255 - 127) / 128;
    }
    for (i = 0; i < 2; i++) {
        setup *s = both[i];
        pgd_kv_write_args a = {.size = sizeof(a),
                               .rows = PGD_ROWS_TOKENS,
                               .batch = &s->batch,
                               .kv = (pgd_kv *)&s->kv,
                               .layer = 1,
                               .k = tensor3(PGD_F32, k, N, HKV, KD),
                               .v = tensor3(PGD_F32, v, N, HKV, VD)};
        prepare(s);
        if (s == &small) {
            s->kv.desc.k_dtype = s->kv.desc.v_dtype = PGD_I8;
            assert_int_equal(pgd_ref_check_kv_write(NULL, &a), PGD_UNSUPPORTED); // no scales
            s->kv.desc.scale_mode = PGD_KV_SCALE_TOKEN_HEAD;
            s->kv.mem = mem;
            assert_int_equal(pgd_ref_kv_block_bytes(&s->kv.desc) * N_BLOCKS, sizeof(mem));
        }
        s->b.head = (pgd_batch_head){.n_tokens = N};
        for (j = 0; j < N; j++) {
            s->b.slots[j] = s->b.table[4][j / BLOCK_TOKENS] * BLOCK_TOKENS + j % BLOCK_TOKENS;
        }
        assert_int_equal(pgd_ref_kv_write(NULL, &a), PGD_OK);
        s->b.head = (pgd_batch_head){.n_tokens = 1, .n_seqs = 1, .n_decode = 1};
        assert_int_equal(pgd_ref_attn(NULL, &s->a), PGD_OK);
    }
    for (i = 0; i < HQ * VD; i++) {
        assert_true(plain.out[i] == small.out[i]);
    }
    memcpy(&scale, pgd_ref_kv_scales(&small.kv, 1, 1, small.b.slots[0]) + 4, sizeof(scale));
    assert_true(scale == 0); // head 1 of token 0 is zeros
    memcpy(&scale, pgd_ref_kv_scales(&small.kv, 1, 0, small.b.slots[3]), sizeof(scale));
    assert_true(scale == 1.0F / 128);
    assert_int_equal((signed char)*pgd_ref_kv_row(&small.kv, 1, 0, small.b.slots[3]), 127);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),        cmocka_unit_test(test_unseen_blocks),
        cmocka_unit_test(test_logits),       cmocka_unit_test(test_long),
        cmocka_unit_test(test_nothing_seen), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_write),        cmocka_unit_test(test_int8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
