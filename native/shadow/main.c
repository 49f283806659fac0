/* perdure-shadow PID...: makes twins of processes and keeps them until its standard input ends. They die with it.
 * perdure-shadow --reap PID CHILD: reaps a companion that a killed maker left; CHILD as PID numbers it.
 *
 * For looking at a process's memory while it runs on, and for the tests of twin.h. A snapshot uses the same code from within CRIU
 * (blindfold.c), which has the processes stopped already.
 *
 * Standard output: "twin PID TWIN" for each, then "kept"; on any failure "failed PID WHY", exit status 1, and all processes run on.
 */
#define _GNU_SOURCE
#include "twin.h"

#include <dirent.h>
#include <errno.h>
#include <linux/ptrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern long ptrace(int request, ...);

struct threads {
	pid_t *ids;
	size_t count, room;
};

static int has(const struct threads *all, pid_t id)
{
	for (size_t i = 0; i < all->count; i++)
		if (all->ids[i] == id)
			return 1;
	return 0;
}

static int add(struct threads *all, pid_t id)
{
	if (all->count == all->room) {
		size_t room = all->room ? all->room * 2 : 64;
		pid_t *grown = realloc(all->ids, room * sizeof *grown);
		if (!grown)
			return -1;
		all->ids = grown;
		all->room = room;
	}
	all->ids[all->count++] = id;
	return 0;
}

/* 1: it stands; 0: it has ended meanwhile; -1: it can't be traced. */
static int stop(pid_t id)
{
	int status;

	if (ptrace(PTRACE_SEIZE, id, 0, 0))
		return errno == ESRCH ? 0 : -1;
	if (ptrace(PTRACE_INTERRUPT, id, 0, 0))
		return 0;
	while (waitpid(id, &status, __WALL) < 0)
		if (errno != EINTR)
			return 0;
	return WIFSTOPPED(status) != 0;
}

/* Stops every thread of the process, those too that others make meanwhile. */
static int stop_all(pid_t pid, struct threads *all)
{
	char path[64];
	int found = 1;

	snprintf(path, sizeof path, "/proc/%d/task", pid);
	while (found) {
		DIR *folder = opendir(path);
		found = 0;
		if (!folder)
			return -1;
		for (struct dirent *entry; (entry = readdir(folder));) {
			pid_t id = atoi(entry->d_name);
			if (id <= 0 || has(all, id))
				continue;
			int stands = stop(id);
			if (stands < 0 || (stands && add(all, id))) {
				closedir(folder);
				return -1;
			}
			found |= stands;
		}
		closedir(folder);
	}
	return has(all, pid) ? 0 : -1;
}

static void let_go(struct threads *all)
{
	for (size_t i = 0; i < all->count; i++)
		ptrace(PTRACE_DETACH, all->ids[i], 0, 0);
	all->count = 0;
}

static int reap_only(pid_t pid, pid_t child)
{
	struct twin result = {0};

	errno = 0;
	if (stop(pid) != 1) {
		printf("failed %d it can't be stopped: %s\n", pid, errno ? strerror(errno) : "it has ended");
		return 1;
	}
	int failed = twin_reap(pid, child, &result);
	ptrace(PTRACE_DETACH, pid, 0, 0);
	if (failed)
		printf("failed %d %s\n", pid, result.error);
	return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct threads all = {0};
	struct twin twins[64];
	int made = 0, failed = 0;
	char byte;

	if (argc == 4 && !strcmp(argv[1], "--reap"))
		return reap_only(atoi(argv[2]), atoi(argv[3]));
	if (argc < 2 || argc > 65) {
		fprintf(stderr, "usage: perdure-shadow PID...   (at most 64)\n       perdure-shadow --reap PID CHILD\n");
		return 2;
	}
	for (int i = 1; i < argc && !failed; i++) {
		errno = 0;
		if (stop_all(atoi(argv[i]), &all)) {
			printf("failed %s it can't be stopped: %s\n", argv[i], errno ? strerror(errno) : "it has ended");
			failed = 1;
		}
	}
	for (int i = 1; i < argc && !failed; i++) {
		failed = twin_make(atoi(argv[i]), &twins[made]);
		if (failed)
			printf("failed %s %s\n", argv[i], twins[made].error);
		else
			made++;
	}
	let_go(&all);
	for (int i = 0; i < made && !failed; i++) {
		failed = twin_park(&twins[i]);
		if (failed)
			printf("failed %s %s\n", argv[i + 1], twins[i].error);
		else
			printf("twin %s %d\n", argv[i + 1], twins[i].pid);
	}
	if (!failed) {
		printf("kept\n");
		fflush(stdout);
		while (read(0, &byte, 1) > 0)
			;
	}
	for (int i = 0; i < made; i++)
		twin_end(&twins[i]);
	free(all.ids);
	return failed ? 1 : 0;
}
