/* perdure-criu-preload.so: lets CRIU dump another user's process where CAP_SYS_RESOURCE is missing.
 *
 * What goes wrong in the world. CRIU asks prlimit64(PID, RESOURCE) for every limit of the process that it dumps. Linux answers that for
 * another user's process only to CAP_SYS_RESOURCE, which containers rarely have (Docker leaves it out): "Can't get rlimit 0", no dump.
 * The same figures are in /proc/PID/limits, which root may read without it.
 *
 * What we do. This library is preloaded into CRIU, into nothing else, and never into a kernel. It watches one question: reading (not
 * setting) a limit of another process that was refused with EPERM is answered from /proc/PID/limits. Everything else goes through as it was.
 *
 * What we don't promise. *Setting* limits above one's own still needs the capability: a restore succeeds when the limits in the image are
 * not above those of the process that restores. CRIU's own wish for more descriptors ("Can't setup RLIMIT_NOFILE for self") fails without
 * harm: it goes on with the limit that it has.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Not <sys/resource.h>: there `prlimit` takes an enum, and CRIU may be built against either type. */
struct limit {
	unsigned long soft, hard;
};

/* In the order of RLIMIT_*: how /proc/PID/limits calls them. */
static const char *const names[] = {
	"Max cpu time",      "Max file size",     "Max data size",       "Max stack size",
	"Max core file size", "Max resident set", "Max processes",       "Max open files",
	"Max locked memory", "Max address space", "Max file locks",      "Max pending signals",
	"Max msgqueue size", "Max nice priority", "Max realtime priority", "Max realtime timeout",
};
enum { KNOWN = sizeof names / sizeof *names };

static int value(const char *text, unsigned long *out)
{
	char *end;

	if (!strcmp(text, "unlimited")) {
		*out = ~0UL;
		return 0;
	}
	errno = 0;
	*out = strtoul(text, &end, 10);
	return errno || end == text || *end ? -1 : 0;
}

/* 0, or -1 with errno EPERM, which is what the caller would have got without us. */
static int from_proc(long pid, long resource, struct limit *out)
{
	char path[64], line[256], soft[32], hard[32];
	size_t n = strlen(names[resource]);
	struct limit found;
	int result = -1;

	snprintf(path, sizeof path, "/proc/%ld/limits", pid);
	FILE *f = fopen(path, "re");
	while (f && result && fgets(line, sizeof line, f))
		if (!strncmp(line, names[resource], n) && line[n] == ' ' && sscanf(line + n, " %31s %31s", soft, hard) == 2 &&
		    !value(soft, &found.soft) && !value(hard, &found.hard)) {
			*out = found;
			result = 0;
		}
	if (f)
		fclose(f);
	if (result)
		errno = EPERM;
	return result;
}

static long (*real_syscall)(long, ...);
static int (*real_prlimit)(int, int, const struct limit *, struct limit *);

__attribute__((constructor)) static void find(void)
{
	*(void **)&real_syscall = dlsym(RTLD_NEXT, "syscall");
	*(void **)&real_prlimit = dlsym(RTLD_NEXT, "prlimit64");
}

static int answerable(long pid, long resource, const void *set, const void *get)
{
	return errno == EPERM && pid > 0 && !set && get && resource >= 0 && resource < KNOWN;
}

long syscall(long number, ...)
{
	va_list ap;

	va_start(ap, number);
	long a = va_arg(ap, long), b = va_arg(ap, long), c = va_arg(ap, long);
	long d = va_arg(ap, long), e = va_arg(ap, long), f = va_arg(ap, long);
	va_end(ap);
	long result = real_syscall(number, a, b, c, d, e, f);
	if (result == -1 && number == SYS_prlimit64 && answerable((int)a, (int)b, (void *)c, (void *)d))
		return from_proc((int)a, (int)b, (void *)d);
	return result;
}

int prlimit64(int pid, int resource, const struct limit *set, struct limit *get)
{
	int result = real_prlimit(pid, resource, set, get);

	return result == -1 && answerable(pid, resource, set, get) ? from_proc(pid, resource, get) : result;
}

int prlimit(int pid, int resource, const struct limit *set, struct limit *get) __attribute__((alias("prlimit64")));
