// Files of --config: JSON, or YAML where the program was built with libyaml.
#ifndef PGD_CLI_CONFIG_FILE_H
#define PGD_CLI_CONFIG_FILE_H

#include "base/json.h"

// Reads a file whose name ends in .json, or whose text begins with {, as JSON, any other as YAML.
// YAML comes out as the JSON it stands for. Plain words are read by the core schema of YAML 1.2:
// null, ~, true, false, numbers; yes, no, on and off are words. Refused: anchors and aliases, tags,
// several documents, keys that stand twice, more than 64 levels.
//   fails  NOT_FOUND, INVALID (with line and column), UNSUPPORTED (YAML, built without libyaml)
pgd_status cli_config_file_read(const char *path, pgd_json_doc **out) PGD_MUST_USE;

#endif
