/* Signal frames below a borrowed thread's stack, to which it returns by itself when its borrower dies (twin.h). */
#ifndef PERDURE_DEADMAN_H
#define PERDURE_DEADMAN_H

#include "gadgets.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/user.h>

struct deadman {
	unsigned long back; /* stack pointer for the thread itself: leads to where it was */
	unsigned long end;  /* stack pointer for companion and twin: leads to exit(0) */
	unsigned long base; /* where the frames lie */
	size_t size;
	unsigned char *old; /* what was there */
};

/* Writes the frames through `mem`. -1: there is no room below the stack. */
int deadman_place(struct deadman *d, pid_t pid, int mem, const struct user_regs_struct *regs, uint64_t mask, const struct gadgets *g);

/* Puts back what was there, in the process or in its twin. */
int deadman_erase(const struct deadman *d, int mem);
void deadman_free(struct deadman *d);

#endif
