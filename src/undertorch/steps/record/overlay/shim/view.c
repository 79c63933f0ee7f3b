// Names: which file a path means, where links lead, and whether it is found on the disk or in the copy.
//
// A file `/a/b` that the script wrote is `COPY/a/b`. A file that it removed is marked there by one of its name (`is_mark`),
// so that a single question to the kernel tells what became of a name: no file of the copy, the disk holds; a mark, it is
// gone; below a mark the kernel itself finds no folder.

#include "shared.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "raw.h"

enum { MOST_LINKS = 40 };  // as the kernel follows (fs/namei.c, MAXSYMLINKS)

static bool starts_with(const char *name, const char *folder, size_t length) {
  return strncmp(name, folder, length) == 0 && (name[length] == '/' || name[length] == '\0');
}

// A mark is an empty file with no permission and the sticky bit, which no program gives a file.
bool is_mark(const struct stat *found) {
  return S_ISREG(found->st_mode) && (found->st_mode & 07777) == S_ISVTX && found->st_size == 0;
}

static int failed(int error) {
  errno = error;
  return -1;
}

// A name inside the copy (an open descriptor, the current folder) is one of the view.
static void leave_copy(char *name) {
  if (!starts_with(name, copy, copy_length)) return;
  memmove(name, name + copy_length, strlen(name + copy_length) + 1);
  if (!*name) strcpy(name, "/");
}

int name_of_descriptor(int descriptor, char name[PATH_MAX]) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = raw_readlink(link, name, PATH_MAX - 1);
  if (length < 0) return -1;
  name[length] = '\0';
  if (name[0] != '/') return OUTSIDE;  // a pipe, a socket
  leave_copy(name);
  return IN_VIEW;
}

static int name_of_folder(int folder, char name[PATH_MAX]) {
  if (folder != AT_FDCWD) return name_of_descriptor(folder, name);
  if (syscall(SYS_getcwd, name, PATH_MAX) < 0) return -1;
  if (name[0] != '/') return OUTSIDE;  // unreachable: outside the process's root
  leave_copy(name);
  return IN_VIEW;
}

// What stands under a name, as far as a walk has to know. `none_below`: the copy has no such folder, so that it has
// nothing in it either, and need not be asked again.
enum step { FOLDER, LINK, OTHER, MISSING };

static enum step step_to(const char *name, char target[PATH_MAX], bool *none_below) {
  char path[PATH_MAX];
  struct stat found;
  const char *real = path;
  if (*none_below || snprintf(path, sizeof path, "%s%s", copy, name) >= PATH_MAX || raw_lstat(path, &found) < 0) {
    *none_below = true;
    real = name;
    if (raw_lstat(name, &found) < 0) return MISSING;
  }
  if (S_ISDIR(found.st_mode)) return FOLDER;
  if (is_mark(&found)) {
    errno = ENOENT;
    return MISSING;
  }
  if (!S_ISLNK(found.st_mode)) return OTHER;
  if (!target) return LINK;
  const ssize_t length = raw_readlink(real, target, PATH_MAX - 1);
  if (length < 0) return MISSING;
  target[length] = '\0';
  return LINK;
}

static size_t without_last(char *name, size_t length) {
  while (length > 0 && name[length - 1] != '/') length--;
  if (length > 0) length--;
  name[length] = '\0';
  return length;
}

// Walks an absolute path, link by link. `path` is used up. What stands last has to be a folder where `folder` is true;
// `untouched` says then that the copy has nothing in it.
static int walk(char path[PATH_MAX], bool follow, bool folder, char name[PATH_MAX], bool *untouched) {
  size_t length = 0;
  bool none_below = false;
  char *rest = path;
  char target[PATH_MAX];
  name[0] = '\0';
  for (int links = 0;;) {
    rest += strspn(rest, "/");
    if (!*rest) break;
    const size_t part = strcspn(rest, "/");
    char *const next = rest + part;
    if (part == 1 && rest[0] == '.') {
      rest = next;
      continue;
    }
    if (part == 2 && rest[0] == '.' && rest[1] == '.') {
      length = without_last(name, length);
      none_below = false;
      rest = next;
      continue;
    }
    if (length + 1 + part >= PATH_MAX) return failed(ENAMETOOLONG);
    name[length] = '/';
    memcpy(name + length + 1, rest, part);
    length += 1 + part;
    name[length] = '\0';
    if (strcmp(name, "/proc") == 0) {  // its links are no files: they lead to what the process has open
      if (length + strlen(next) >= PATH_MAX) return failed(ENAMETOOLONG);
      strcpy(name + length, next);
      return OUTSIDE;
    }
    const bool last = !next[strspn(next, "/")];
    if (last && !*next && !follow) break;
    const enum step step = step_to(name, target, &none_below);
    if (step == OTHER && (*next || folder)) return failed(ENOTDIR);
    if (step == MISSING && (!last || folder)) return failed(errno == EACCES ? EACCES : ENOENT);
    if (step != LINK) {
      rest = next;
      continue;
    }
    if (++links > MOST_LINKS) return failed(ELOOP);
    const size_t found = strlen(target), left = strlen(next);
    if (found + left >= PATH_MAX) return failed(ENAMETOOLONG);
    memmove(path + found, next, left + 1);
    memcpy(path, target, found);
    rest = path;
    length = target[0] == '/' ? 0 : without_last(name, length);
    name[length] = '\0';
    none_below = false;
  }
  if (!length) strcpy(name, "/");
  *untouched = none_below;
  return IN_VIEW;
}

// Where folders lead, as this thread last found out: a script reads thousands of files from a few folders.
enum { KEPT = 32, KEPT_BYTES = 224 };
static __thread struct {
  uint64_t generation;
  bool untouched;
  char path[KEPT_BYTES], name[KEPT_BYTES];
} kept[KEPT];

static unsigned kept_at(const char *path) {
  unsigned place = 0;
  for (; *path; path++) place = place * 31 + (unsigned char)*path;
  return place % KEPT;
}

// Walks from the folder above, which is known as a rule. `path` is as before at the end.
static int walk_from_above(char *path, char name[PATH_MAX], bool *untouched);

static int walk_folder(char *path, char name[PATH_MAX], bool *untouched) {
  const uint64_t generation = atomic_load(&shared->generation);
  const unsigned place = kept_at(path);
  if (kept[place].generation == generation && strcmp(kept[place].path, path) == 0) {
    strcpy(name, kept[place].name);
    *untouched = kept[place].untouched;
    return IN_VIEW;
  }
  const int found = walk_from_above(path, name, untouched);
  if (found == IN_VIEW && strlen(path) < KEPT_BYTES && strlen(name) < KEPT_BYTES) {
    strcpy(kept[place].path, path);
    strcpy(kept[place].name, name);
    kept[place].untouched = *untouched;
    kept[place].generation = generation;
  }
  return found;
}

static int walk_whole(const char *path, char name[PATH_MAX], bool *untouched) {
  char work[PATH_MAX];
  strcpy(work, path);
  return walk(work, true, true, name, untouched);
}

static bool is_plain(const char *part) { return *part && strcmp(part, ".") != 0 && strcmp(part, "..") != 0; }

static int walk_from_above(char *path, char name[PATH_MAX], bool *untouched) {
  char *const slash = strrchr(path, '/');
  if (slash == path || !is_plain(slash + 1)) return walk_whole(path, name, untouched);
  *slash = '\0';
  const int above = walk_folder(path, name, untouched);
  *slash = '/';
  if (above < 0) return above;
  const size_t length = strcmp(name, "/") == 0 ? 0 : strlen(name);
  if (length + strlen(slash) >= PATH_MAX) return failed(ENAMETOOLONG);
  strcpy(name + length, slash);
  if (above == OUTSIDE) return OUTSIDE;
  switch (step_to(name, NULL, untouched)) {
    case FOLDER: return IN_VIEW;
    case LINK: return walk_whole(path, name, untouched);
    case OTHER: return failed(ENOTDIR);
    case MISSING: break;
  }
  return failed(errno == EACCES ? EACCES : ENOENT);
}

static int absolute(int folder, const char *path, char out[PATH_MAX]) {
  if (!*path) return failed(ENOENT);
  size_t length = 0;
  if (path[0] != '/') {
    const int found = name_of_folder(folder, out);
    if (found != IN_VIEW) return found;
    length = strlen(out);
    if (length + 1 < PATH_MAX) strcpy(out + length++, "/");
  }
  if (length + strlen(path) >= PATH_MAX) return failed(ENAMETOOLONG);
  strcpy(out + length, path);
  leave_copy(out);  // the kernel names a script of the copy to its interpreter
  return IN_VIEW;
}

// A name, as far as it can be told without a look at what stands last.
struct named {
  bool whole;      // nothing is left to follow: the path ends in `.`, `..` or `/`
  bool untouched;  // the copy has nothing in the folder that it is in
};

static int name_of(int folder, const char *path, char name[PATH_MAX], struct named *named) {
  char text[PATH_MAX];
  *named = (struct named){false, false};
  const int found = absolute(folder, path, text);
  if (found == OUTSIDE) name[0] = '\0';
  if (found != IN_VIEW) return found;
  char *const slash = strrchr(text, '/');
  const char *const last = slash + 1;
  if (!is_plain(last)) {
    named->whole = true;
    return walk(text, true, false, name, &named->untouched);
  }
  *slash = '\0';
  const int inside = *text ? walk_folder(text, name, &named->untouched) : walk_whole("/", name, &named->untouched);
  if (inside < 0) return -1;
  const size_t length = strcmp(name, "/") == 0 ? 0 : strlen(name);
  if (length + 1 + strlen(last) >= PATH_MAX) return failed(ENAMETOOLONG);
  name[length] = '/';
  strcpy(name + length + 1, last);
  return strcmp(name, "/proc") == 0 ? OUTSIDE : inside;
}

static int settled(char *name, struct named *named) {
  if (starts_with(name, copy, copy_length)) {  // by a link into it (network.c)
    leave_copy(name);
    named->untouched = false;
  }
  return starts_with(name, base, base_length) ? OUTSIDE : IN_VIEW;
}

int name_in_view(int folder, const char *path, bool follow, char name[PATH_MAX]) {
  char target[PATH_MAX];
  struct named named;
  bool none_below = false;
  int found = name_of(folder, path, name, &named);
  if (found == IN_VIEW && follow && !named.whole && step_to(name, target, &none_below) == LINK) {
    strcpy(target, name);
    found = walk(target, true, false, name, &named.untouched);
  }
  return found == IN_VIEW ? settled(name, &named) : found;
}

bool in_copy(const char *name, char path[PATH_MAX]) {
  struct stat found;
  return snprintf(path, PATH_MAX, "%s%s", copy, name) < PATH_MAX && raw_lstat(path, &found) == 0 && !is_mark(&found);
}

// The folders above a name are there: the walk saw them.
enum place find(const char *name, char real[PATH_MAX], struct stat *found) {
  struct stat below;
  if (snprintf(real, PATH_MAX, "%s%s", copy, name) >= PATH_MAX) {
    errno = ENAMETOOLONG;
    return NOWHERE;
  }
  if (raw_lstat(real, found) == 0) {
    if (is_mark(found)) {
      errno = ENOENT;
      return NOWHERE;
    }
    return S_ISDIR(found->st_mode) && raw_lstat(name, &below) == 0 && S_ISDIR(below.st_mode) ? BOTH : COPY;
  }
  strcpy(real, name);
  if (raw_lstat(name, found) == 0) return DISK;
  if (errno == ENOTDIR) errno = ENOENT;  // a folder of the copy stands where the disk has a file
  return NOWHERE;
}

// The way of every question, so it asks the kernel no more than it must: once where nothing near was changed.
const char *to_read(int *folder, const char *path, bool follow, char real[PATH_MAX]) {
  if (!path || !anything_changed()) return path;
  char name[PATH_MAX];
  struct stat entry;
  struct named named;
  int found = name_of(*folder, path, name, &named);
  if (found == IN_VIEW) found = settled(name, &named);
  if (found < 0) return NULL;
  if (found == OUTSIDE) return path;
  if (named.untouched && !named.whole) {
    strcpy(real, name);
    if (raw_lstat(real, &entry) < 0) return NULL;
  } else if (find(name, real, &entry) == NOWHERE) {
    return NULL;
  }
  if (S_ISLNK(entry.st_mode) && follow) {
    found = name_in_view(*folder, path, true, name);
    if (found < 0) return NULL;
    if (found == OUTSIDE) return path;
    if (find(name, real, &entry) == NOWHERE) return NULL;
  }
  *folder = AT_FDCWD;
  return real;
}
