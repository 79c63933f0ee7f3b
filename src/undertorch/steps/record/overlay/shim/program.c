// Programs that the script starts run, in the same view and without a network: this library is loaded into them as well.
// A program that brings its own libc does not load it. It sees the disk as it is, and runs where the kernel refuses what
// it would change or send (confine.c); elsewhere it is not run. The recorder itself is not replaced by another program.

#include "shared.h"

#include <alloca.h>
#include <elf.h>
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raw.h"

extern char **environ;

static int failed(int error) {
  errno = error;
  return -1;
}

// --- whether a program loads this library ---------------------------------------------------------------------------------

#if __x86_64__
enum { OWN_MACHINE = EM_X86_64 };
#elif __aarch64__
enum { OWN_MACHINE = EM_AARCH64 };
#endif

enum kind { OURS, STATIC, FOREIGN };

// By the linker that a program names, as glibc's is called on every machine.
static enum kind kind_of_elf(int program, const char *head, ssize_t size) {
  const Elf64_Ehdr *const elf = (const Elf64_Ehdr *)head;
  if (size < (ssize_t)sizeof *elf || elf->e_ident[EI_CLASS] != ELFCLASS64 || elf->e_machine != OWN_MACHINE) return FOREIGN;
  for (int i = 0; i < elf->e_phnum; i++) {
    Elf64_Phdr part;
    char linker[PATH_MAX];
    const off_t at = (off_t)(elf->e_phoff + (Elf64_Off)i * elf->e_phentsize);
    if (syscall(SYS_pread64, program, &part, sizeof part, at) != sizeof part) return FOREIGN;
    if (part.p_type != PT_INTERP) continue;
    const size_t length = part.p_filesz < sizeof linker ? part.p_filesz : sizeof linker - 1;
    const ssize_t got = syscall(SYS_pread64, program, linker, length, part.p_offset);
    if (got <= 0) return FOREIGN;
    linker[got] = '\0';
    return strstr(linker, "/ld-linux") ? OURS : STATIC;
  }
  return STATIC;
}

enum { HEAD = 4096, MOST_INTERPRETERS = 4 };

static enum kind kind_of(const char *real, int depth) {
  char head[HEAD + 1] __attribute__((aligned(8)));
  struct stat found;
  const int program = raw_open(real, O_RDONLY | O_CLOEXEC, 0);
  if (program < 0) return FOREIGN;
  const ssize_t size = syscall(SYS_read, program, head, HEAD);
  head[size < 0 ? 0 : size] = '\0';
  enum kind kind = FOREIGN;
  if (size < 0 || raw_stat(program, "", &found, AT_EMPTY_PATH) < 0) {
    kind = FOREIGN;
  } else if (found.st_mode & (S_ISUID | S_ISGID) && !shared->confined) {
    kind = FOREIGN;  // the linker loads nothing into a program of other rights; a confined process gains none
  } else if (size >= SELFMAG && memcmp(head, ELFMAG, SELFMAG) == 0) {
    kind = kind_of_elf(program, head, size);
  } else if (strncmp(head, "#!", 2) == 0) {
    char *const interpreter = head + 2 + strspn(head + 2, " \t");
    interpreter[strcspn(interpreter, " \t\n")] = '\0';
    if (depth < MOST_INTERPRETERS) kind = kind_of(interpreter, depth + 1);
  } else {
    kind = OURS;  // a text for the shell, or nothing that the kernel runs
  }
  raw_close(program);
  return kind;
}

// --- the environment of a program -------------------------------------------------------------------------------------------

static size_t count(char *const *list) {
  size_t number = 0;
  while (list && list[number]) number++;
  return number;
}

static bool is_of(const char *setting, const char *own) {
  const size_t name = strcspn(own, "=") + 1;
  return strncmp(setting, own, name) == 0;
}

// The environment with what makes a program one of the run. `list` has two places more than `given`, and `preload` is
// as long as the longest setting and our own path together.
static void with_own(char *const *given, char **list, char *preload, size_t size) {
  size_t number = 2;  // first, where signal.c finds them in a large environment too
  snprintf(preload, size, "%s", own_settings[1]);
  for (char *const *setting = given; setting && *setting; setting++) {
    if (is_of(*setting, own_settings[0])) continue;
    if (!is_of(*setting, own_settings[1])) list[number++] = *setting;
    else if (strstr(*setting, own_path)) snprintf(preload, size, "%s", *setting);
    else snprintf(preload, size, "%s:%s", own_settings[1], *setting + sizeof "LD_PRELOAD=" - 1);
  }
  list[0] = own_settings[0];
  list[1] = preload;
  list[number] = NULL;
}

#define OWN_ENVIRONMENT(given)                                                  \
  char **const own = alloca((count(given) + 3) * sizeof *own);                  \
  const size_t preload_size = longest(given) + sizeof own_settings[1];          \
  char *const preload = alloca(preload_size);                                   \
  with_own(given, own, preload, preload_size);

static size_t longest(char *const *list) {
  size_t most = 0;
  for (; list && *list; list++) {
    if (is_of(*list, own_settings[1]) && strlen(*list) > most) most = strlen(*list);
  }
  return most;
}

// --- starting programs ------------------------------------------------------------------------------------------------------

// The command as it would be typed, as far as it goes.
static void tell_command(enum told kind, const char *path, char *const *arguments) {
  char text[TEXT_BYTES];
  size_t length = (size_t)snprintf(text, sizeof text, "%s", path);
  for (char *const *argument = arguments && *arguments ? arguments + 1 : NULL; argument && *argument; argument++) {
    if (length + strlen(*argument) + 2 > sizeof text) break;
    length += (size_t)snprintf(text + length, sizeof text - length, " %s", *argument);
  }
  tell(kind, text);
}

// The real path of a program that may run, and whether this process is the one that becomes it; NULL with errno.
static const char *to_run(const char *path, char *const *arguments, bool becomes, char real[PATH_MAX]) {
  struct stat found;
  int folder = AT_FDCWD;
  const char *const given = path;
  path = to_read(&folder, path, true, real);
  if (!path || raw_stat(AT_FDCWD, path, &found, 0) < 0) return NULL;
  if (!S_ISREG(found.st_mode) || syscall(SYS_faccessat, AT_FDCWD, path, X_OK) < 0) {
    errno = EACCES;
    return NULL;
  }
  switch (kind_of(path, 0)) {
    case OURS: tell_command(RAN, given, arguments); return path;
    case STATIC:
      if (!becomes || !silence()) break;
      tell_command(RAN_CONFINED, given, arguments);
      return path;
    case FOREIGN: break;
  }
  tell_command(NOT_RUN, given, arguments);
  errno = EACCES;
  return NULL;
}

int ours_execve(const char *path, char *const arguments[], char *const environment[]) INSTEAD_OF(execve);
int ours_execve(const char *path, char *const arguments[], char *const environment[]) {
  char real[PATH_MAX];
  if (!watching()) return (int)syscall(SYS_execve, path, arguments, environment);
  if (raw_process() == shared->recorder) {
    tell_command(NOT_REPLACED, path, arguments);
    return failed(EPERM);
  }
  const char *const program = to_run(path, arguments, true, real);
  if (!program) return -1;
  OWN_ENVIRONMENT(environment)
  return (int)syscall(SYS_execve, program, arguments, own);
}

int ours_execv(const char *path, char *const arguments[]) INSTEAD_OF(execv);
int ours_execv(const char *path, char *const arguments[]) { return ours_execve(path, arguments, environ); }

// A file without a head is one for the shell, as libc has it.
static int run_or_shell(const char *path, char *const arguments[], char *const environment[]) {
  ours_execve(path, arguments, environment);
  if (errno != ENOEXEC) return -1;
  const size_t number = count(arguments);
  char **const shell = alloca((number + 3) * sizeof *shell);
  shell[0] = "sh";
  shell[1] = (char *)path;
  for (size_t i = 1; i <= number; i++) shell[i + 1] = arguments[i];
  if (number == 0) shell[2] = NULL;
  return ours_execve("/bin/sh", shell, environment);
}

// Calls with each path that a name may stand for, until one is found that can be run.
static int search(const char *name, int (*call)(const char *path, void *given), void *given) {
  if (strchr(name, '/')) return call(name, given);
  const char *folders = getenv("PATH");
  if (!folders) folders = "/bin:/usr/bin";
  int error = ENOENT;
  for (const char *begin = folders;; begin++) {
    const size_t length = strcspn(begin, ":");
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%.*s%s%s", (int)length, begin, length ? "/" : "./", name) < PATH_MAX) {
      const int done = call(path, given);
      if (done == 0) return 0;
      if (errno == EACCES) error = EACCES;
      else if (errno != ENOENT && errno != ENOTDIR) return done;
    }
    begin += length;
    if (!*begin) break;
  }
  return failed(error);
}

struct command {
  char *const *arguments;
  char *const *environment;
  pid_t *process;
  const posix_spawn_file_actions_t *actions;
  const posix_spawnattr_t *attributes;
};

static int replace(const char *path, void *given) {
  const struct command *const command = given;
  return run_or_shell(path, command->arguments, command->environment);
}

int ours_execvpe(const char *name, char *const arguments[], char *const environment[]) INSTEAD_OF(execvpe);
int ours_execvpe(const char *name, char *const arguments[], char *const environment[]) {
  struct command command = {.arguments = arguments, .environment = environment};
  return search(name, replace, &command);
}

int ours_execvp(const char *name, char *const arguments[]) INSTEAD_OF(execvp);
int ours_execvp(const char *name, char *const arguments[]) { return ours_execvpe(name, arguments, environ); }

int ours_fexecve(int program, char *const arguments[], char *const environment[]) INSTEAD_OF(fexecve);
int ours_fexecve(int program, char *const arguments[], char *const environment[]) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", program);
  return ours_execve(path, arguments, environment);
}

static int spawn(const char *path, void *given) {
  const struct command *const command = given;
  char real[PATH_MAX];
  const char *const program = to_run(path, command->arguments, false, real);
  if (!program) return -1;
  OWN_ENVIRONMENT(command->environment)
  const int error = BEHIND(posix_spawn, posix_spawn)(command->process, program, command->actions, command->attributes,
                                                     command->arguments, own);
  return error ? failed(error) : 0;
}

int ours_posix_spawn(pid_t *process, const char *path, const posix_spawn_file_actions_t *actions,
                     const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
    INSTEAD_OF(posix_spawn);
int ours_posix_spawn(pid_t *process, const char *path, const posix_spawn_file_actions_t *actions,
                     const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]) {
  struct command command = {arguments, environment, process, actions, attributes};
  if (!watching()) {
    return BEHIND(posix_spawn, posix_spawn)(process, path, actions, attributes, arguments, environment);
  }
  return spawn(path, &command) < 0 ? errno : 0;
}

int ours_posix_spawnp(pid_t *process, const char *name, const posix_spawn_file_actions_t *actions,
                      const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
    INSTEAD_OF(posix_spawnp);
int ours_posix_spawnp(pid_t *process, const char *name, const posix_spawn_file_actions_t *actions,
                      const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]) {
  struct command command = {arguments, environment, process, actions, attributes};
  if (!watching()) {
    return BEHIND(posix_spawnp, posix_spawnp)(process, name, actions, attributes, arguments, environment);
  }
  return search(name, spawn, &command) < 0 ? errno : 0;
}

// libc starts the shell of these two by itself, with the environment as it is.
static void keep_environment(void) {
  const char *const preload = getenv("LD_PRELOAD");
  if (!preload || !strstr(preload, own_path)) setenv("LD_PRELOAD", own_path, 1);
  char *const folder = own_settings[0];
  const size_t name = strcspn(folder, "=");
  char variable[64];
  snprintf(variable, sizeof variable, "%.*s", (int)name, folder);
  setenv(variable, folder + name + 1, 1);
}

int ours_system(const char *command) INSTEAD_OF(system);
int ours_system(const char *command) {
  if (command && watching()) {
    keep_environment();
    tell(RAN, command);
  }
  return BEHIND(system, system)(command);
}

FILE *ours_popen(const char *command, const char *mode) INSTEAD_OF(popen);
FILE *ours_popen(const char *command, const char *mode) {
  if (command && watching()) {
    keep_environment();
    tell(RAN, command);
  }
  return BEHIND(popen, popen)(command, mode);
}
