// Signals: processes outside the run get none.

#include "shared.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "raw.h"

// A process of the run was started with the run's folder in its environment.
static bool of_the_run(pid_t process) {
  char path[64], text[4096];
  snprintf(path, sizeof path, "/proc/%d/environ", process);
  const int file = raw_open(path, O_RDONLY | O_CLOEXEC, 0);
  if (file < 0) return false;
  const ssize_t size = syscall(SYS_read, file, text, sizeof text - 1);
  raw_close(file);
  for (ssize_t at = 0; at < size; at += (ssize_t)strlen(text + at) + 1) {
    text[size] = '\0';
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
