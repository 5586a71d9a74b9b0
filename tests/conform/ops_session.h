// A session of tests/ops inside a check: failures become the check's sentences.
#ifndef PGD_TESTS_CONFORM_OPS_SESSION_H
#define PGD_TESTS_CONFORM_OPS_SESSION_H

#include "conform.h"

#include "../ops/ops.h"

ops_session conform_ops_session(conform *c);
// Ends the check when the case is broken or wrong.
void conform_ops_must(conform *c, ops_fixture *f);

#endif
