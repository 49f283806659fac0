/* deadman.h. The layout is that of Linux's rt_sigframe on x86-64: return address, ucontext; the vector registers lie beside it. */
#define _GNU_SOURCE
#include "deadman.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

enum {
	RED_ZONE = 128,
	MARGIN = 512,          /* what a leaf function of another compiler may use below it */
	FP_MOST = 16 << 10,    /* AMX's tiles included */
	FP_SOFTWARE = 464,     /* struct _fpx_sw_bytes in the legacy area */
	FP_ALIGN = 64,
	FP_XSTATE = 1, SIGCONTEXT_SS = 2, STRICT_SS = 4, /* uc_flags */
	NO_STACK = 0x4000,     /* an ss_flags that Linux refuses, which leaves the alternate stack as it is */
};
#define MAGIC1 0x46505853U
#define MAGIC2 0x46505845U

struct frame {
	unsigned long restorer;
	ucontext_t context;
};

struct software {
	uint32_t magic, extended;
	uint64_t features;
	uint32_t size, padding[7];
};

/* How the thread goes on when nobody helps: Linux's own rule for a system call that a handler interrupts, with SA_RESTART. */
static void restart(struct user_regs_struct *regs)
{
	enum { ERESTARTSYS = 512, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK = 516 };
	long result = (long)regs->rax;

	if ((long)regs->orig_rax < 0)
		return;
	if (result == -ERESTARTSYS || result == -ERESTARTNOINTR || result == -ERESTARTNOHAND) {
		regs->rax = regs->orig_rax;
		regs->rip -= 2;
	} else if (result == -ERESTART_RESTARTBLOCK) {
		regs->rax = (unsigned long)-EINTR;
	}
}

static void fill(struct frame *f, const struct user_regs_struct *r, uint64_t mask, unsigned long restorer, unsigned long fp)
{
	greg_t *g = f->context.uc_mcontext.gregs;
	const unsigned long values[] = {r->r8,  r->r9,  r->r10, r->r11, r->r12, r->r13, r->r14, r->r15, r->rdi,
	                                r->rsi, r->rbp, r->rbx, r->rdx, r->rax, r->rcx, r->rsp, r->rip, r->eflags,
	                                (r->cs & 0xffff) | (r->ss & 0xffff) << 48};

	memset(f, 0, sizeof *f);
	f->restorer = restorer;
	f->context.uc_flags = SIGCONTEXT_SS | STRICT_SS | (fp ? FP_XSTATE : 0);
	f->context.uc_stack.ss_flags = NO_STACK;
	for (size_t i = 0; i < sizeof values / sizeof *values; i++)
		g[i] = (greg_t)values[i];
	memcpy(&f->context.uc_mcontext.fpregs, &fp, sizeof fp);
	memcpy(&f->context.uc_sigmask, &mask, sizeof mask);
}

/* The vector registers as a signal frame has them; their length, 0 when they can't be read. */
static size_t vectors(pid_t pid, unsigned char *out)
{
	struct iovec io = {out, FP_MOST};
	struct software software = {.magic = MAGIC1};
	const uint32_t end = MAGIC2;

	if (ptrace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, &io) || io.iov_len < 576 || io.iov_len + sizeof end > FP_MOST)
		return 0;
	memcpy(&software.features, out + FP_SOFTWARE, sizeof software.features);
	software.size = (uint32_t)io.iov_len;
	software.extended = software.size + (uint32_t)sizeof end;
	memcpy(out + FP_SOFTWARE, &software, sizeof software);
	memcpy(out + io.iov_len, &end, sizeof end);
	return software.extended;
}

int deadman_place(struct deadman *d, pid_t pid, int mem, const struct user_regs_struct *regs, uint64_t mask, const struct gadgets *g)
{
	unsigned char *new = calloc(1, FP_MOST + FP_ALIGN + 2 * sizeof(struct frame) + FP_ALIGN);
	struct user_regs_struct mine = *regs, ends = *regs;
	int result = -1;

	memset(d, 0, sizeof *d);
	if (!new)
		return -1;
	size_t fp = vectors(pid, new), frames = (fp + FP_ALIGN - 1) / FP_ALIGN * FP_ALIGN;
	d->size = frames + 2 * sizeof(struct frame);
	d->base = (regs->rsp - RED_ZONE - MARGIN - d->size) / FP_ALIGN * FP_ALIGN;
	d->back = d->base + frames;
	d->end = d->back + sizeof(struct frame);
	restart(&mine);
	fill((struct frame *)(void *)(new + frames), &mine, mask, g->sigreturn, d->base);
	ends.rip = g->syscall;
	ends.rax = SYS_exit;
	ends.rdi = 0;
	ends.rsp = d->end;
	fill((struct frame *)(void *)(new + frames + sizeof(struct frame)), &ends, ~0UL, g->sigreturn, 0);
	d->old = malloc(d->size);
	if (fp && d->old && pread(mem, d->old, d->size, (off_t)d->base) == (ssize_t)d->size) {
		result = pwrite(mem, new, d->size, (off_t)d->base) == (ssize_t)d->size ? 0 : -1;
		if (result)
			deadman_erase(d, mem);
	}
	free(new);
	if (result)
		deadman_free(d);
	return result;
}

int deadman_erase(const struct deadman *d, int mem)
{
	return pwrite(mem, d->old, d->size, (off_t)d->base) == (ssize_t)d->size ? 0 : -1;
}

void deadman_free(struct deadman *d)
{
	free(d->old);
	d->old = NULL;
}
