/* twin.h. The order: frames, companion, twin, companion ended and reaped, registers. */
#define _GNU_SOURCE
#include "twin.h"

#include "deadman.h"
#include "gadgets.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/ptrace.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* <sys/ptrace.h> and <linux/ptrace.h> don't go together, and only the latter has the rseq configuration. */
extern long ptrace(int request, ...);

static const char NAME[] = "perdure-shadow";
enum { SYSCALL_STOP = SIGTRAP | 0x80, TRAP_FLAG = 0x100 };

/* A stopped thread that is lent to us. */
struct lent {
	pid_t pid;
	struct user_regs_struct regs; /* what injected calls start from */
	unsigned long stack;          /* its way back, or out, when we die */
	unsigned long call;           /* address of a syscall instruction */
	int stop;                     /* a SIGSTOP was held back */
};

static int fail(struct twin *twin, const char *what)
{
	if (!*twin->error)
		snprintf(twin->error, sizeof twin->error, "%s: %s", what, errno ? strerror(errno) : "unexpected state");
	return -1;
}

static int get_regs(pid_t pid, struct user_regs_struct *regs)
{
	struct iovec io = {regs, sizeof *regs};

	return ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &io) ? -1 : 0;
}

static int set_regs(pid_t pid, const struct user_regs_struct *regs)
{
	struct iovec io = {(void *)(uintptr_t)regs, sizeof *regs};

	return ptrace(PTRACE_SETREGSET, pid, NT_PRSTATUS, &io) ? -1 : 0;
}

/* The next stop's status; -1 when the thread has ended instead. */
static int stopped(pid_t pid)
{
	int status;
	pid_t got;

	do
		got = waitpid(pid, &status, __WALL);
	while (got < 0 && errno == EINTR);
	if (got != pid || !WIFSTOPPED(status)) {
		errno = ESRCH;
		return -1;
	}
	return status;
}

/* Resumes until a stop that is no job-control or signal stop. All signals but SIGKILL and SIGSTOP are blocked, so what else arrives is
 * a fault, and a failure. */
static int resume(struct lent *t, int request)
{
	for (;;) {
		if (ptrace(request, t->pid, 0, 0))
			return -1;
		int status = stopped(t->pid);
		if (status < 0)
			return -1;
		if (WSTOPSIG(status) == SYSCALL_STOP || status >> 16 == PTRACE_EVENT_CLONE)
			return status;
		if (status >> 16 == PTRACE_EVENT_STOP) {
			if (request == PTRACE_CONT)
				return status;
			continue;
		}
		if (WSTOPSIG(status) != SIGSTOP) {
			errno = EFAULT;
			return -1;
		}
		t->stop = 1;
	}
}

/* One system call. 0: `*result` is what it gave, and `*child` (if not NULL) the process that it made. Stands at a stop afterwards, before
 * any instruction of its own, with the registers that the call left. */
static int call(struct lent *t, pid_t *child, long *result, long number, long a, long b, long c)
{
	struct user_regs_struct regs = t->regs;
	unsigned long made = 0;

	regs.rip = t->call;
	regs.rsp = t->stack;
	regs.rax = (unsigned long)number;
	regs.orig_rax = ~0UL;
	regs.rdi = (unsigned long)a;
	regs.rsi = (unsigned long)b;
	regs.rdx = (unsigned long)c;
	regs.r10 = regs.r8 = regs.r9 = 0;
	regs.eflags &= ~(unsigned long)TRAP_FLAG;
	errno = 0;
	if (set_regs(t->pid, &regs) || resume(t, PTRACE_SYSCALL) < 0)
		return -1;
	int status = resume(t, PTRACE_SYSCALL);
	if (status >= 0 && status >> 16 == PTRACE_EVENT_CLONE) {
		if (ptrace(PTRACE_GETEVENTMSG, t->pid, 0, &made))
			return -1;
		status = resume(t, PTRACE_SYSCALL);
	}
	if (child)
		*child = (pid_t)made;
	if (status < 0 || get_regs(t->pid, &regs))
		return -1;
	*result = (long)regs.rax;
	if (ptrace(PTRACE_INTERRUPT, t->pid, 0, 0) || resume(t, PTRACE_CONT) < 0)
		return -1;
	if (*result < 0 && *result > -4096) {
		errno = (int)-*result;
		return -1;
	}
	return 0;
}

/* A new traced process at its first stop, made ours. -1: it is gone. */
static int adopt(struct lent *t, pid_t pid, const struct lent *parent, unsigned long stack)
{
	memset(t, 0, sizeof *t);
	t->pid = pid;
	t->stack = stack;
	t->call = parent->call;
	t->regs = parent->regs;
	if (stopped(pid) < 0)
		return -1;
	return ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE) ? -1 : 0;
}

static void end(pid_t pid)
{
	int status;

	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	while (waitpid(pid, &status, __WALL) == pid ? WIFSTOPPED(status) : errno == EINTR)
		;
}

/* A field of /proc/PID/status as text after the name; 0 when it isn't there. */
static int status_field(pid_t pid, const char *name, char *out, size_t size)
{
	char path[64], line[512];
	size_t n = strlen(name);
	int found = 0;

	snprintf(path, sizeof path, "/proc/%d/status", pid);
	FILE *f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof line, f))
		if (!strncmp(line, name, n)) {
			snprintf(out, size, "%s", line + n);
			found = 1;
		}
	if (f)
		fclose(f);
	return found;
}

/* Companion and twin. 0: `*pid` is the twin, which stands; the companion is gone. The borrowed thread's registers are anything. */
static int copy(struct lent *thread, const struct deadman *d, pid_t *pid, struct twin *twin)
{
	struct lent companion, child;
	pid_t companion_pid = 0;
	long number, ignored;

	if (call(thread, &companion_pid, &number, SYS_clone, CLONE_VM | CLONE_FILES, (long)d->end, 0)) {
		end(companion_pid);
		return fail(twin, "clone");
	}
	int made = adopt(&companion, companion_pid, thread, d->end);
	if (!made)
		made = call(&companion, pid, &ignored, SYS_clone, CLONE_FILES, (long)d->end, 0);
	if (made)
		fail(twin, "copying the memory");
	end(companion_pid);
	if (call(thread, NULL, &ignored, SYS_wait4, number, 0, __WALL))
		made = fail(twin, "reaping");
	if (!made && adopt(&child, *pid, thread, d->end))
		made = fail(twin, "the twin");
	return made;
}

/* The inherited twin's parent must be init: a subreaper among the user's own processes would see a child that it never made. */
static int hidden(pid_t pid, struct twin *twin)
{
	char parent[32] = "";

	errno = 0;
	if (status_field(pid, "PPid:", parent, sizeof parent) && atoi(parent) > 1)
		return fail(twin, "a subreaper among the kernel's processes would inherit the twin");
	return 0;
}

static int options(pid_t pid)
{
	char mode[16] = "0";
	const int plain = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE;

	if (status_field(pid, "Seccomp:", mode, sizeof mode) && atoi(mode) &&
	    !ptrace(PTRACE_SETOPTIONS, pid, 0, plain | PTRACE_O_SUSPEND_SECCOMP))
		return 0;
	return ptrace(PTRACE_SETOPTIONS, pid, 0, plain) ? -1 : 0;
}

static int shadow_stack(pid_t pid)
{
	char features[128] = "";

	return status_field(pid, "x86_Thread_features:", features, sizeof features) && strstr(features, "shstk");
}

/* The borrowed thread between its state as found and as put back. */
struct state {
	struct user_regs_struct regs;
	uint64_t mask, rseq;
	unsigned long rseq_at; /* address of the pointer to the critical section; 0: no rseq */
};

static int save(pid_t pid, int mem, struct state *s)
{
	struct ptrace_rseq_configuration rseq = {0};

	s->rseq_at = 0;
	if (get_regs(pid, &s->regs) || ptrace(PTRACE_GETSIGMASK, pid, sizeof s->mask, &s->mask))
		return -1;
	if (ptrace(PTRACE_GET_RSEQ_CONFIGURATION, pid, sizeof rseq, &rseq) == sizeof rseq && rseq.rseq_abi_pointer) {
		s->rseq_at = rseq.rseq_abi_pointer + 8; /* struct rseq: cpu_id_start, cpu_id, rseq_cs */
		if (pread(mem, &s->rseq, sizeof s->rseq, (off_t)s->rseq_at) != sizeof s->rseq)
			return -1;
	}
	return 0;
}

/* After a failure the thread may stand anywhere in a system call of ours: that one is skipped, and it stands where all others leave it. */
static void settle(struct lent *t)
{
	struct user_regs_struct regs = t->regs;

	regs.rip = t->call;
	regs.rsp = t->stack;
	regs.orig_rax = ~0UL;
	if (!set_regs(t->pid, &regs) && !ptrace(PTRACE_INTERRUPT, t->pid, 0, 0))
		while (resume(t, PTRACE_CONT) >> 16 == PTRACE_EVENT_CLONE)
			;
}

static int put_back(const struct lent *t, int mem, const struct state *s)
{
	int failed = set_regs(t->pid, &s->regs);
	int others = (int)ptrace(PTRACE_SETSIGMASK, t->pid, sizeof s->mask, &s->mask);
	if (s->rseq_at)
		others |= pwrite(mem, &s->rseq, sizeof s->rseq, (off_t)s->rseq_at) != sizeof s->rseq;
	if (t->stop)
		kill(t->pid, SIGSTOP);
	others |= (int)ptrace(PTRACE_SETOPTIONS, t->pid, 0, 0);
	return failed || others ? -1 : 0;
}

/* The frames go out of the twin's memory too, and its rseq pointer becomes what it was: it is the memory of that instant. */
static int clean(pid_t pid, const struct deadman *d, const struct state *s)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/mem", pid);
	int mem = open(path, O_RDWR | O_CLOEXEC);
	if (mem < 0)
		return -1;
	int failed = deadman_erase(d, mem);
	if (s->rseq_at)
		failed |= pwrite(mem, &s->rseq, sizeof s->rseq, (off_t)s->rseq_at) != sizeof s->rseq;
	close(mem);
	return failed ? -1 : 0;
}

/* What is done with a borrowed thread. */
typedef int (*loan)(struct lent *thread, const struct deadman *d, const struct state *s, pid_t child, struct twin *twin);

static int make(struct lent *thread, const struct deadman *d, const struct state *s, pid_t child, struct twin *twin)
{
	(void)child;
	if (copy(thread, d, &twin->pid, twin) || hidden(twin->pid, twin))
		return -1;
	return clean(twin->pid, d, s) ? fail(twin, "writing to the twin") : 0;
}

static int reap(struct lent *thread, const struct deadman *d, const struct state *s, pid_t child, struct twin *twin)
{
	long got = 0;

	(void)d, (void)s;
	if (call(thread, NULL, &got, SYS_wait4, child, 0, __WALL | WNOHANG) || got != child)
		return fail(twin, "reaping");
	return 0;
}

static void borrow(pid_t pid, int mem, struct twin *twin, loan work, pid_t child)
{
	static struct gadgets gadgets; /* the tree's processes mostly share their code */
	const uint64_t all = ~0UL;
	struct lent thread = {.pid = pid};
	struct deadman d;
	struct state state;

	errno = 0;
	if (shadow_stack(pid))
		fail(twin, "it has a shadow stack");
	else if (gadgets_find(pid, mem, &gadgets))
		fail(twin, "its code has no place for a system call");
	else if (save(pid, mem, &state))
		fail(twin, "reading its registers");
	else if (deadman_place(&d, pid, mem, &state.regs, state.mask, &gadgets))
		fail(twin, "there is no room below its stack");
	if (*twin->error)
		return;
	thread.regs = state.regs;
	thread.stack = d.back;
	thread.call = gadgets.syscall;
	if (options(pid) || ptrace(PTRACE_SETSIGMASK, pid, sizeof all, &all))
		fail(twin, "preparing it");
	else if (work(&thread, &d, &state, child, twin))
		settle(&thread);
	if (put_back(&thread, mem, &state))
		fail(twin, "putting back its registers"); /* its stack still leads back, so the frames stay */
	else
		deadman_erase(&d, mem);
	deadman_free(&d);
}

static int with_memory(pid_t pid, struct twin *twin, loan work, pid_t child)
{
	char path[64];
	sigset_t mine, block;

	memset(twin, 0, sizeof *twin);
	snprintf(path, sizeof path, "/proc/%d/mem", pid);
	int mem = open(path, O_RDWR | O_CLOEXEC);
	if (mem < 0)
		return fail(twin, "opening its memory");
	sigemptyset(&block);
	sigaddset(&block, SIGCHLD); /* a handler of the caller's must not reap what we wait for */
	sigprocmask(SIG_BLOCK, &block, &mine);
	borrow(pid, mem, twin, work, child);
	if (*twin->error) {
		end(twin->pid);
		twin->pid = 0;
	}
	sigprocmask(SIG_SETMASK, &mine, NULL);
	close(mem);
	return *twin->error ? -1 : 0;
}

int twin_make(pid_t pid, struct twin *twin)
{
	return with_memory(pid, twin, make, 0);
}

int twin_reap(pid_t pid, pid_t child, struct twin *twin)
{
	return with_memory(pid, twin, reap, child);
}

/* Only a process itself can set its name, from its own memory: it is lent for the call, at the place where the frames were. */
static int rename_to(struct lent *t, int mem, const char *name)
{
	char old[16], new[16] = "";
	long ignored;

	strncpy(new, name, sizeof new - 1);
	if (pread(mem, old, sizeof old, (off_t)t->stack) != sizeof old || pwrite(mem, new, sizeof new, (off_t)t->stack) != sizeof new)
		return -1;
	int failed = call(t, NULL, &ignored, SYS_prctl, PR_SET_NAME, (long)t->stack, 0);
	return pwrite(mem, old, sizeof old, (off_t)t->stack) != sizeof old || failed ? -1 : 0;
}

int twin_park(struct twin *twin)
{
	static struct gadgets gadgets;
	char path[64];
	struct lent t = {.pid = twin->pid};
	long ignored;
	int failed = 1;

	errno = 0;
	snprintf(path, sizeof path, "/proc/%d/mem", twin->pid);
	int mem = open(path, O_RDWR | O_CLOEXEC);
	if (mem >= 0 && !gadgets_find(twin->pid, mem, &gadgets) && !get_regs(twin->pid, &t.regs)) {
		t.call = gadgets.syscall;
		t.stack = t.regs.rsp;
		failed = call(&t, NULL, &ignored, SYS_close_range, 0, ~0U, CLOSE_RANGE_UNSHARE) ||
		         call(&t, NULL, &ignored, SYS_setsid, 0, 0, 0) || rename_to(&t, mem, NAME);
		t.regs.rip = 0; /* whoever wakes it without tracing it finds no code and no stack */
		t.regs.rsp = 8;
		t.regs.orig_rax = ~0UL;
		failed |= set_regs(t.pid, &t.regs);
	}
	if (mem >= 0)
		close(mem);
	return failed ? fail(twin, "parking the twin") : 0;
}

int twin_release(struct twin *twin)
{
	if (ptrace(PTRACE_SETOPTIONS, twin->pid, 0, 0) || kill(twin->pid, SIGSTOP) || ptrace(PTRACE_DETACH, twin->pid, 0, 0))
		return fail(twin, "letting go of the twin");
	return 0;
}

void twin_end(struct twin *twin)
{
	end(twin->pid);
	twin->pid = 0;
}
