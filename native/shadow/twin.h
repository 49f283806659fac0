/* A copy-on-write twin of a stopped process: its private memory as it is at this instant, in a process that never runs user code.
 *
 * What goes wrong in the world. Only a process itself can fork itself, so a stranger has to borrow its main thread for a few system
 * calls. That thread may be anywhere: in a system call that has to go on afterwards, in a restartable sequence, with signals waiting,
 * under seccomp. It may belong to somebody who looks for children and zombies. And whoever borrows it may be killed at any moment.
 *
 * What we do. No code is written: the calls are made at a `syscall` instruction that the process has anyway. Registers, signal mask
 * and the rseq pointer are put back where they were, at a stop from which Linux goes on with an interrupted system call by itself.
 * The twin is a grandchild whose parent (a short-lived companion that shares the memory) is ended and reaped at once: init inherits it.
 * And there is a dead man's frame: below the stack's red zone lies a signal frame with the thread's own registers, and the borrowed
 * thread's stack pointer points to it, so that a thread whose borrower dies returns by itself to where it was. Companion and twin have
 * such a frame too; theirs leads to exit(2).
 *
 * What we don't promise. A borrower that is killed may leave the companion as a zombie that only wait4(__WALL) and /proc see, until
 * `twin_reap`; a sleep with a timeout may end early with EINTR. Areas that Linux doesn't copy at fork (MADV_DONTFORK, MADV_WIPEONFORK, shared ones) are not in the
 * twin. While the twin is made, /proc shows one or two more processes. x86-64 only.
 */
#ifndef PERDURE_TWIN_H
#define PERDURE_TWIN_H

#include <sys/types.h>

struct twin {
	pid_t pid;       /* in the caller's pid namespace; 0: there is none */
	char error[192]; /* why not */
};

/* `pid`: a main thread that the calling thread has seized (PTRACE_SEIZE) and that stands in a ptrace-stop; all other threads of the
 * process must stand too. 0: `twin->pid` is traced by the caller, stands, is killed when the caller dies, and shares nothing but file
 * descriptors with the process until `twin_park`. -1: `twin->error` says why, and no twin is left.
 * Either way `pid` stands as before, with no ptrace option set; SIGSTOP that came meanwhile is pending again. */
int twin_make(pid_t pid, struct twin *twin);

/* Reaps a companion whose maker was killed: `child`, a zombie, as process `pid` numbers it. `pid` is as for `twin_make`, but its other
 * threads may run. 0: it is gone. */
int twin_reap(pid_t pid, pid_t child, struct twin *twin);

/* Takes from the twin everything that isn't memory (descriptors, session, process group) and names it "perdure-shadow". -1: it is gone. */
int twin_park(struct twin *twin);

/* Lets go of a parked twin, which stays stopped (SIGSTOP), for another tracer to take. Woken without one, it dies of SIGSEGV. */
int twin_release(struct twin *twin);

/* Ends and reaps a twin that the caller traces. */
void twin_end(struct twin *twin);

#endif
