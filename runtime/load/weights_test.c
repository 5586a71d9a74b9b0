// Weights of a folder: one file, shards, and every way a folder can be wrong.
#include "load/test_folder.h"

#include "base/mem.h"
#include "load/weights.h"

#define T(shape, from, to) \
    "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"
#define INDEX "model.safetensors.index.json"

static void write_tensors(test_folder *f, const char *name, const char *header, size_t n_data) {
    size_t n = 0;
    uint8_t *bytes = test_safetensors(header, n_data, &n);
    test_folder_write(f, name, bytes, n);
    free(bytes);
}

static void write_text(test_folder *f, const char *name, const char *text) {
    test_folder_write(f, name, text, strlen(text));
}

static void write_shards(test_folder *f) {
    write_tensors(f, "model-1.safetensors", "{\"b\":" T("[2]", 0, 8) ",\"x\":" T("[1]", 8, 12) "}",
                  12);
    write_tensors(f, "model-2.safetensors", "{\"a\":" T("[1]", 0, 4) ",\"c\":" T("[3]", 4, 16) "}",
                  16);
    write_text(f, INDEX,
               "{\"metadata\":{\"total_size\":24},\"weight_map\":{\"c\":\"model-2.safetensors\","
               "\"b\":\"model-1.safetensors\",\"a\":\"model-2.safetensors\"}}");
}

static void one_file(void **state) {
    (void)state;
    test_folder f;
    pgd_load_weights *w = NULL;
    test_folder_make(&f);
    write_tensors(&f, "model.safetensors", "{\"b\":" T("[2]", 0, 8) ",\"a\":" T("[1]", 8, 12) "}",
                  12);
    assert_int_equal(pgd_load_weights_open(f.path, &w), PGD_OK);
    assert_int_equal(pgd_load_weights_count(w), 2);
    assert_int_equal(pgd_load_weights_bytes(w), 12);
    assert_true(pgd_str_is(pgd_load_weights_get(w, 0)->name, "a"));
    assert_null(pgd_load_weights_get(w, 2));
    assert_null(pgd_load_weights_find(w, "c"));
    assert_null(pgd_load_weights_find(w, ""));
    const pgd_load_tensor *a = pgd_load_weights_find(w, "a");
    static const uint8_t wanted[4] = {8, 9, 10, 11};
    assert_memory_equal(a->ptr, wanted, 4);
    assert_non_null(strstr(a->file, "/model.safetensors"));
    pgd_load_weights_close(w);
    pgd_load_weights_close(NULL);
    test_folder_remove(&f);
}

// The index decides: x is in a shard but not named, other.safetensors is not looked at.
static void shards(void **state) {
    (void)state;
    test_folder f;
    pgd_load_weights *w = NULL;
    test_folder_make(&f);
    write_shards(&f);
    write_text(&f, "other.safetensors", "rubbish");
    write_text(&f, "model.safetensors", "rubbish");
    assert_int_equal(pgd_load_weights_open(f.path, &w), PGD_OK);
    assert_int_equal(pgd_load_weights_count(w), 3);
    assert_int_equal(pgd_load_weights_bytes(w), 24);
    assert_null(pgd_load_weights_find(w, "x"));
    static const uint8_t c_bytes[4] = {4, 5, 6, 7};
    static const uint8_t b_bytes[4] = {0, 1, 2, 3};
    assert_memory_equal(pgd_load_weights_find(w, "c")->ptr, c_bytes, 4);
    assert_memory_equal(pgd_load_weights_find(w, "b")->ptr, b_bytes, 4);
    assert_non_null(strstr(pgd_load_weights_find(w, "b")->file, "model-1"));
    for (uint32_t i = 1; i < 3; i++) {
        assert_true(pgd_load_weights_get(w, i)->name.ptr[0] == (char)('a' + (int)i));
    }
    pgd_load_weights_close(w);
    test_folder_remove(&f);
}

static void refuse(test_folder *f, pgd_status wanted, const char *says) {
    pgd_load_weights *w = NULL;
    uint64_t live = pgd_mem_live();
    assert_int_equal(pgd_load_weights_open(f->path, &w), wanted);
    assert_null(w);
    test_says(wanted, says);
    assert_int_equal(pgd_mem_live(), live);
}

static void wrong_indexes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        pgd_status status;
        const char *says;
    } rows[] = {
        {"", PGD_INVALID, "index.json"},
        {"[]", PGD_INVALID, "weight_map"},
        {"{}", PGD_INVALID, "\"weight_map\" is missing"},
        {"{\"weight_map\":[]}", PGD_INVALID, "weight_map"},
        {"{\"weight_map\":{}}", PGD_INVALID, "weight_map"},
        {"{\"weight_map\":{\"a\":1}}", PGD_INVALID, "without a path"},
        {"{\"weight_map\":{\"a\":\"\"}}", PGD_INVALID, "without a path"},
        {"{\"weight_map\":{\"a\":\"../model-2.safetensors\"}}", PGD_INVALID, "without a path"},
        {"{\"weight_map\":{\"a\":\"/etc/x.safetensors\"}}", PGD_INVALID, "without a path"},
        {"{\"weight_map\":{\"a\":\"..\"}}", PGD_INVALID, "without a path"},
        {"{\"weight_map\":{\"a\":\"model-2.safetensors\\u0000.safetensors\"}}", PGD_INVALID,
         "without a path"},
        {"{\"weight_map\":{\"a\":\"model-2.bin\"}}", PGD_INVALID, ".safetensors"},
        {"{\"weight_map\":{\"a\":\"model-2.safetensors\",\"a\":\"model-1.safetensors\"}}",
         PGD_INVALID, "twice"},
        {"{\"weight_map\":{\"a\":\"model-3.safetensors\"}}", PGD_NOT_FOUND, "model-3.safetensors"},
        {"{\"weight_map\":{\"q\":\"model-2.safetensors\"}}", PGD_DATA_LOSS, "no tensor \"q\""},
        {"{\"weight_map\":{\"b\":\"model-2.safetensors\"}}", PGD_DATA_LOSS, "no tensor \"b\""},
    };
    test_folder f;
    test_folder_make(&f);
    write_shards(&f);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        write_text(&f, INDEX, rows[i].text);
        refuse(&f, rows[i].status, rows[i].says);
    }
    test_folder_remove(&f);
}

static void wrong_folders(void **state) {
    (void)state;
    test_folder f;
    test_folder_make(&f);
    refuse(&f, PGD_NOT_FOUND, "model.safetensors or model.safetensors.index.json is needed");
    write_text(&f, "pytorch_model.bin", "x");
    refuse(&f, PGD_UNSUPPORTED, "pytorch_model.bin");
    write_text(&f, "model.safetensors", "");
    refuse(&f, PGD_DATA_LOSS, "cut short");
    write_tensors(&f, "model.safetensors", "{\"a\":" T("[2]", 0, 8) "}", 7);
    refuse(&f, PGD_DATA_LOSS, "cut short");
    test_folder_remove(&f);
    refuse(&f, PGD_NOT_FOUND, "no weights");
    test_folder_make(&f);
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", f.path);
    assert_int_equal(mkdir(path, 0700), 0);
    refuse(&f, PGD_INVALID, "cannot be read");
    assert_int_equal(rmdir(path), 0);
    test_folder_remove(&f);
}

// A file that is another one than was opened is found when the weights are to be named.
static void identity(void **state) {
    (void)state;
    test_folder f;
    pgd_load_weights *w = NULL;
    pgd_text first = {0};
    pgd_text second = {0};
    test_folder_make(&f);
    write_shards(&f);
    assert_int_equal(pgd_load_weights_open(f.path, &w), PGD_OK);
    assert_int_equal(pgd_load_weights_identity(w, &first), PGD_OK);
    assert_int_equal(pgd_load_weights_identity(w, &second), PGD_OK);
    assert_string_equal(first.ptr, second.ptr);
    assert_int_equal(strncmp(first.ptr, "file ", 5), 0);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        pgd_text t = {0};
        pgd_mem_fail_nth(nth);
        assert_int_equal(pgd_load_weights_identity(w, &t), PGD_OUT_OF_MEMORY);
        pgd_mem_fail_nth(0);
        pgd_text_free(&t);
    }
    pgd_load_weights_give(w, pgd_load_weights_find(w, "a")->ptr, 4); // read again when it is used
    pgd_load_weights_give(w, &first, sizeof(first));                 // not in a file: stays
    static const uint8_t wanted[4] = {0, 1, 2, 3};
    assert_memory_equal(pgd_load_weights_find(w, "a")->ptr, wanted, 4);
    assert_int_equal(first.len, second.len);
    write_tensors(&f, "model-2.safetensors", "{\"a\":" T("[1]", 0, 4) "}", 4);
    assert_int_equal(pgd_load_weights_identity(w, &second), PGD_PRECONDITION);
    test_says(PGD_PRECONDITION, "model-2.safetensors changed while it was read");
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/model-2.safetensors", f.path);
    assert_int_equal(remove(path), 0);
    assert_int_equal(pgd_load_weights_identity(w, &second), PGD_PRECONDITION);
    write_text(&f, "model-2.safetensors", ""); // for test_folder_remove
    pgd_text_free(&first);
    pgd_text_free(&second);
    pgd_load_weights_close(w);
    test_folder_remove(&f);
}

// Folders without weights, and with one file, until no allocation fails.
static void other_folders_without_memory(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        const pgd_status end = kind == 0 ? PGD_UNSUPPORTED : PGD_OK;
        pgd_status status = PGD_OUT_OF_MEMORY;
        test_folder f;
        test_folder_make(&f);
        write_text(&f, "pytorch_model.bin.index.json", "{}");
        if (kind == 1) {
            write_tensors(&f, "model.safetensors", "{\"b\":" T("[2]", 0, 8) "}", 8);
        }
        for (uint64_t nth = 1; status != end; nth++) {
            const uint64_t live = pgd_mem_live();
            pgd_load_weights *w = NULL;
            pgd_mem_fail_nth(nth);
            status = pgd_load_weights_open(f.path, &w);
            pgd_mem_fail_nth(0);
            assert_true(status == end || status == PGD_OUT_OF_MEMORY);
            pgd_load_weights_close(w);
            assert_int_equal(pgd_mem_live(), live);
        }
        test_folder_remove(&f);
    }
}

static void each_allocation_fails(void **state) {
    (void)state;
    test_folder f;
    pgd_load_weights *w = NULL;
    uint64_t live = pgd_mem_live();
    test_folder_make(&f);
    write_shards(&f);
    for (uint64_t nth = 1;; nth++) {
        pgd_mem_fail_nth(nth);
        pgd_status status = pgd_load_weights_open(f.path, &w);
        pgd_mem_fail_nth(0);
        if (status == PGD_OK) {
            assert_true(nth > 10);
            break;
        }
        assert_int_equal(status, PGD_OUT_OF_MEMORY);
        assert_null(w);
        assert_int_equal(pgd_mem_live(), live);
    }
    pgd_load_weights_close(w);
    assert_int_equal(pgd_mem_live(), live);
    test_folder_remove(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_file),
        cmocka_unit_test(shards),
        cmocka_unit_test(wrong_indexes),
        cmocka_unit_test(wrong_folders),
        cmocka_unit_test(identity),
        cmocka_unit_test(other_folders_without_memory),
        cmocka_unit_test(each_allocation_fails),
    };
    return cmocka_run_group_tests_name("load.weights", tests, NULL, NULL);
}
