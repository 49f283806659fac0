/* The command line. A number that is not one, or two wishes that contradict each other, end here and start nothing. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: perdure-shim --status FILE --log FILE [--log-limit BYTES] [--env-fd N]\n"
	"                    [--uid N --gid N [--groups N,N...]] [--cwd DIR] [--kernel-pid N]\n"
	"                    [--lifeline FD] (--empty | -- ARGV...)\n";

enum { STATUS, LOG, LOG_LIMIT, ENV_FD, UID, GID, GROUPS, CWD, KERNEL_PID, LIFELINE, EMPTY, HELP };

static const struct option options[] = {
	{"status", required_argument, NULL, STATUS},
	{"log", required_argument, NULL, LOG},
	{"log-limit", required_argument, NULL, LOG_LIMIT},
	{"env-fd", required_argument, NULL, ENV_FD},
	{"uid", required_argument, NULL, UID},
	{"gid", required_argument, NULL, GID},
	{"groups", required_argument, NULL, GROUPS},
	{"cwd", required_argument, NULL, CWD},
	{"kernel-pid", required_argument, NULL, KERNEL_PID},
	{"lifeline", required_argument, NULL, LIFELINE},
	{"empty", no_argument, NULL, EMPTY},
	{"help", no_argument, NULL, HELP},
	{NULL, 0, NULL, 0},
};

static const long long LARGEST_ID = UINT_MAX - 1; /* (uid_t)-1 means "leave it as it is" to the kernel: never pass it on */

static _Noreturn void refuse(const struct settings *s, const char *why)
{
	fputs(usage, stderr);
	if (s->status_path && status_fd() < 0)
		status_open(s->status_path);
	fail_text("arguments", why, EXIT_USAGE);
}

static long long number(const struct settings *s, const char *text, const char *name, long long least, long long most)
{
	char *end, why[160];

	errno = 0;
	long long value = strtoll(text, &end, 10);
	if (errno || end == text || *end || *text < '0' || *text > '9' || value < least || value > most) {
		snprintf(why, sizeof why, "--%s can't be '%.60s'", name, text);
		refuse(s, why);
	}
	return value;
}

static void parse_groups(struct settings *s, char *text)
{
	size_t room = 1;

	for (const char *c = text; *c; c++)
		room += *c == ',';
	free(s->groups);
	s->ngroups = 0;
	s->groups = calloc(room, sizeof *s->groups);
	if (!s->groups)
		fail("memory", errno);
	for (char *part; *text && (part = strsep(&text, ","));) {
		s->groups[s->ngroups++] = (gid_t)number(s, part, "groups", 0, LARGEST_ID);
		if (!text)
			break;
		if (!*text)
			refuse(s, "--groups ends with a comma");
	}
}

void options_parse(struct settings *s, int argc, char **argv)
{
	bool uid = false, gid = false, groups = false;
	char why[160];
	int found;

	*s = (struct settings){.log_limit = 8 << 20, .env_fd = -1, .lifeline = -1, .kernel_pid = 1000};
	opterr = 0; /* we say it ourselves, in the status file too */
	while ((found = getopt_long(argc, argv, "+", options, NULL)) != -1)
		switch (found) {
		case STATUS: s->status_path = optarg; break;
		case LOG: s->log_path = optarg; break;
		case LOG_LIMIT: s->log_limit = number(s, optarg, "log-limit", 1, LLONG_MAX / 4); break;
		case ENV_FD: s->env_fd = (int)number(s, optarg, "env-fd", 0, INT_MAX); break;
		case UID: s->uid = (uid_t)number(s, optarg, "uid", 0, LARGEST_ID), uid = true; break;
		case GID: s->gid = (gid_t)number(s, optarg, "gid", 0, LARGEST_ID), gid = true; break;
		case GROUPS: parse_groups(s, optarg), groups = true; break;
		case CWD: s->cwd = optarg; break;
		case KERNEL_PID: s->kernel_pid = (pid_t)number(s, optarg, "kernel-pid", 2, 1 << 22); break;
		case LIFELINE: s->lifeline = (int)number(s, optarg, "lifeline", 0, INT_MAX); break;
		case EMPTY: s->empty = true; break;
		case HELP: fputs(usage, stdout); exit(0);
		default:
			snprintf(why, sizeof why, "'%.60s' is unknown, or lacks its value", argv[optind - 1]);
			refuse(s, why);
		}
	if (!s->status_path)
		refuse(s, "--status is missing");
	if (!s->log_path)
		refuse(s, "--log is missing");
	if (uid != gid || (groups && !uid))
		refuse(s, "--uid and --gid go together, --groups only with them");
	if (s->cwd && s->cwd[0] != '/')
		refuse(s, "--cwd must be absolute");
	if (s->empty != (optind == argc))
		refuse(s, s->empty ? "--empty starts nothing, but a command was given" : "no command; --empty for none");
	if (s->lifeline >= 0 && fcntl(s->lifeline, F_GETFD) < 0)
		refuse(s, "--lifeline is not an open descriptor");
	if (s->env_fd >= 0 && fcntl(s->env_fd, F_GETFD) < 0)
		refuse(s, "--env-fd is not an open descriptor");
	s->drop = uid;
	s->argv = s->empty ? NULL : argv + optind;
}
