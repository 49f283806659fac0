/* gadgets.h: nearly every C library has both (getpid(2)'s wrapper, the return from a signal handler), so it is looked at first. */
#define _GNU_SOURCE
#include "gadgets.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1 << 18, OVERLAP = 16 };

static const unsigned char call[] = {0x0f, 0x05, 0xc3};
static const unsigned char back64[] = {0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};
static const unsigned char back32[] = {0xb8, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};

static int holds(int mem, unsigned long at, const unsigned char *wanted, size_t length)
{
	unsigned char there[sizeof back64];

	return at && pread(mem, there, length, (off_t)at) == (ssize_t)length && !memcmp(there, wanted, length);
}

static int valid(int mem, const struct gadgets *g)
{
	return holds(mem, g->syscall, call, sizeof call) &&
	       (holds(mem, g->sigreturn, back64, sizeof back64) || holds(mem, g->sigreturn, back32, sizeof back32));
}

static void look(unsigned long *found, const unsigned char *bytes, size_t n, unsigned long base, const unsigned char *wanted, size_t length)
{
	const unsigned char *hit = *found ? NULL : memmem(bytes, n, wanted, length);

	if (hit)
		*found = base + (unsigned long)(hit - bytes);
}

static void search(int mem, unsigned long start, unsigned long end, unsigned char *buffer, struct gadgets *g)
{
	while (start < end && !(g->syscall && g->sigreturn)) {
		size_t want = end - start < CHUNK ? end - start : CHUNK;
		ssize_t n = pread(mem, buffer, want, (off_t)start);

		if (n <= 0)
			return;
		look(&g->syscall, buffer, (size_t)n, start, call, sizeof call);
		look(&g->sigreturn, buffer, (size_t)n, start, back64, sizeof back64);
		look(&g->sigreturn, buffer, (size_t)n, start, back32, sizeof back32);
		start += n > OVERLAP && (unsigned long)n < end - start ? (unsigned long)n - OVERLAP : (unsigned long)n;
	}
}

/* One pass over the executable areas: those of the C library, or all others. */
static void pass(FILE *maps, int mem, int libc, unsigned char *buffer, struct gadgets *g)
{
	char line[4352];

	rewind(maps);
	while (fgets(line, sizeof line, maps) && !(g->syscall && g->sigreturn)) {
		unsigned long start, end;
		char rights[5];

		if (sscanf(line, "%lx-%lx %4s", &start, &end, rights) != 3 || rights[0] != 'r' || rights[2] != 'x')
			continue;
		if (!strstr(line, "/libc") == !libc && !strstr(line, "[vsyscall]"))
			search(mem, start, end, buffer, g);
	}
}

int gadgets_find(pid_t pid, int mem, struct gadgets *found)
{
	char path[64];
	struct gadgets g = {0, 0};

	if (valid(mem, found))
		return 0;
	snprintf(path, sizeof path, "/proc/%d/maps", pid);
	FILE *maps = fopen(path, "re");
	unsigned char *buffer = malloc(CHUNK);
	if (maps && buffer) {
		pass(maps, mem, 1, buffer, &g);
		pass(maps, mem, 0, buffer, &g);
	}
	free(buffer);
	if (maps)
		fclose(maps);
	if (!valid(mem, &g))
		return -1;
	*found = g;
	return 0;
}
