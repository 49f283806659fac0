/* perdure-shim: the process that a kernel's sandbox begins and ends with.
 *
 * What goes wrong in the world. A checkpoint of a process is worth nothing if it can't come back elsewhere. It can't when its pid is taken
 * on the new host, when it holds a descriptor or sits on a mount that exists only on the old one, when the program opened an io_uring,
 * when its terminal's number or its name in /dev/shm belongs to somebody else. And kernels start helpers that outlive them, print for
 * weeks, get killed, and are started by an agent that may itself be killed at any moment.
 *
 * What we do. A PID namespace and a mount namespace per kernel, so that the kernel is pid 1000 for ever, with its own /proc, /dev/shm and
 * pty numbers, and all else the host's. PID 1 is this program. It is not part of the image: CRIU restores pid 1000 as a child of a new,
 * perhaps newer shim (--empty), so nothing here may be needed by the kernel's memory. Nothing inherited is left open, stdio is opened
 * inside, io_uring is answered ENOSYS. PID 1 reaps every orphan, forwards TERM, INT and HUP to the kernel's group, pumps the kernel's
 * output into a log without ever making it wait for a full disk, and when pid 1000 has ended it ends all the rest and writes how it ended
 * into the status file.
 *
 * Who dies with whom. The starter (this process, "outer") only waits and passes signals on. Killing it by accident must not cost days of
 * work, so the sandbox goes on without it, as it goes on without the agent. With --lifeline it is the other way round: when the other end
 * of that pipe closes, or the starter dies, everything in the sandbox is killed at once. When PID 1 is killed (SIGKILL from outside), Linux
 * ends the whole sandbox; nobody writes a last line then, and the starter exits with 137.
 *
 * What we don't promise. No security boundary against a kernel that runs as root; no limits on memory or CPU (cgroups are the agent's);
 * no network namespace. A process that hangs inside Linux (a dead NFS server) can't be ended by anybody: the report is written after
 * five seconds all the same.
 *
 * Every failure before `ready` is one line, `error WHAT: WHY`, exit status 125 (2 for bad arguments), and no process left.
 */
#define _GNU_SOURCE
#include "shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const size_t ENVIRONMENT_LIMIT = 16 << 20; /* bytes; Linux itself refuses at a quarter of the stack limit, 2 MiB as a rule */

/* NUL-ended strings from a descriptor as an environ. */
static char **read_environment(int fd)
{
	size_t size = 0, room = 64 << 10, entries = 0;
	char *text = malloc(room + 1);

	while (text) {
		if (size == room) {
			char *more = room < ENVIRONMENT_LIMIT ? realloc(text, (room *= 2) + 1) : NULL;
			if (!more)
				fail("environment", E2BIG);
			text = more;
		}
		ssize_t n = read(fd, text + size, room - size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			fail("environment", errno);
		if (n == 0)
			break;
		size += (size_t)n;
	}
	if (!text)
		fail("environment", ENOMEM);
	if (size && text[size - 1])
		fail_text("environment", "its last string has no end", EXIT_SANDBOX);
	for (size_t i = 0; i < size; i++)
		entries += !text[i];
	char **env = calloc(entries + 1, sizeof *env);
	if (!env)
		fail("environment", ENOMEM);
	char *next = text;
	for (size_t i = 0; i < entries; i++, next += strlen(next) + 1)
		env[i] = next;
	return env;
}

static long read_pid_max(void)
{
	static const char path[] = "/proc/sys/kernel/pid_max";
	char text[32];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

	if (n <= 0)
		fail(path, errno);
	close(fd);
	text[n] = 0;
	return strtol(text, NULL, 10);
}

static void let_go_of_stdio(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
}

/* Signals that were sent to the starter are meant for the kernel. */
static int wait_for(pid_t init, const sigset_t *set)
{
	for (;;) {
		int status, signum = sigwaitinfo(set, NULL);
		if (signum > 0 && signum != SIGCHLD)
			kill(init, signum);
		if (waitpid(init, &status, WNOHANG) == init)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	}
}

int main(int argc, char **argv)
{
	struct settings s;
	struct sigaction standard = {.sa_handler = SIG_DFL};
	sigset_t set;
	int go[2];

	options_parse(&s, argc, argv);
	status_open(s.status_path);
	log_open(s.log_path, s.log_limit);
	s.pid_max = read_pid_max();
	s.env = s.env_fd >= 0 ? read_environment(s.env_fd) : environ;

	sigaction(SIGCHLD, &standard, NULL); /* an ignored SIGCHLD is inherited, and would reap for us */
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_SETMASK, &set, NULL);
	setsid(); /* a terminal's ^C is for its foreground, not for kernels; fails where we lead a group already, and that is fine */

	if (pipe2(go, O_CLOEXEC))
		fail("pipe", errno);
	if (unshare(CLONE_NEWPID))
		fail("pid namespace", errno);
	pid_t init = fork();
	if (init < 0)
		fail("pid 1", errno);
	if (!init) {
		close(go[1]);
		init_run(&s, go[0]);
	}
	let_go_of_stdio();
	close(go[0]);
	if (write(go[1], &init, sizeof init) != sizeof init)
		kill(init, SIGKILL);
	close(go[1]);
	return wait_for(init, &set);
}
