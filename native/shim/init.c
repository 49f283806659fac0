/* PID 1 of the sandbox: makes the mounts, starts the kernel, reaps, forwards signals, keeps the log, and ends everything. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static const int END_DEADLINE_MS = 5000; /* for killed processes to be gone; one that hangs in the kernel must not hold back the report */

static int signals = -1, output[2] = {-1, -1};
static bool ended;
static int end_status; /* as waitpid gave it */

static int ascending(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Everything that was inherited, but for what is named: a descriptor from outside would end in the image and make it unusable. */
static void close_others(int *keep, size_t n)
{
	unsigned next = 3;

	qsort(keep, n, sizeof *keep, ascending);
	for (size_t i = 0; i < n; i++) {
		if (keep[i] < (int)next)
			continue;
		if (keep[i] > (int)next && syscall(SYS_close_range, next, (unsigned)keep[i] - 1, 0))
			fail("descriptors", errno);
		next = (unsigned)keep[i] + 1;
	}
	if (syscall(SYS_close_range, next, ~0U, 0))
		fail("descriptors", errno);
}

/* The next process in the sandbox gets pid + 1. */
static void set_last_pid(long pid)
{
	static const char path[] = "/proc/sys/kernel/ns_last_pid";
	char text[32];
	int n = snprintf(text, sizeof text, "%ld", pid);
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, (size_t)n) != n)
		fail("ns_last_pid", errno);
	close(fd);
}

static void open_streams(const struct settings *s)
{
	sigset_t set;

	if (pipe2(output, O_CLOEXEC) || fcntl(output[0], F_SETFL, O_NONBLOCK))
		fail("output pipe", errno);
	/* /dev/stdout leads back to this pipe, and whoever opens it by that name has to be its owner. */
	if (s->drop && fchown(output[1], s->uid, s->gid))
		fail("output pipe", errno);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_SETMASK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0)
		fail("signals", errno);
	status_line("stdio %d", output[1]);
}

static void start_kernel(const struct settings *s)
{
	struct obstacle o;
	int report[2];

	if (pipe2(report, O_CLOEXEC))
		fail("pipe", errno);
	set_last_pid(s->kernel_pid - 1);
	pid_t pid = fork();
	if (pid < 0)
		fail("kernel process", errno);
	if (!pid)
		kernel_exec(s, output[1], report[1]);
	if (pid != s->kernel_pid)
		fail_text("kernel process", "its pid is not the one that was asked for", EXIT_SANDBOX);
	close(report[1]);
	ssize_t n;
	while ((n = read(report[0], &o, sizeof o)) < 0 && errno == EINTR)
		;
	if (n == sizeof o) {
		o.what[sizeof o.what - 1] = 0;
		fail(o.what, o.err);
	}
	close(report[0]);
}

/* A kernel's environment holds tokens; PID 1 lives as long as the kernel does and has no use for them. */
static void forget_environment(struct settings *s)
{
	if (s->env_fd >= 0)
		for (char **entry = s->env; *entry; entry++)
			explicit_bzero(*entry, strlen(*entry));
}

/* True while there was something to read. */
static bool pump(void)
{
	static char buffer[64 << 10];
	ssize_t n = read(output[0], buffer, sizeof buffer);

	if (n > 0)
		log_write(buffer, (size_t)n);
	return n > 0;
}

/* Children of ours are the kernel (also one that CRIU restored: it falls to us when CRIU ends) and every orphan. -1: none is left. */
static int reap(pid_t kernel)
{
	for (;;) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);
		if (pid == kernel && !ended) {
			ended = true;
			end_status = status;
		}
		if (pid < 0 && errno == EINTR)
			continue;
		if (pid <= 0)
			return pid;
	}
}

static void take_signals(pid_t kernel)
{
	struct signalfd_siginfo info;

	while (read(signals, &info, sizeof info) == sizeof info)
		if (info.ssi_signo != SIGCHLD && kill(-kernel, (int)info.ssi_signo))
			kill(kernel, (int)info.ssi_signo);
	reap(kernel);
}

static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* Ends what is left, writes the last output and the last line. The kernel (Linux) kills whatever is still there when PID 1 goes. */
static _Noreturn void finish(pid_t kernel)
{
	long long deadline = now_ms() + END_DEADLINE_MS;
	struct pollfd on = {.fd = signals, .events = POLLIN};
	struct signalfd_siginfo info;

	kill(-1, SIGKILL);
	while (reap(kernel) == 0 && now_ms() < deadline) {
		poll(&on, 1, 50);
		while (read(signals, &info, sizeof info) > 0)
			;
	}
	while (pump())
		;
	int code = 128 + SIGKILL;
	if (ended && WIFEXITED(end_status)) {
		code = WEXITSTATUS(end_status);
		status_line("exit %d", code);
	} else {
		int signum = ended ? WTERMSIG(end_status) : SIGKILL;
		code = 128 + signum;
		status_line("signal %d", signum);
	}
	status_sync();
	_exit(code);
}

static bool lifeline_cut(int fd)
{
	char byte[64];
	ssize_t n = read(fd, byte, sizeof byte);

	return n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
}

_Noreturn void init_run(struct settings *s, int go)
{
	int host_pid, keep[5] = {status_fd(), go, s->lifeline, -1, -1};

	/* With a lifeline the starter's end counts too. Set before `go` is read: a starter that is gone by then gives no pid. */
	if (s->lifeline >= 0 && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))
		fail("parent death signal", errno);
	setsid();
	log_keep(keep + 3);
	close_others(keep, sizeof keep / sizeof *keep);
	if (read(go, &host_pid, sizeof host_pid) != sizeof host_pid)
		_exit(EXIT_SANDBOX);
	close(go);
	if (s->lifeline >= 0)
		fcntl(s->lifeline, F_SETFD, FD_CLOEXEC);
	status_line("shim %d", host_pid);

	umask(022); /* the kernel's files are not to depend on how the agent keeps its own */
	if (chdir("/"))
		fail("/", errno);
	mounts_make();
	open_streams(s);
	if (s->empty) {
		/* Pids of CRIU and of other helpers come from here on, far from those that the kernel had. */
		set_last_pid(s->pid_max / 4 * 3);
	} else {
		start_kernel(s);
		forget_environment(s);
	}
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
		fail("/dev/null", errno);
	close(null);
	status_line("ready");

	struct pollfd on[] = {{.fd = signals, .events = POLLIN}, {.fd = output[0], .events = POLLIN}, {.fd = s->lifeline, .events = POLLIN}};
	while (!ended) {
		if (poll(on, 3, -1) < 0 && errno != EINTR)
			fail("poll", errno);
		if (on[0].revents)
			take_signals(s->kernel_pid);
		if (on[1].revents)
			pump();
		if (on[2].revents && lifeline_cut(s->lifeline))
			break;
	}
	finish(s->kernel_pid);
}
