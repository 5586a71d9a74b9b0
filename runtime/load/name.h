// What a user calls a model -> the folder it lies in.
#ifndef PGD_LOAD_NAME_H
#define PGD_LOAD_NAME_H

#include <stddef.h>

#include <pagoda/status.h>

#define PGD_LOAD_DEFAULT_MODEL "nano"

// name  NULL, "" or "nano": the default model, found relative to the running program
//       (<program>/../share/pagoda/models/nano, else models/nano beside a build folder);
//       else synthetic:..., which stands for itself (see synthetic.h; not looked into here);
//       else a folder that holds config.json. A folder called nano is written ./nano.
// out   the folder's path, NUL-terminated
//   fails  NOT_FOUND (no such folder, or no config.json in it), UNSUPPORTED (a .gguf file, a name
//          of a model hub), OUT_OF_RANGE (cap is too small)
pgd_status pgd_load_find_model(const char *name, char *out, size_t cap) PGD_MUST_USE;

#endif
