/* perdure-blindfold.so: preloaded into CRIU for a live snapshot, beside perdure-criu-preload.so; never into a kernel.
 *
 * What goes wrong in the world. While the kernel stands still CRIU writes all of its memory: half a second and more per GiB.
 *
 * What we do. CRIU asks Linux which pages of an area exist (PAGEMAP_SCAN). For areas that a twin will hold (areas.h) it is told "none",
 * so it writes the skeleton alone. Just before it lets go of the first thread, with everything saved and undone and all threads still
 * standing, each process gets its twin (twin.h); the twins stay behind, stopped, for the agent to read from.
 *
 * PERDURE_BLINDFOLD is "ARM REPORT", two descriptors. ARM: four bytes of shared memory; the agent makes them non-zero in CRIU's last
 * hook, when the dump is good. Without that no twin is made. REPORT: a file that gets lines:
 *   hidden PID START END PAGES   (hexadecimal addresses) an area that CRIU was told nothing of, and the pages that it has
 *   partly PID START END         CRIU asked only for a part of it: the image can't be completed
 *   twin PID TWIN                process and twin, numbers as CRIU sees them
 *   failed PID WHY
 *   twins BEGIN END              nanoseconds of CLOCK_MONOTONIC
 * The last line is missing when anything could not be reported.
 *
 * What we don't promise. A CRIU that asks in another way (before Linux 6.7) writes all pages itself; then nothing is reported as hidden.
 */
#define _GNU_SOURCE
#include "areas.h"
#include "twin.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct scan { /* linux/fs.h: struct pm_scan_arg */
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, anyof, returned;
};
#define PAGEMAP_SCAN 0xc0606610UL
enum { PRESENT = 1 << 3, DETACH = 17, RUN = 24 /* size of struct page_region */ };

static int (*real_openat)(int, const char *, int, ...);
static int (*real_ioctl)(int, unsigned long, ...);
static long (*real_ptrace)(int, ...);

static atomic_int *arm;
static int report = -1;
static int mute; /* a line could not be written: no later one is */
static int done;
static struct process *processes;
static size_t count;

__attribute__((constructor)) static void begin(void)
{
	const char *where = getenv("PERDURE_BLINDFOLD");
	int flag;

	*(void **)&real_openat = dlsym(RTLD_NEXT, "openat64");
	*(void **)&real_ioctl = dlsym(RTLD_NEXT, "ioctl");
	*(void **)&real_ptrace = dlsym(RTLD_NEXT, "ptrace");
	if (!where || sscanf(where, "%d %d", &flag, &report) != 2)
		return;
	void *page = mmap(NULL, sizeof *arm, PROT_READ, MAP_SHARED, flag, 0);
	arm = page == MAP_FAILED ? NULL : page;
}

static int tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int tell(const char *format, ...)
{
	char line[320];
	va_list ap;

	va_start(ap, format);
	int n = vsnprintf(line, sizeof line, format, ap);
	va_end(ap);
	if (mute || n <= 0 || write(report, line, (size_t)n) != n)
		mute = 1;
	return mute ? -1 : 0;
}

/* The PID of a descriptor of /proc/PID/NAME; 0 when it is something else. */
static pid_t whose(int fd, const char *name)
{
	char link[64], path[128], tail[32];
	int pid = 0;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof path - 1);
	if (n < 0)
		return 0;
	path[n] = 0;
	return sscanf(path, "/proc/%d/%31s", &pid, tail) == 2 && !strcmp(tail, name) ? pid : 0;
}

static struct process *known(pid_t pid)
{
	for (size_t i = 0; i < count; i++)
		if (processes[i].pid == pid)
			return &processes[i];
	return NULL;
}

static int remember(pid_t pid, const char *text, size_t length)
{
	struct process *p = known(pid);

	if (!p) {
		struct process *grown = realloc(processes, (count + 1) * sizeof *grown);
		if (!grown)
			return -1;
		processes = grown;
		p = &processes[count++];
		memset(p, 0, sizeof *p);
	}
	free(p->areas);
	p->pid = pid;
	return areas_parse(p, text, length);
}

/* All of a file; NULL when it can't be read. */
static char *whole(int fd, size_t *length)
{
	size_t room = 1 << 20, n = 0;
	char *text = malloc(room);
	ssize_t got = 0;

	while (text && (got = read(fd, text + n, room - n)) > 0) {
		n += (size_t)got;
		if (room - n < 1 << 16) {
			char *grown = realloc(text, room *= 2);
			if (!grown)
				free(text);
			text = grown;
		}
	}
	if (text && got < 0) {
		free(text);
		text = NULL;
	}
	*length = n;
	return text;
}

/* Reading smaps walks all page tables, so it is read once: CRIU gets a copy. */
static int shared_smaps(int fd, pid_t pid)
{
	size_t length;
	char *text = whole(fd, &length);
	int copy = text ? memfd_create("smaps", MFD_CLOEXEC) : -1;

	if (copy >= 0 && (write(copy, text, length) != (ssize_t)length || lseek(copy, 0, SEEK_SET) || remember(pid, text, length))) {
		close(copy);
		copy = -1;
	}
	free(text);
	close(fd);
	if (copy < 0)
		errno = EIO;
	return copy;
}

__attribute__((visibility("default"))) int openat64(int folder, const char *path, int flags, ...)
{
	va_list ap;

	va_start(ap, flags);
	int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, int) : 0;
	va_end(ap);
	int fd = real_openat(folder, path, flags, mode);
	if (fd < 0 || !arm || strcmp(path, "smaps"))
		return fd;
	pid_t pid = whose(fd, "smaps");
	return pid > 0 ? shared_smaps(fd, pid) : fd;
}

/* Asks Linux for a part of the question; results go behind those that are there. 0: all of the part was looked at. */
static int ask(int fd, struct scan *whole_question, uint64_t start, uint64_t end, uint64_t *found)
{
	struct scan part = *whole_question;

	part.start = start;
	part.end = end;
	part.vec += *found * RUN;
	part.vec_len -= *found;
	int n = real_ioctl(fd, PAGEMAP_SCAN, &part);
	if (n < 0)
		return -1;
	*found += (uint64_t)n;
	whole_question->walk_end = part.walk_end;
	return part.walk_end >= end ? 0 : 1;
}

static void cover(struct area *area, uint64_t start, uint64_t end)
{
	area->asked = 1;
	if (start <= area->start + area->covered && end > area->start + area->covered)
		area->covered = end - area->start;
}

static int filtered(int fd, struct scan *question, struct process *p)
{
	uint64_t at = question->start, found = 0;
	size_t i = areas_find(p, at);

	while (at < question->end) {
		struct area *next = i < p->count && p->areas[i].start < question->end ? &p->areas[i] : NULL;
		uint64_t open = next && next->start > at ? next->start : next ? at : question->end;
		int left = open > at ? ask(fd, question, at, open, &found) : 0;

		if (left)
			return left < 0 ? -1 : (int)found;
		at = open;
		if (next) {
			uint64_t end = next->end < question->end ? next->end : question->end;
			cover(next, at, end);
			at = end;
			i++;
		}
	}
	question->walk_end = question->end;
	return (int)found;
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;

	va_start(ap, request);
	void *argument = va_arg(ap, void *);
	va_end(ap);
	struct scan *question = argument;
	if (request != PAGEMAP_SCAN || !arm || !(question->anyof & PRESENT) || !question->vec_len)
		return real_ioctl(fd, request, argument);
	struct process *p = known(whose(fd, "pagemap"));
	return p ? filtered(fd, question, p) : real_ioctl(fd, request, argument);
}

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int tell_areas(const struct process *p)
{
	int hidden = 0;

	for (size_t i = 0; i < p->count; i++) {
		const struct area *a = &p->areas[i];
		const char *what = a->covered == a->end - a->start ? "hidden" : "partly";

		if (!a->asked)
			continue;
		hidden = 1;
		if (tell("%s %d %llx %llx %llu\n", what, p->pid, (unsigned long long)a->start, (unsigned long long)a->end,
		         (unsigned long long)a->pages))
			return -1;
	}
	return hidden;
}

static void make_twins(void)
{
	long long from = now();
	struct twin twin;

	for (size_t i = 0; i < count; i++) {
		pid_t pid = processes[i].pid;
		int hidden = tell_areas(&processes[i]);

		if (!hidden)
			continue;
		if (hidden < 0 || twin_make(pid, &twin)) {
			tell("failed %d %s\n", pid, hidden < 0 ? "nothing can be reported" : twin.error);
		} else if (twin_park(&twin) || tell("twin %d %d\n", pid, twin.pid) || twin_release(&twin)) {
			twin_end(&twin);
			tell("failed %d %s\n", pid, twin.error);
		}
	}
	tell("twins %lld %lld\n", from, now());
}

__attribute__((visibility("default"))) long ptrace(int request, ...)
{
	va_list ap;

	va_start(ap, request);
	pid_t pid = va_arg(ap, pid_t);
	void *address = va_arg(ap, void *), *data = va_arg(ap, void *);
	va_end(ap);
	if (request == DETACH && arm && atomic_load(arm) && !done) {
		done = 1;
		make_twins();
	}
	return real_ptrace(request, pid, address, data);
}
