/* The areas of a process's memory that a twin will hold, from /proc/PID/smaps. */
#ifndef PERDURE_AREAS_H
#define PERDURE_AREAS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct area {
	uint64_t start, end;
	uint64_t pages;   /* that a dump holds: anonymous ones, in memory or swapped out */
	uint64_t covered; /* how far from `start` the dump has asked for it … */
	int asked;        /* … if it has */
};

struct process {
	pid_t pid;
	size_t count;
	struct area *areas; /* ascending */
};

/* Takes the areas that Linux copies at fork and that CRIU saves page by page: private ones, but for those that are marked otherwise.
 * -1: out of memory, or not an smaps. */
int areas_parse(struct process *process, const char *smaps, size_t length);

/* The first area that ends after `address`; `count` when there is none. */
size_t areas_find(const struct process *process, uint64_t address);

#endif
