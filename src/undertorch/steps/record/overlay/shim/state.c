// What the processes of a run know of one another, and what they tell the recorder.

#include "shared.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "raw.h"

#define FOLDER "UNDERTORCH_RUN"
#define SHOWN __attribute__((visibility("default")))

struct shared *shared;
char base[PATH_MAX], copy[PATH_MAX], own_path[PATH_MAX];
size_t base_length, copy_length;
char own_settings[2][PATH_MAX + 32];

// Of the recorder's interpreter: Py_AddPendingCall, and what it is to call.
static int (*_Atomic add_pending)(int (*)(void *), void *);
static int (*listener)(void *);
static _Atomic bool listener_called;

void *behind(_Atomic(void *) *kept, const char *name) {
  void *found = atomic_load_explicit(kept, memory_order_relaxed);
  if (!found) {
    found = dlsym(RTLD_NEXT, name);
    atomic_store_explicit(kept, found, memory_order_relaxed);
  }
  return found;
}

// Runs before main() in every process that the library is loaded into.
__attribute__((constructor)) static void start(void) {
  const char *folder = getenv(FOLDER);
  Dl_info own;
  if (!folder || strlen(folder) + sizeof "/state" > sizeof base || !dladdr((void *)start, &own)) return;
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/state", folder);
  const int descriptor = raw_open(path, O_RDWR | O_CLOEXEC, 0);
  if (descriptor < 0) return;
  void *page = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  raw_close(descriptor);
  if (page == MAP_FAILED) return;
  base_length = (size_t)snprintf(base, sizeof base, "%s", folder);
  copy_length = (size_t)snprintf(copy, sizeof copy, "%s/copy", folder);
  snprintf(own_path, sizeof own_path, "%s", own.dli_fname);
  snprintf(own_settings[0], sizeof own_settings[0], FOLDER "=%s", folder);
  snprintf(own_settings[1], sizeof own_settings[1], "LD_PRELOAD=%s", own_path);
  shared = page;
}

// Called by the recorder before the script runs. Answers -1 without a run's folder, 1 where the kernel refuses what slips
// past this library, otherwise 0.
SHOWN int undertorch_overlay_begin(int64_t room, void *pending, void *call) {
  if (!shared) return -1;
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&shared->lock, &kind);
  atomic_store(&shared->room, room);
  shared->recorder = raw_process();
  listener = (int (*)(void *))call;
  atomic_store(&add_pending, (int (*)(int (*)(void *), void *))pending);
  // Where undertorch is killed, nobody waits for the script any more.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  shared->confined = confine();
  atomic_store_explicit(&shared->begun, 1, memory_order_release);
  return shared->confined ? 1 : 0;
}

static bool take_events(void) {
  for (int tries = 0; atomic_flag_test_and_set_explicit(&shared->telling, memory_order_acquire); tries++) {
    if (tries > 100000) return false;  // its holder was killed
    sched_yield();
  }
  return true;
}

static void leave_events(void) { atomic_flag_clear_explicit(&shared->telling, memory_order_release); }

// Called by the recorder. Fills in the oldest event and answers 1, or 0 where there is none.
SHOWN int undertorch_overlay_next(struct event *event) {
  if (!shared || raw_process() != shared->recorder) return 0;  // of a fork: the events are the recorder's
  atomic_store(&listener_called, false);
  if (!take_events()) return 0;
  const bool any = shared->count > 0;
  if (any) {
    *event = shared->events[shared->first];
    shared->first = (shared->first + 1) % EVENTS;
    shared->count--;
  }
  leave_events();
  return any;
}

// Events that nobody could keep.
SHOWN uint64_t undertorch_overlay_lost(void) { return shared ? shared->lost : 0; }

// The real path of a file that libc opens by itself (a library to load); false where it is the one that was given.
SHOWN int undertorch_overlay_path(const char *path, char real[PATH_MAX]) {
  int folder = AT_FDCWD;
  const char *found = to_read(&folder, path, true, real);
  return found && found != path;
}

void tell(enum told kind, const char *text) {
  const int kept = errno;
  if (!take_events()) return;
  if (shared->count < EVENTS) {
    struct event *event = &shared->events[(shared->first + shared->count++) % EVENTS];
    event->kind = kind;
    event->process = raw_process();
    event->parent = (int)syscall(SYS_getppid);
    event->thread = (uint64_t)pthread_self();
    const size_t length = strlen(text);
    snprintf(event->text, sizeof event->text, "%s", length < TEXT_BYTES ? text : text + length - TEXT_BYTES + 1);
  } else {
    shared->lost++;
  }
  leave_events();
  // The interpreter calls the listener between two of its instructions: it is still at the line that brought this about.
  int (*const add)(int (*)(void *), void *) = atomic_load(&add_pending);
  if (add && !atomic_exchange(&listener_called, true) && add(listener, NULL)) atomic_store(&listener_called, false);
  errno = kept;
}

void lock_copy(void) {
  if (pthread_mutex_lock(&shared->lock) == EOWNERDEAD) pthread_mutex_consistent(&shared->lock);
}

void unlock_copy(void) { pthread_mutex_unlock(&shared->lock); }

void copy_changed(void) {
  atomic_store(&shared->changed, 1);
  atomic_fetch_add(&shared->generation, 1);
}
