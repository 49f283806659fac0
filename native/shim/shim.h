/* What the parts of perdure-shim know of each other. The story is in ../perdure-shim.c. */
#ifndef PERDURE_SHIM_H
#define PERDURE_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum {
	EXIT_USAGE = 2,
	EXIT_SANDBOX = 125, /* the sandbox or the kernel could not be started: `error` in the status file says why */
};

struct settings {
	const char *status_path, *log_path;
	long long log_limit; /* bytes; the log is rotated once it would be longer */
	int env_fd;          /* -1: the kernel gets the shim's own environment */
	int lifeline;        /* -1: the sandbox outlives whoever started it */
	bool drop;           /* uid, gid and groups were given */
	uid_t uid;
	gid_t gid;
	gid_t *groups;
	size_t ngroups;
	const char *cwd; /* NULL: "/" */
	pid_t kernel_pid;
	long pid_max; /* the host's: a new PID namespace may have a larger one, but the next host need not */
	bool empty;
	char **argv; /* NULL when empty */
	char **env;
};

/* options.c: fills `s`; on bad arguments it says which on stderr and in the status file, and exits with EXIT_USAGE. */
void options_parse(struct settings *s, int argc, char **argv);

/* status.c: lines for whoever started us. Opened once, before the namespaces; every line is one write(2) with O_APPEND. */
void status_open(const char *path);
int status_fd(void);
__attribute__((format(printf, 1, 2))) void status_line(const char *format, ...);
void status_sync(void);
/* `error WHAT: WHY` to the status file and to stderr, and the process is gone (in PID 1: the whole sandbox). err 0: no WHY. */
_Noreturn void fail(const char *what, int err);
_Noreturn void fail_text(const char *what, const char *why, int exit_code);

/* log.c: what the kernel's processes print. Never blocks on a full disk: bytes that find no room are counted and dropped. */
void log_open(const char *path, long long limit);
void log_keep(int fds[2]);                /* the descriptors that log.c lives on */
void log_write(const char *data, size_t n);

/* mounts.c: the sandbox's own mount namespace: /proc, /dev/shm, /dev/pts. */
void mounts_make(void);

/* kernel.c: in the child that becomes the kernel. Never returns; what went wrong is written to `report` as a struct obstacle. */
struct obstacle {
	int err;
	char what[120];
};
_Noreturn void kernel_exec(const struct settings *s, int output, int report);

/* init.c: PID 1. `go` gives the host's number of this process once the starter is ready. */
_Noreturn void init_run(struct settings *s, int go);

#endif
