/* areas.h */
#include "areas.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE_KIB = 4 };

/* Two letters each in VmFlags. Not copied at fork, or wiped: dc, wf. Not ordinary memory: io, pf, mm, ht, ss. Shared: sh. Watched by userfaultfd: um, uw, ui. */
static const char *const strange[] = {"dc", "wf", "io", "pf", "mm", "ht", "ss", "sh", "um", "uw", "ui"};

struct line {
	const char *text, *end;
};

static int starts(const struct line *l, const char *with)
{
	size_t n = strlen(with);

	return (size_t)(l->end - l->text) > n && !memcmp(l->text, with, n);
}

static uint64_t hex(const char **at, const char *end)
{
	uint64_t value = 0;

	for (; *at < end; ++*at) {
		char c = **at;
		int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
		if (digit < 0)
			break;
		value = value << 4 | (uint64_t)digit;
	}
	return value;
}

static uint64_t kib(const struct line *l, size_t name)
{
	uint64_t value = 0;

	for (const char *at = l->text + name; at < l->end; at++)
		if (*at >= '0' && *at <= '9')
			value = value * 10 + (uint64_t)(*at - '0');
	return value;
}

/* "start-end rwxp offset device inode   name": 1 when it begins an area that may be taken, 0 when one that may not, -1 otherwise. */
static int head(const struct line *l, struct area *area)
{
	const char *at = l->text;

	memset(area, 0, sizeof *area);
	area->start = hex(&at, l->end);
	if (at == l->text || at >= l->end || *at++ != '-')
		return -1;
	area->end = hex(&at, l->end);
	if (l->end - at < 6 || *at != ' ')
		return -1;
	const char *name = memchr(at, '[', (size_t)(l->end - at));
	size_t left = name ? (size_t)(l->end - name) : 0;
	if (left && !(left >= 6 && !memcmp(name, "[heap]", 6)) && !(left >= 7 && !memcmp(name, "[stack]", 7)) &&
	    !(left >= 6 && !memcmp(name, "[anon:", 6)) && !memchr(at, '/', (size_t)(name - at)))
		return 0; /* [vdso], [vvar], [vsyscall] and what later kernels may add */
	return at[4] == 'p';
}

static int ordinary(const struct line *l)
{
	for (const char *at = l->text + strlen("VmFlags:"); at + 2 < l->end; at += 3)
		for (size_t i = 0; i < sizeof strange / sizeof *strange; i++)
			if (!memcmp(at + 1, strange[i], 2))
				return 0;
	return 1;
}

static int add(struct process *p, size_t *room, const struct area *area)
{
	if (p->count == *room) {
		size_t more = *room ? *room * 2 : 1024;
		struct area *grown = realloc(p->areas, more * sizeof *grown);

		if (!grown)
			return -1;
		p->areas = grown;
		*room = more;
	}
	p->areas[p->count++] = *area;
	return 0;
}

int areas_parse(struct process *process, const char *smaps, size_t length)
{
	const char *stop = smaps + length;
	struct area area = {0};
	int wanted = -1;
	size_t room = 0;

	process->count = 0;
	process->areas = NULL;
	for (const char *at = smaps; at < stop;) {
		const char *newline = memchr(at, '\n', (size_t)(stop - at));
		struct line l = {at, newline ? newline : stop};

		at = l.end + 1;
		if (l.text == l.end)
			continue;
		if (*l.text >= 'A' && *l.text <= 'Z') {
			if (wanted < 0)
				return -1;
			if (starts(&l, "Anonymous:"))
				area.pages += kib(&l, strlen("Anonymous:")) / PAGE_KIB;
			else if (starts(&l, "Swap:"))
				area.pages += kib(&l, strlen("Swap:")) / PAGE_KIB;
			else if (starts(&l, "VmFlags:") && wanted && ordinary(&l) && add(process, &room, &area))
				return -1;
		} else {
			wanted = head(&l, &area);
			if (wanted < 0)
				return -1;
		}
	}
	return 0;
}

size_t areas_find(const struct process *process, uint64_t address)
{
	size_t low = 0, high = process->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (process->areas[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}
