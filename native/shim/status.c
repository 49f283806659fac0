/* The status file: the only thing that the shim tells its starter. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int fd = -1;

void status_open(const char *path)
{
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		fail("status file", errno);
}

int status_fd(void)
{
	return fd;
}

/* One line, whatever is in it: names may hold control characters. */
static void put(int where, char *line, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	line[n] = '\n';
	while (write(where, line, n + 1) < 0 && errno == EINTR)
		;
}

void status_line(const char *format, ...)
{
	char line[512];
	va_list ap;

	if (fd < 0)
		return;
	va_start(ap, format);
	int n = vsnprintf(line, sizeof line - 1, format, ap);
	va_end(ap);
	if (n < 0)
		return;
	put(fd, line, (size_t)n < sizeof line - 1 ? (size_t)n : sizeof line - 2);
}

void status_sync(void)
{
	if (fd >= 0)
		fsync(fd);
}

_Noreturn void fail_text(const char *what, const char *why, int exit_code)
{
	char line[512];
	int n = snprintf(line, sizeof line - 1, "perdure-shim: %s%s%s", what, *why ? ": " : "", why);

	status_line("error %s: %s", what, why);
	status_sync();
	put(STDERR_FILENO, line, (size_t)n < sizeof line - 1 ? (size_t)n : sizeof line - 2);
	_exit(exit_code);
}

_Noreturn void fail(const char *what, int err)
{
	fail_text(what, err ? strerror(err) : "", EXIT_SANDBOX);
}
