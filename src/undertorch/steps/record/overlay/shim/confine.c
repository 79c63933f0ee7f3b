// The net below: the kernel is asked to refuse every change of the disk outside the run's folder, to this process and all
// that it starts, whatever they call. It catches what this library cannot see: a program that brings its own libc, native
// code that calls the kernel itself. Landlock asks for no privilege; Linux has it since 5.13, with renames between folders
// since 5.19.

#include "shared.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#include "raw.h"

// The kernel's numbers (include/uapi/linux/landlock.h), so that older headers do: a right is a bit.
enum {
  CREATE_RULESET = 444,
  ADD_RULE = 445,
  RESTRICT_SELF = 446,
  VERSION = 1,
  PATH_BENEATH = 1,
  WRITE_FILE = 1 << 1,
  REMOVE_AND_MAKE = 0x1FF << 4,  // remove folder, file; make device, folder, file, socket, pipe, block device, link
  REFER = 1 << 13,
  TRUNCATE = 1 << 14,
};

struct path_rule {
  uint64_t allowed;
  int32_t folder;
} __attribute__((packed));

static bool allow(int rules, const char *folder, uint64_t rights) {
  const int descriptor = raw_open(folder, O_PATH | O_CLOEXEC, 0);
  if (descriptor < 0) return false;
  const struct path_rule rule = {rights, descriptor};
  const bool done = syscall(ADD_RULE, rules, PATH_BENEATH, &rule, 0) == 0;
  raw_close(descriptor);
  return done;
}

// Whether the kernel took it on.
bool confine(void) {
  const long version = syscall(CREATE_RULESET, NULL, 0, VERSION);
  if (version < 2) return false;
  const uint64_t rights = WRITE_FILE | REMOVE_AND_MAKE | REFER | (version >= 3 ? TRUNCATE : 0);
  const int rules = (int)syscall(CREATE_RULESET, &rights, sizeof rights, 0);
  if (rules < 0) return false;
  // Devices (/dev/null, terminals, shared memory) and what a process says about itself are no files to keep.
  const bool done = allow(rules, base, rights) && allow(rules, "/dev", rights) && allow(rules, "/proc", WRITE_FILE) &&
                    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(RESTRICT_SELF, rules, 0) == 0;
  raw_close(rules);
  return done;
}

// --- a program that does not load this library --------------------------------------------------------------------------

#if __x86_64__
#define OWN_CALLS AUDIT_ARCH_X86_64
#elif __aarch64__
#define OWN_CALLS AUDIT_ARCH_AARCH64
#endif
enum { FIRST_OF_ANOTHER_ABI = 0x40000000, IO_URING_SETUP = 425 };

// From here on this process and what it becomes open no socket. Whether the kernel took it on; the disk is confined
// already.
bool silence(void) {
  const uint32_t refused = SECCOMP_RET_ERRNO | EACCES;
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_CALLS, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, FIRST_OF_ANOTHER_ABI, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IO_URING_SETUP, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, refused),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
  return shared->confined && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0;
}
