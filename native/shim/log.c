/* The kernel's output, on disk.
 *
 * The disk may be full for hours while a kernel prints on: a write that finds no room loses its bytes, never the kernel's time. They are
 * counted, and one line in the log tells the sum as soon as there is room again. The file is renamed to NAME.1 when the next piece would
 * make it longer than the limit, so log and log.1 together stay below twice the limit. Names are resolved in a folder that was opened
 * before the sandbox had its own mounts: the log may lie in /dev/shm. Not promised: a disk that hangs (rather than fails) holds PID 1. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int folder = -1, fd = -1;
static char name[256], older[258];
static long long size, limit, dropped;

static int open_log(void)
{
	return openat(folder, name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

void log_open(const char *path, long long bytes)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;
	char *dir = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
	struct stat st;

	if (!dir)
		fail("memory", errno);
	if (!*base || strlen(base) >= sizeof name)
		fail("log file", EINVAL);
	strcpy(name, base);
	snprintf(older, sizeof older, "%s.1", name);
	limit = bytes;
	folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(dir);
	if (folder < 0 || (fd = open_log()) < 0 || fstat(fd, &st))
		fail("log file", errno);
	size = st.st_size;
}

void log_keep(int fds[2])
{
	fds[0] = folder;
	fds[1] = fd;
}

static void rotate(void)
{
	if (renameat(folder, name, folder, older))
		return; /* goes on in the same file, longer than wished */
	int fresh = open_log();
	if (fresh < 0) {
		renameat(folder, older, folder, name);
		return;
	}
	close(fd);
	fd = fresh;
	size = 0;
}

/* How many bytes found room. */
static size_t append(const char *data, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t w = write(fd, data + done, n - done);
		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			break;
		done += (size_t)w;
		size += w;
	}
	return done;
}

static void log_piece(const char *data, size_t n)
{
	if (size > 0 && size + (long long)n > limit)
		rotate();
	if (dropped) {
		char line[80];
		int m = snprintf(line, sizeof line, "\n[perdure: %lld bytes of output found no room here]\n", dropped);
		size_t done = append(line, (size_t)m);
		if (done < (size_t)m) {
			size -= ftruncate(fd, size - (long long)done) ? 0 : (long long)done; /* no half line for every try */
			dropped += (long long)n;
			return;
		}
		dropped = 0;
	}
	dropped += (long long)(n - append(data, n));
}

void log_write(const char *data, size_t n)
{
	while (n) {
		size_t piece = (long long)n > limit ? (size_t)limit : n;
		log_piece(data, piece);
		data += piece;
		n -= piece;
	}
}
