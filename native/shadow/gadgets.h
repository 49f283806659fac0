/* Instructions that a process has in its code, found rather than written. */
#ifndef PERDURE_GADGETS_H
#define PERDURE_GADGETS_H

#include <sys/types.h>

struct gadgets {
	unsigned long syscall;   /* syscall; ret */
	unsigned long sigreturn; /* mov $15 (rt_sigreturn), %eax or %rax; syscall */
};

/* `mem`: a descriptor of /proc/PID/mem. `found` may hold another process's, which are tried first. -1: this process has none. */
int gadgets_find(pid_t pid, int mem, struct gadgets *found);

#endif
