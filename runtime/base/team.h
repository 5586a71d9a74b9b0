// The thread team: the one compute team of the process.
//
// team_run hands a function to all workers; the caller is worker 0. Workers spin about 50 us for
// the next run, then sleep on a futex, so an idle process costs no CPU. One run at a time: a second
// caller queues. Inside a run, team_barrier lets all workers wait for each other.
#ifndef PGD_BASE_TEAM_H
#define PGD_BASE_TEAM_H

#include <pagoda/status.h>

typedef struct pgd_team pgd_team;
typedef void (*pgd_team_func)(void *arg, uint32_t worker, uint32_t n_workers);

// n_workers 0 = one per core this process may use (affinity and cgroup quota respected).
pgd_status pgd_team_create(uint32_t n_workers, pgd_team **out) PGD_MUST_USE;
void pgd_team_destroy(pgd_team *team); // NULL is fine; no run is under way
// The same on a system whose /proc and /sys lie below root: "" for the machine itself.
pgd_status pgd_team_create_at(const char *root, uint32_t n_workers, pgd_team **out) PGD_MUST_USE;

// [any] The process's one team: made by the first who opens it, ended by the last who closes it.
// n_workers counts for the first only; later engines share what is there.
pgd_status pgd_team_open(uint32_t n_workers, pgd_team **out) PGD_MUST_USE;
void pgd_team_close(pgd_team *team); // NULL is fine; no run of the caller is under way

uint32_t pgd_team_size(const pgd_team *team);
// [any] The system's number of the NUMA node that a worker is bound to. With more than one node
// workers are spread over them by their cpus and stay there; worker 0, the caller, is asked for
// nothing and counted as the first node's. 0 where there is one node.
uint32_t pgd_team_node(const pgd_team *team, uint32_t index);
// [any] runs so far, those inside a run not counted.
uint64_t pgd_team_runs(const pgd_team *team);
// [any] returns when every worker has returned from fn. A run inside a run is the caller's alone.
void pgd_team_run(pgd_team *team, pgd_team_func fn, void *arg);
// [inside fn] returns when every worker of the run has called it.
void pgd_team_barrier(pgd_team *team);

#endif
