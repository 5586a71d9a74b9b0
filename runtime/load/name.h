// What a user calls a model -> the folder it lies in.
#ifndef PGD_LOAD_NAME_H
#define PGD_LOAD_NAME_H

#include <stddef.h>

#include <pagoda/status.h>

#define PGD_LOAD_DEFAULT_MODEL "nano"

// Where a download is told of. `what` is a short phrase; bytes.
typedef struct pgd_load_progress {
    void (*fn)(void *arg, const char *what, uint64_t done, uint64_t total);
    void *arg;
} pgd_load_progress;

// name      NULL, "" or "nano": the default model, found relative to the running program
//           (<program>/../share/pagoda/models/nano, else models/nano beside a build folder);
//           else synthetic:..., which stands for itself (see synthetic.h; not looked into here);
//           else a folder that holds config.json. A folder called nano is written ./nano;
//           else a file that ends in .gguf (of a split set the first);
//           else org/name[@revision], from the cache or the model hub (see hub.h)
// progress  of a download; may be NULL
// out       the folder's path, NUL-terminated
//   fails  NOT_FOUND (no such folder, or no config.json in it),
//          OUT_OF_RANGE (cap is too small), and for names of a hub as hub.h says
pgd_status pgd_load_fetch_model(const char *name, const pgd_load_progress *progress, char *out,
                                size_t cap) PGD_MUST_USE;
// The same without progress.
pgd_status pgd_load_find_model(const char *name, char *out, size_t cap) PGD_MUST_USE;

#endif
