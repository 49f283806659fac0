/* The sandbox's own mounts: /proc of its own pids, an empty /dev/shm, a terminal number space of its own.
 *
 * Everything else stays the host's, and mounts that appear on the host later (automounted homes) appear here too: slave propagation.
 * Terminals: CRIU gives a pty its old number back, so the numbers must be free on any host: a private devpts. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

static void mount_one(const char *type, const char *where, unsigned long flags, const char *data)
{
	if (mount(type, where, type, flags | MS_NOSUID, data))
		fail(where, errno);
}

void mounts_make(void)
{
	struct stat st;

	if (unshare(CLONE_NEWNS))
		fail("mount namespace", errno);
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL))
		fail("mount propagation", errno);
	mount_one("proc", "/proc", MS_NODEV | MS_NOEXEC, NULL);
	mount_one("tmpfs", "/dev/shm", MS_NODEV, "mode=1777");
	/* gid 5 is `tty` on every distribution: what grantpt() wants to find. */
	mount_one("devpts", "/dev/pts", MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5");
	/* Where /dev/ptmx is a symlink to pts/ptmx (containers) it already leads into the new instance. */
	if (lstat("/dev/ptmx", &st))
		fail("/dev/ptmx", errno);
	if (!S_ISLNK(st.st_mode) && mount("/dev/pts/ptmx", "/dev/ptmx", NULL, MS_BIND, NULL))
		fail("/dev/ptmx", errno);
}
