// The minors of the interface whose layout is kept, oldest first: X(minor, PGD_ABI_HASH of it).
//
// tests/abi/layout.py writes a line when a minor is kept (--keep) and compares every line with the
// snapshot in tests/abi/minors. The minor that is being built (PGD_ABI_MINOR without a line) has
// the hash of include/pagoda/plugin.h.
#ifndef PGD_DEV_MINORS_H
#define PGD_DEV_MINORS_H

#include <stdint.h>

#define PGD_DEV_MINORS(X)              \
    X(1, UINT64_C(0x75301da86f53fe5f)) \
    X(2, UINT64_C(0xf8446a9031db6535))

#endif
