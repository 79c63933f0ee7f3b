// What the files of this library share.
//
// The library is loaded before libc (LD_PRELOAD) into the process that runs a script, and into every program which that
// starts. It stands between them and libc's functions that take a path, an address or a program, and shows the script a
// view of the disk: what it changes lies in a folder of the run (the copy), what it does not change is read where it is.
//
// It calls the kernel itself (raw.h) wherever libc's function is a thin cover, so that none of its own functions is
// called again, nothing has to be looked up first, and all of it may run between vfork and exec.
#ifndef UNDERTORCH_OVERLAY_SHARED_H
#define UNDERTORCH_OVERLAY_SHARED_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE  // names that only Linux has
#endif

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

// A function of this library that takes the place of libc's. It is defined under a name of its own, so that the
// declarations of libc's headers, which differ between versions, stay out of its way.
#define INSTEAD_OF(name) __asm__(#name) __attribute__((visibility("default"), used))
// The same function under a second name: on 64-bit Linux the forms for large files do not differ. (Told to the assembler,
// since compilers differ in how they take an alias of a name given as above.)
#define ALSO_AS(second, first) __asm__(".globl " #second "\n.type " #second ", %function\n.set " #second ", " #first);

// libc's own function behind one of ours.
void *behind(_Atomic(void *) *kept, const char *name);
#define BEHIND(type, name)                                 \
  ({                                                       \
    static _Atomic(void *) kept;                           \
    (__typeof__(type) *)behind(&kept, #name);              \
  })

// --- state.c: what the processes of a run know of one another ---------------------------------------------------------

// What is told to the recorder. overlay/events.py lists the same numbers.
enum told {
  WROTE = 1,
  MADE_FOLDER,
  REMOVED,
  RENAMED,
  LINKED,
  CHANGED,
  TOO_LARGE,
  RAN,
  RAN_CONFINED,
  NOT_RUN,
  NOT_REPLACED,
  NOT_CONNECTED,
  NOT_LOOKED_UP,
  NOT_SIGNALLED,
  NOT_OPENED,
};

enum { TEXT_BYTES = 488, EVENTS = 256, BITS_BYTES = 65536 / 8 };

struct event {
  uint32_t kind;
  int32_t process;
  int32_t parent;
  uint32_t reserved;
  uint64_t thread;
  char text[TEXT_BYTES];
};

// One page of memory for all processes of a run, in a file of its folder.
struct shared {
  _Atomic uint32_t begun;    // nothing is done before the recorder says so
  _Atomic uint32_t changed;  // nothing has to be looked up in the copy before the first change
  _Atomic uint64_t generation;
  int32_t recorder;          // the process that runs the script
  uint32_t confined;         // whether the kernel refuses what slips past this library (confine.c)
  _Atomic int64_t room;      // bytes that may still be copied from the disk
  pthread_mutex_t lock;      // held while the copy's tree changes
  _Atomic uint8_t ports[BITS_BYTES];  // that a process of the run listens on
  _Atomic uint8_t sockets[BITS_BYTES];  // hashes of abstract names that it is bound to
  atomic_flag telling;
  uint32_t first, count;
  uint64_t lost;
  struct event events[EVENTS];
};

extern struct shared *shared;
extern char base[PATH_MAX];   // the run's folder
extern char copy[PATH_MAX];   // the copy's root in it
extern size_t base_length, copy_length;
extern char own_path[PATH_MAX];  // of this library
extern char own_settings[][PATH_MAX + 32];  // environment variables that a program needs to be of the run

static inline bool watching(void) { return shared && atomic_load_explicit(&shared->begun, memory_order_acquire); }
static inline bool anything_changed(void) { return watching() && atomic_load(&shared->changed); }

void tell(enum told kind, const char *text);
void lock_copy(void);
void unlock_copy(void);
void copy_changed(void);

// --- view.c: names ------------------------------------------------------------------------------------------------------

enum { IN_VIEW = 0, OUTSIDE = 1 };

// The name of a file in the view: absolute, no links in it; a link that stands last stays where `follow` is false.
// IN_VIEW, OUTSIDE (a name that is not translated), or -1 with errno.
int name_in_view(int folder, const char *path, bool follow, char name[PATH_MAX]);
int name_of_descriptor(int descriptor, char name[PATH_MAX]);

enum place {
  NOWHERE,  // errno says why
  DISK,     // on the disk alone
  COPY,     // in the copy
  BOTH,     // a folder on the disk, some of whose entries are in the copy
};

// Where a name is found, its real path, and what the kernel says of it there; for BOTH that is the copy's.
enum place find(const char *name, char real[PATH_MAX], struct stat *found);
bool in_copy(const char *name, char path[PATH_MAX]);
bool is_mark(const struct stat *found);

// The path to read in the place of another; `folder` becomes AT_FDCWD where it changes. NULL with errno where it is gone.
const char *to_read(int *folder, const char *path, bool follow, char real[PATH_MAX]);

// --- layer.c: the copy ----------------------------------------------------------------------------------------------------

int make_parents(const char *name);
int lift(const char *name, bool contents);
int lift_tree(const char *name);
int stand_in(const char *name);
int hide(const char *name);
void hide_again(const char *name);
int hide_entries(const char *name);
int remove_from_copy(const char *name);
bool has_entries(const char *name);
int may_change_outside(const char *name);
bool too_large(const char *name, int64_t bytes);

// Lifts what a path names into the copy. IN_VIEW with its real path, OUTSIDE, TOO_LARGE_TO_LIFT, or -1 with errno.
enum { TOO_LARGE_TO_LIFT = 2 };
int lifted(int folder, const char *path, bool follow, char real[PATH_MAX]);

// --- open.c -----------------------------------------------------------------------------------------------------------------

int open_in_view(int folder, const char *path, int flags, mode_t mode);
bool mapped_privately(int descriptor);

// --- change.c -----------------------------------------------------------------------------------------------------------------

int make_folder(int folder, const char *path, mode_t mode);

// --- confine.c ----------------------------------------------------------------------------------------------------------------

bool confine(void);
bool silence(void);

#endif
