/* From a fork of PID 1 to the kernel: what a kernel may see and be. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* io_uring_setup, _enter, _register have these numbers on every architecture that we build for, compat and x32 included. */
enum { IO_URING_FIRST = 425, IO_URING_LAST = 427 };
#if defined(__x86_64__)
enum { NATIVE = AUDIT_ARCH_X86_64, COMPAT = AUDIT_ARCH_I386, NUMBER_MASK = ~0x40000000 };
#elif defined(__aarch64__)
enum { NATIVE = AUDIT_ARCH_AARCH64, COMPAT = AUDIT_ARCH_ARM, NUMBER_MASK = ~0 };
#else
#error "io_uring's numbers and audit names for this architecture have to be looked up first"
#endif

static int report_fd;

static _Noreturn void give_up(const char *what, int err)
{
	struct obstacle o = {.err = err};

	snprintf(o.what, sizeof o.what, "%s", what);
	while (write(report_fd, &o, sizeof o) < 0 && errno == EINTR)
		;
	_exit(EXIT_SANDBOX);
}

/* CRIU can't dump a ring, and programs that find none (ENOSYS: "an old kernel") do without. No PR_SET_NO_NEW_PRIVS, which would take
 * sudo away: root may install a filter without it. SPEC_ALLOW: older kernels slow a filtered process down by default. */
static void deny_io_uring(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)NATIVE, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)COMPAT, 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (unsigned)NUMBER_MASK),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, IO_URING_FIRST, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, IO_URING_LAST, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof code / sizeof *code, code};

	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program))
		give_up("seccomp filter", errno);
}

/* All or nothing: groups first (root is needed for them), ids for good (real, effective and saved), no capability kept. */
static void become(const struct settings *s)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}};

	if (setgroups(s->ngroups, s->groups))
		give_up("groups", errno);
	if (setresgid(s->gid, s->gid, s->gid))
		give_up("gid", errno);
	if (setresuid(s->uid, s->uid, s->uid))
		give_up("uid", errno);
	if (s->uid && (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) || syscall(SYS_capset, &head, none)))
		give_up("capabilities", errno);
}

_Noreturn void kernel_exec(const struct settings *s, int output, int report)
{
	/* The kernel's own struct: glibc's call refuses signals 32 and 33, which its posix_spawn leaves ignored in what it starts. */
	static const unsigned long standard[8];
	char what[120];
	sigset_t none;

	report_fd = report;
	if (setsid() < 0)
		give_up("session", errno);
	for (int n = 1; n < NSIG; n++)
		syscall(SYS_rt_sigaction, n, standard, NULL, sizeof(unsigned long));
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);

	int null = open("/dev/null", O_RDWR);
	if (null < 0)
		give_up("/dev/null", errno);
	if (dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0)
		give_up("stdio", errno);
	if (report != 3 && dup3(report, 3, O_CLOEXEC) < 0)
		give_up("stdio", errno);
	report_fd = 3;
	if (syscall(SYS_close_range, 4, ~0U, 0))
		give_up("descriptors", errno);

	deny_io_uring();
	if (s->drop)
		become(s);
	/* After the drop: a home on a server that distrusts root can be entered by its owner only. */
	const char *cwd = s->cwd ? s->cwd : "/";
	if (chdir(cwd)) {
		snprintf(what, sizeof what, "working folder %.80s", cwd);
		give_up(what, errno);
	}
	environ = s->env; /* execvp looks for PATH in it */
	execvp(s->argv[0], s->argv);
	snprintf(what, sizeof what, "command %.80s", s->argv[0]);
	give_up(what, errno);
}
