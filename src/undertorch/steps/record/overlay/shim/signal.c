// Signals: processes outside the run get none.

#include "shared.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "raw.h"

static ssize_t read_whole(pid_t process, const char *what, char *text, size_t size) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", process, what);
  const int file = raw_open(path, O_RDONLY | O_CLOEXEC, 0);
  if (file < 0) return -1;
  const ssize_t got = syscall(SYS_read, file, text, size - 1);
  raw_close(file);
  if (got >= 0) text[got] = '\0';
  return got;
}

static pid_t parent_of(pid_t process) {
  char text[512];
  pid_t parent = 0;
  if (read_whole(process, "stat", text, sizeof text) < 0) return 0;
  const char *const end = strrchr(text, ')');  // of the program's name
  return end && sscanf(end + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

// A process of the run has the recorder above it, or, where it was left behind, the run's folder in its environment. (That
// is empty for a moment while a program begins.)
static bool of_the_run(pid_t process) {
  char text[4096];
  for (pid_t above = process; above > 1; above = parent_of(above)) {
    if (above == shared->recorder) return true;
  }
  const ssize_t size = read_whole(process, "environ", text, sizeof text);
  for (ssize_t at = 0; at < size; at += (ssize_t)strlen(text + at) + 1) {
    if (strcmp(text + at, own_settings[0]) == 0) return true;
  }
  return false;
}

int ours_kill(pid_t process, int signal) INSTEAD_OF(kill);
int ours_kill(pid_t process, int signal) {
  // A group is led by the process of its number; 0 and -1 reach undertorch and the user's own.
  const pid_t leader = process < -1 ? -process : process;
  if (signal && watching() && leader != raw_process() && (leader <= 0 || !of_the_run(leader))) {
    char text[64];
    snprintf(text, sizeof text, "%d to process %d", signal, process);
    tell(NOT_SIGNALLED, text);
    errno = EPERM;
    return -1;
  }
  return (int)syscall(SYS_kill, process, signal);
}

int ours_killpg(pid_t group, int signal) INSTEAD_OF(killpg);
int ours_killpg(pid_t group, int signal) { return ours_kill(group > 1 ? -group : 0, signal); }
