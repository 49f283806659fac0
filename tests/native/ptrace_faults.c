/* Preloaded into perdure-shadow by the tests: the call of ptrace(2) with the number FAULT_AT kills the program, or (FAULT_FAILS) fails.
 * FAULT_COUNT names a file that gets the number of calls. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PEEKUSER = 3, DETACH = 17, GETEVENTMSG = 0x4201 };

static long calls;

__attribute__((destructor)) static void count(void)
{
	const char *path = getenv("FAULT_COUNT");
	FILE *f = path ? fopen(path, "w") : NULL;

	if (f) {
		fprintf(f, "%ld", calls);
		fclose(f);
	}
}

long ptrace(int request, ...)
{
	const char *at = getenv("FAULT_AT");
	va_list ap;

	va_start(ap, request);
	long pid = va_arg(ap, int), address = va_arg(ap, long), data = va_arg(ap, long);
	va_end(ap);
	if (++calls == (at ? atol(at) : -1)) {
		if (!getenv("FAULT_FAILS"))
			kill(getpid(), SIGKILL);
		if (request != DETACH && request != GETEVENTMSG) {
			errno = EIO;
			return -1;
		}
	}
	return syscall(SYS_ptrace, request, pid, address, data);
}
