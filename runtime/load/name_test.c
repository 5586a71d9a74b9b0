// Model names: the default model around the program, folders, and names that are not known.
#include "load/test_folder.h"

#include "load/name.h"
#include "os/file.h"

static void find_fails(const char *name, pgd_status wanted, const char *says) {
    char out[256] = "x";
    pgd_status status = pgd_load_find_model(name, out, sizeof(out));
    if (status != wanted) {
        fail_msg("%s: status %d: %s", name, (int)status, pgd_fail_text(status));
    }
    test_says(status, says);
    assert_string_equal(out, "");
}

static void folders(void **state) {
    (void)state;
    test_folder f;
    char out[256];
    test_folder_make(&f);
    find_fails(f.path, PGD_NOT_FOUND, "no config.json");
    test_folder_write(&f, "config.json", "{}", 2);
    assert_int_equal(pgd_load_find_model(f.path, out, sizeof(out)), PGD_OK);
    assert_string_equal(out, f.path);
    assert_int_equal(pgd_load_find_model(f.path, out, strlen(f.path)), PGD_OUT_OF_RANGE);
    assert_int_equal(pgd_load_find_model(f.path, out, strlen(f.path) + 1), PGD_OK);
    char file[128];
    (void)snprintf(file, sizeof(file), "%s/config.json", f.path);
    find_fails(file, PGD_INVALID, "is no folder");
    test_folder_remove(&f);
}

static void unknown_names(void **state) {
    (void)state;
    find_fails("/nowhere/at/all", PGD_NOT_FOUND, "no such folder");
    find_fails("nothing", PGD_NOT_FOUND, "no such folder");
    find_fails("./org/name", PGD_NOT_FOUND, "no such folder");
    find_fails("a/b/c", PGD_NOT_FOUND, "no such folder");
    find_fails("org/", PGD_NOT_FOUND, "no such folder");
    find_fails("an org/name", PGD_NOT_FOUND, "no such folder");
    find_fails("org/na me", PGD_NOT_FOUND, "no such folder");
    find_fails("org/model.gguf", PGD_NOT_FOUND, "no such file");
    find_fails("model.gguf", PGD_NOT_FOUND, "no such file");
    find_fails("/a/model.gguf", PGD_NOT_FOUND, "no such file");
    char itself[64];
    assert_int_equal(pgd_load_find_model("synthetic:any", itself, sizeof(itself)), PGD_OK);
    assert_string_equal(itself, "synthetic:any");
    char *longest = malloc(5001);
    memset(longest, 'a', 5000);
    longest[5000] = '\0';
    find_fails(longest, PGD_OUT_OF_RANGE, "at most 4095");
    free(longest);
}

// Runs a copy of this program in a tree of its own, which prints what it finds.
static void found_by(const char *program, char *out, size_t cap) {
    char command[512];
    (void)snprintf(command, sizeof(command), "%s find", program);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(out, 1, cap - 1, pipe);
    out[n] = '\0';
    assert_int_equal(pclose(pipe), 0);
}

static void run(const char *what, const char *path, const char *to) {
    char command[1400];
    (void)snprintf(command, sizeof(command), "%s '%s' %s", what, path, to);
    assert_int_equal(system(command), 0);
}

// Makes <root>/<folder>, and config.json in it if with_config is 1.
static void make(const char *root, const char *folder, int with_config) {
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", root, folder);
    run("mkdir -p", path, "");
    if (with_config) {
        (void)snprintf(path, sizeof(path), "%s/%s/config.json", root, folder);
        run("touch", path, "");
    }
}

static void default_model(void **state) {
    (void)state;
    char self[1024];
    char root[] = "/tmp/pgd_load_name_XXXXXX";
    char real[256];
    char program[128];
    char wanted[512];
    char found[512];
    assert_int_equal(pgd_os_program_path(self, sizeof(self)), PGD_OK);
    assert_non_null(mkdtemp(root));
    assert_int_equal(pgd_os_real_path(root, real, sizeof(real)), PGD_OK);
    (void)snprintf(program, sizeof(program), "%s/tree/bin/prog", root);
    make(root, "tree/bin", 0);
    make(root, "models/nano", 0);
    run("cp", self, program);
    found_by(program, found, sizeof(found));
    assert_non_null(strstr(found, "not installed"));
    // A build tree: <root>/tree/bin/prog and <root>/models/nano.
    make(root, "models/nano", 1);
    found_by(program, found, sizeof(found));
    (void)snprintf(wanted, sizeof(wanted), "%s/models/nano", real);
    assert_string_equal(found, wanted);
    // An installed tree wins.
    make(root, "tree/share/pagoda/models/nano", 1);
    found_by(program, found, sizeof(found));
    (void)snprintf(wanted, sizeof(wanted), "%s/tree/share/pagoda/models/nano", real);
    assert_string_equal(found, wanted);
    run("rm -r", root, "");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders),
        cmocka_unit_test(unknown_names),
        cmocka_unit_test(default_model),
    };
    if (argc == 2 && strcmp(argv[1], "find") == 0) {
        char out[512];
        pgd_status status = pgd_load_find_model(NULL, out, sizeof(out));
        (void)printf("%s", status == PGD_OK ? out : pgd_fail_text(status));
        return 0;
    }
    return cmocka_run_group_tests_name("load.name", tests, NULL, NULL);
}
