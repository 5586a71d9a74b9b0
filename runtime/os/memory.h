// Pages: address room that gets memory when it is touched and gives it back when told to.
#ifndef PGD_OS_MEMORY_H
#define PGD_OS_MEMORY_H

#include <stdint.h>

#include <pagoda/status.h>

// Zeroed pages for reading and writing; no memory is used until they are touched.
// OUT_OF_MEMORY; bytes 0 gives NULL.
pgd_status pgd_os_memory_reserve(uint64_t bytes, void **out) PGD_MUST_USE;
void pgd_os_memory_release(void *ptr, uint64_t bytes); // NULL is fine
// Gives back the memory of the whole pages inside [ptr, ptr + bytes). Reserved pages are zero
// again; pages of a mapped file come back from the file.
void pgd_os_memory_drop(const void *ptr, uint64_t bytes);
// Bytes of a page.
uint64_t pgd_os_memory_page(void);

#endif
